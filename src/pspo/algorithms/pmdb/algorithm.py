"""PMDB (Guo et al. 2022, "Model-Based Offline Reinforcement Learning with Pessimism-Modulated Dynamics Belief").

An ensemble is a distribution over dynamics, and the policy plays a game against it: at every step N models are
drawn, and the one with the k-th lowest value makes the step (the paper's alternating Markov game):

    (Q)   Q(s, a) = E_{T_1..T_N} [ kmin_n  r_n(s, a) + gamma E_{s'~T_n} V(s') ]
    (V)   V(s)    = max_pi E_pi[Q] - alpha(s) KL(pi || pi_ref) = alpha log E_{a~pi_ref} exp(Q(s, a) / alpha)
    (pi)  pi(a|s) ∝ pi_ref(a|s) exp(Q(s, a) / alpha)

The policy is regressed on the maximiser (pi), alpha follows in closed form from a given divergence, and pi_ref follows
the policy slowly: pi_ref is evaluated. Half of every loss is on real transitions, half on game states. values.py has
the estimates from sampled actions, game.py the models' part. Differences from the authors' code:
- All members draw next states from the same noise, in antithetic pairs, so that the rank of a model depends on its
  predictions and not on the noise of a few draws.
- A game state's sampled actions serve both to choose its action and to improve the policy; theirs are drawn again.
- All losses are taken at the same parameters, in one fused step.
- Models are those of PSPO: per-member bounds of standard deviations, no clipping of gradients.
- `rewards` may be a unit that only divides, for tasks in which the policy controls the length of an episode.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array

from pspo.algorithms.common.losses import bellman_target, q_range, q_values
from pspo.algorithms.common.model_based import prepare_termination
from pspo.algorithms.common.model_free import adam_by_part, begin_chunk, descend, layer_sizes
from pspo.algorithms.pmdb.config import Config
from pspo.algorithms.pmdb.game import SampledPredictions, Units, follow, make_units, models_of, predict
from pspo.algorithms.pmdb.values import (
    ActionGaussian,
    Candidates,
    candidates,
    improved_log_weights,
    soft_value,
    temperature,
)
from pspo.core.errors import UserError
from pspo.core.progress import Progress
from pspo.data.batches import DeviceDataset, Transitions, sample_transitions
from pspo.data.dataset import Dataset
from pspo.data.normalise import Normaliser, fit_normaliser
from pspo.dynamics.ensemble import Ensemble
from pspo.dynamics.model_env import ModelEnv
from pspo.dynamics.persistent_rollouts import PersistentRollouts, antithetic_noise, start_rollouts
from pspo.dynamics.pool import load_or_fit_pool
from pspo.dynamics.prediction_range import PredictionRange, prediction_range
from pspo.dynamics.selectors import kth_lowest
from pspo.dynamics.termination import Termination
from pspo.nets.actors import ACTION_MAX, TanhGaussian
from pspo.nets.mlp import MLP, mlp, mlp_stack, moving_average

__all__ = ["HEADLINE", "Config", "begin_chunk", "draw", "init", "policies", "prepare", "update"]

HEADLINE = ("critic_loss",)

LOG_STD_RANGE = (-4.0, 2.0)  # of the policy, by a soft clamp


class Params(NamedTuple):
    """What gradients move."""

    actor: TanhGaussian
    critic: MLP  # two, stacked


class State(NamedTuple):
    """Everything that resuming needs."""

    params: Params
    target_critic: MLP
    reference: TanhGaussian  # pi_ref
    opt: Any
    rollouts: PersistentRollouts
    key: Array
    step: Array


class Arrays(NamedTuple):
    """What is fixed during training and lives on the device."""

    pool: Ensemble
    terminated: Termination


class Setup(NamedTuple):
    arrays: Arrays
    norm: Normaliser  # of policy and critics
    model_norm: Normaliser
    units: Units
    range: PredictionRange


class Batch(NamedTuple):
    real: Transitions
    restart: Array  # dataset states from which rollouts restart


def prepare(config: Config, dataset: Dataset, seed: int, progress: Progress) -> tuple[Setup, dict[str, Any]]:
    """Fit or load the models and the termination rule, units and ranges; with information for the report."""
    if config.order > config.active:
        raise UserError(
            f"order={config.order} needs at least that many models, and active={config.active}: raise active."
        )
    norm, units = make_units(dataset, config.states, config.rewards, config.gamma)
    model_norm = fit_normaliser(dataset, config.gamma)
    pool, info = load_or_fit_pool(dataset, model_norm, config.model, seed, partial(progress, "dynamics pool"))
    terminated, termination_info = prepare_termination(config.termination, dataset, model_norm)
    setup = Setup(Arrays(pool.models, terminated), norm, model_norm, units, prediction_range(dataset, model_norm))
    return setup, {"pool": info, "reward": "learned", **termination_info}


def optimiser(config: Config) -> optax.GradientTransformation:
    return adam_by_part(Params(config.actor_lr, config.critic_lr))  # pyright: ignore[reportArgumentType]


def init(config: Config, setup: Setup, data: DeviceDataset, key: Array) -> State:
    key, actor_key, critic_key, start_key = jax.random.split(key, 4)
    inputs, columns, hidden = layer_sizes(config, setup.norm, data)
    actor = TanhGaussian(mlp(actor_key, [inputs, *hidden, 2 * columns], "relu", init="keras"), *LOG_STD_RANGE, True)
    critic = mlp_stack(critic_key, 2, [inputs + columns, *hidden, 1], activation="relu", init="keras")
    params, count = Params(actor, critic), config.synthetic_batch
    rollouts = start_rollouts(sample_transitions(data, start_key, count).obs, config.rollout_horizon)
    opt = optimiser(config).init(params)  # pyright: ignore[reportArgumentType]
    return State(params, critic, actor, opt, rollouts, key, jnp.int32(0))


def draw(config: Config, data: DeviceDataset, key: Array) -> Batch:
    """The batch of one iteration; rollouts restart from any state of the dataset, next states included."""
    k_real, k_restart, k_side = jax.random.split(key, 3)
    start = sample_transitions(data, k_restart, config.synthetic_batch)
    take_next = jax.random.bernoulli(k_side, 0.5, start.terminal.shape) & ~start.terminal
    restart = jnp.where(take_next[:, None], start.next_obs, start.obs)
    return Batch(sample_transitions(data, k_real, config.real_batch), restart)


# Estimates from sampled actions


def state_values(
    config: Config, setup: Setup, state: State, critics: tuple[MLP, ...], obs: Array, key: Array
) -> list[Array]:
    """(V) at observations (..., obs_dim), by each of these pairs of critics on the same actions of pi and pi_ref."""
    features = setup.norm.encode(obs)
    actor, reference = (ActionGaussian(*net.moments(features)) for net in (state.params.actor, state.reference))
    noise = jax.random.normal(key, (config.action_samples, *actor.mean.shape))
    drawn = candidates(actor, reference, noise)

    def value(critic: MLP) -> Array:
        q = setup.units.value(q_values(critic, features, drawn.action).min(0))
        alpha = temperature(q, drawn.log_ratio, config.kl_target, config.lowest_temperature)
        return soft_value(q, drawn.log_ratio, alpha)

    return [value(critic) for critic in critics]


def candidates_at(
    config: Config, nets: tuple[TanhGaussian, ...], features: Array, real: Transitions, key: Array
) -> Candidates:
    """Actions at real states, then at game states: pi_ref's, and proposals around the real actions or of the policy."""
    actor, reference = (ActionGaussian(*net.moments(features)) for net in nets)
    real_x = jnp.arctanh(jnp.clip(real.action, -ACTION_MAX, ACTION_MAX))
    around = jnp.full_like(real_x, jnp.log(config.imitation_std))
    count = real_x.shape[0]
    proposal = ActionGaussian(
        jnp.concatenate([real_x, actor.mean[count:]]), jnp.concatenate([around, actor.log_std[count:]])
    )
    noise = jax.random.normal(key, (config.action_samples, *proposal.mean.shape))
    return candidates(proposal, reference, noise)


def log_weights(config: Config, q: Array, log_ratio: Array) -> Array:
    """log W of the improved policy on sampled actions."""
    alpha = temperature(q, log_ratio, config.kl_target, config.lowest_temperature)
    return improved_log_weights(q, log_ratio, alpha)


def choose_action(config: Config, drawn: Candidates, q: Array, key: Array) -> Array:
    """An action of the improved policy in each game state; the critics' values are not clipped here."""
    which = jax.random.categorical(key, log_weights(config, q, drawn.log_ratio), axis=0)
    return jnp.take_along_axis(drawn.action, which[None, :, None], axis=0)[0]


# The game


class GameStep(NamedTuple):
    """A step of the game."""

    target: Array  # (batch,): the k-th lowest backup by the target critics
    mean_backup: Array  # (batch,): the mean of the backups
    rollouts: PersistentRollouts
    predictions: SampledPredictions


def play(config: Config, setup: Setup, state: State, action: Array, restart: Array, key: Array) -> GameStep:
    """Draw N models for the whole batch. Target critics rank them for the target (Q), the present critics for the next
    state of the rollouts, which sometimes take any of the drawn models."""
    k_models, k_noise, k_value, k_explore, k_any, k_end = jax.random.split(key, 6)
    obs, pool = state.rollouts.obs, setup.arrays.pool
    drawn = jax.random.randint(k_models, (config.active,), 0, pool.size)
    models, position = models_of(pool, drawn)
    env = ModelEnv(models, setup.arrays.terminated, setup.model_norm, setup.norm, setup.range)
    predictions = predict(env, setup.units, obs, action, antithetic_noise(k_noise, config.next_pairs, obs))
    critics = (state.target_critic, state.params.critic)
    values = state_values(config, setup, state, critics, predictions.next_obs, k_value)
    by_target, by_present = (predictions.backup(value, config.gamma)[position] for value in values)
    _, target = kth_lowest(by_target, config.order)
    lowest, _ = kth_lowest(by_present, config.order)
    uniform = jax.random.randint(k_any, lowest.shape, 0, config.active)
    member = position[jnp.where(jax.random.bernoulli(k_explore, config.explore), uniform, lowest)]
    rollouts = follow(state.rollouts, predictions, member, k_end, restart, config.rollout_horizon)
    return GameStep(target, by_target.mean(0), rollouts, predictions)


# Losses


def half_each(each: Array, real: int) -> Array:
    """Half of the mean over real transitions, and half of the mean over game states."""
    return 0.5 * each[..., :real].mean(-1) + 0.5 * each[..., real:].mean(-1)


def critic_loss(q: Array, target: Array, real: int) -> Array:
    """Squared error to the backups of (Q), summed over critics."""
    return half_each(jnp.square(q - target), real).sum()


def policy_loss(actor: TanhGaussian, features: Array, drawn: Candidates, log_weight: Array, real: int) -> Array:
    """Likelihood of sampled actions, weighted towards the improved policy (pi).

    Each column is weighted by its standard deviation (beta-NLL, exponent 0.5), or narrow ones would dominate. The slope
    of the tanh is left out: it does not depend on the policy.
    """
    own = ActionGaussian(*actor.moments(features))
    std = jax.lax.stop_gradient(jnp.exp(own.log_std))
    log_prob = (std / std.mean(0) * own.log_prob(drawn.x)).sum(-1)
    return half_each(-(jnp.exp(log_weight) * log_prob).sum(0), real)


def update(
    config: Config, setup: Setup, context: None, state: State, batch: Batch, key: Array
) -> tuple[State, dict[str, Array]]:
    """A step of the game, and one fused step of critics and policy."""
    k_drawn, k_choose, k_play, k_real = jax.random.split(key, 4)
    old, real, count = state.params, batch.real, config.real_batch
    features = setup.norm.encode(jnp.concatenate([real.obs, state.rollouts.obs]))
    drawn = candidates_at(config, (old.actor, state.reference), features, real, k_drawn)
    sampled_q = q_values(old.critic, features, drawn.action).min(0)
    game = Candidates(drawn.x[:, count:], drawn.log_ratio[:, count:])
    game_action = choose_action(config, game, sampled_q[:, count:], k_choose)
    game_step = play(config, setup, state, game_action, batch.restart, k_play)

    (next_value,) = state_values(config, setup, state, (state.target_critic,), real.next_obs, k_real)
    real_target = bellman_target(real.reward - setup.units.shift, real.terminal, next_value, config.gamma)
    target = setup.units.value(jnp.concatenate([real_target, game_step.target]))
    action = jnp.concatenate([real.action, game_action])
    log_weight = log_weights(config, setup.units.value(sampled_q), drawn.log_ratio)

    def loss(moving: Params) -> tuple[Array, tuple[Array, ...]]:
        q = q_values(moving.critic, features, action)
        critic = critic_loss(q, target, count)
        actor = policy_loss(moving.actor, features, drawn, log_weight, count)
        return critic + actor, (critic, actor, q)

    grads, (loss_critic, loss_actor, q) = jax.grad(loss, has_aux=True)(old)
    params, opt = descend(optimiser(config), grads, state.opt, old)
    kl = ActionGaussian(*old.actor.moments(features)).divergence(ActionGaussian(*state.reference.moments(features)))
    return State(
        params=params,
        target_critic=moving_average(state.target_critic, params.critic, config.tau),
        reference=moving_average(state.reference, params.actor, config.reference_tau),
        opt=opt,
        rollouts=game_step.rollouts,
        key=state.key,
        step=state.step + 1,
    ), {
        "critic_loss": loss_critic,
        "actor_loss": loss_actor,
        "kl_reference": kl.mean(),
        "pessimism": (game_step.mean_backup - game_step.target).mean(),
        "end_probability": game_step.predictions.end.mean(),
        "rollout_age": state.rollouts.age.mean(),
        **q_range(q),
    }


def policies(state: State) -> dict[str, TanhGaussian]:
    """pi_ref is the policy of the paper's tables; the one that it follows is evaluated beside it."""
    return {"policy": state.reference, "actor": state.params.actor}
