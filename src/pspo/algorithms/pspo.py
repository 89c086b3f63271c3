"""PSPO: Posterior Sampling-based Policy Optimization ("Offline Policy Optimization with Posterior Sampling").

One iteration is the paper's Algorithm 1: weigh the models (Eq. model:eq1), evaluate with the optimality
operator (Eq. opt:eq2), improve inside a trust region (Eq. opt:eq3), move the averages.

Where the paper leaves a choice, ours is:
- The soft value of Eq. opt:eq2 is estimated from sampled actions and regressed into a value network, so
  that next states of all models cost one small network instead of many critic calls.
- Members draw next states from common random numbers, in antithetic pairs: what differs between their
  backups is belief, not luck.
- The sampled backup over T ~ P(T|E) is replaced by its exact expectation over the active set.
- The improvement step is projected onto the policy by weighted likelihood of sampled actions, the
  weights being the closed form of Eq. opt:eq3, or follows its objective along a reparameterised gradient
  (`improvement`); lambda follows the measured KL(pi||pi') to epsilon.
- beta acts on F divided by F's own running spread between models (`f_unit`), so that one unit of beta is
  one nat between typical members on every task.
What goes beyond the paper (`critic_value`, `box`, `clip_targets`, `kl_limit`, `visited`, `discounted_rows`, ...) is off
unless a preset names it.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from pspo.algorithms.pspo_config import Config
from pspo.algorithms.pspo_improvement import Policies, alpha_at, improvement, q_values
from pspo.data.batches import Log, Rows, pick_rows, returns_known, sample_rows
from pspo.data.dataset import Dataset
from pspo.data.normalise import Normaliser, fit_normaliser, squash
from pspo.display import Progress
from pspo.dynamics.ensemble import Ensemble
from pspo.dynamics.pool import load_or_fit_pool
from pspo.dynamics.posterior import entropy, likelihood_log_prior
from pspo.dynamics.prediction_range import PredictionRange, prediction_range
from pspo.dynamics.rollout import Chains, Limits, Weighed, advance, antithetic_noise, draw_members, log_box, weigh
from pspo.dynamics.termination import Termination, make_termination
from pspo.envs.task import get_task
from pspo.nets.mlp import MLP, apply_stack, mlp, mlp_stack, moving_average
from pspo.nets.policies import MixturePolicy
from pspo.reference import load_or_fit_reference

TRUST_RANGE = (math.log(1e-5), math.log(1e3))
REWARD_RANGE = (0.001, 0.999)  # quantiles: one freak reward should not widen the range of all values
SPREAD_RATE = 0.02  # the running spread of F forgets its start within some hundred iterations


class Learned(NamedTuple):
    """What gradients move."""

    policy: MixturePolicy
    critic: MLP  # stacked
    value: MLP


class State(NamedTuple):
    """Everything that resuming needs."""

    learned: Learned
    target_critic: MLP
    centre: MixturePolicy
    opt: Any
    log_trust: Array
    f_spread: Array
    chains: Chains
    visited: Array  # (capacity, obs_dim): where chains have been, the oldest overwritten first
    key: Array
    step: Array


class Arrays(NamedTuple):
    """What is fixed during training and lives on the device."""

    pool: Ensemble
    log_prior: Array  # (pool,)
    reference: MixturePolicy
    terminated: Termination


class Parts(NamedTuple):
    arrays: Arrays
    norm: Normaliser
    range: PredictionRange
    limits: Limits = Limits()


class Batch(NamedTuple):
    real: Rows
    restart: Array  # logged states for chains that start anew


class Context(NamedTuple):
    """The active set of this chunk."""

    models: Ensemble
    log_prior: Array


class Imagined(NamedTuple):
    """The synthetic rows of one iteration, and where rollouts stand after it."""

    obs: Array
    action: Array
    weighed: Weighed
    chains: Chains
    visited: Array


def prepare(config: Config, dataset: Dataset, seed: int, progress: Progress) -> tuple[Parts, dict[str, Any]]:
    """Fit or find what training stands on: normaliser, models, mu, the end of rollouts; with a report of each."""
    norm = fit_normaliser(dataset, config.gamma)
    pool, pool_facts = load_or_fit_pool(dataset, norm, config.model, seed, partial(progress, "dynamics pool"))
    mu, mu_facts = load_or_fit_reference(dataset, norm, config.reference, 0, partial(progress, "reference policy"))
    rule = get_task(dataset.task).terminated if dataset.task else None
    ends, end_facts = make_termination(config.termination, dataset, rule, norm, config.width, 0)
    log_prior = jnp.zeros(config.model.pool)
    if config.prior == "likelihood":
        log_prior = likelihood_log_prior(pool.holdout_nll, config.prior_temperature)
    arrays, within = Arrays(pool.models, log_prior, mu, ends), prediction_range(dataset, norm)
    parts = Parts(arrays, norm, within, make_limits(config, dataset, norm))
    return parts, {"pool": pool_facts, "reference": mu_facts, "reward": "learned", **end_facts}


def make_limits(config: Config, dataset: Dataset, norm: Normaliser) -> Limits:
    """Ours, not the paper's: where the log ends, and what its rewards can add up to."""
    limits = Limits()
    if config.box == "end":
        # Rows before a time-out look poor only because the log stops there.
        to_go, known = dataset.returns_to_go(config.gamma), returns_known(dataset, config.gamma)
        worst = float(to_go[known if known.any() else slice(None)].min() / norm.reward_scale)
        limits = limits._replace(box=log_box(dataset.obs, norm, config.box_margin), left_value=worst)
    if config.clip_targets and config.gamma < 1.0:
        low, high = np.quantile(dataset.reward, REWARD_RANGE) / norm.reward_scale / (1.0 - config.gamma)
        limits = limits._replace(backup_low=float(min(low, 0.0)), backup_high=float(max(high, 0.0)))
    return limits


def optimiser(config: Config) -> optax.GradientTransformation:
    half = config.steps // 2

    def schedule(rate: float, wait: int) -> optax.Schedule:
        decay = optax.cosine_decay_schedule(rate, max(config.steps - half, 1), config.final_rate)
        parts = [optax.constant_schedule(0.0), optax.constant_schedule(rate), decay]
        return optax.join_schedules(parts, [wait, max(wait, half)])

    rates = {"policy": (config.policy_rate, config.policy_wait), "critic": (config.critic_rate, 0)}
    return optax.partition(
        {name: optax.adam(schedule(*rate)) for name, rate in rates.items()},
        Learned(policy="policy", critic="critic", value="critic"),  # pyright: ignore[reportArgumentType]
    )


def init(config: Config, parts: Parts, log: Log, key: Array) -> State:
    """The policy starts as a copy of mu, so that the first rollouts stay where the log has been."""
    key, critic_key, value_key, start_key = jax.random.split(key, 4)
    mu = parts.arrays.reference
    inputs, hidden, ln = parts.norm.features, [config.width] * config.depth, config.layer_norm
    critic = mlp_stack(critic_key, config.critics, [inputs + mu.action_dim, *hidden, 1], last_scale=0.1, layer_norm=ln)
    value = mlp(value_key, [inputs, *hidden, 1], last_scale=0.1, layer_norm=ln)
    critic, value = start_at_returns(config, parts.norm, log, critic, value, key)
    learned = Learned(mu, critic, value)
    count = config.synthetic_batch
    start = sample_rows(log, start_key, count).obs
    return State(
        learned=learned,
        target_critic=critic,
        centre=mu,
        opt=optimiser(config).init(learned),  # pyright: ignore[reportArgumentType]
        log_trust=jnp.log(jnp.float32(config.trust)),
        f_spread=jnp.float32(1.0),
        # Ages start spread out, or all chains would restart together for ever.
        chains=Chains(start, jnp.arange(count) % config.rollout_horizon, jnp.zeros(count, jnp.int32)),
        visited=jnp.zeros((-(-config.visited // count) * count, start.shape[-1])),
        key=key,
        step=jnp.int32(0),
    )


def start_at_returns(
    config: Config, norm: Normaliser, log: Log, critic: MLP, value: MLP, key: Array
) -> tuple[MLP, MLP]:
    """Regression of critics and value on the log's own discounted returns: an unbiased start at the value of mu."""
    rule = optax.adam(config.critic_rate)

    def step(carry: Any, k: Array) -> tuple[Any, None]:
        nets, opt = carry
        pick = pick_rows(log, k, config.real_batch + config.synthetic_batch, config.discounted_rows)
        features, to_go = norm.encode(log.rows.obs[pick]), log.to_go[pick]

        def loss(nets: tuple[MLP, MLP]) -> Array:
            q = apply_stack(nets[0], jnp.concatenate([features, log.rows.action[pick]], axis=-1))[..., 0]
            error = jnp.square(q - to_go).sum(0) + jnp.square(nets[1](features)[..., 0] - to_go)
            return jnp.where(log.to_go_known[pick], error, 0.0).mean()

        updates, opt = rule.update(jax.grad(loss)(nets), opt, nets)
        return (optax.apply_updates(nets, updates), opt), None

    nets: Any = (critic, value)
    if config.start_steps:
        keys = jax.random.split(key, config.start_steps)
        (nets, _), _ = jax.lax.scan(step, (nets, rule.init(nets)), keys)
    return nets


def imagine(config: Config, parts: Parts, log: Log, state: State) -> tuple[State, Context]:
    """Between chunks: draw the active set of N models from the pool."""
    key, draw_key = jax.random.split(state.key)
    pool = parts.arrays.pool
    active = jax.random.choice(draw_key, pool.size, (min(config.active, pool.size),), replace=False)
    log_prior = jax.nn.log_softmax(parts.arrays.log_prior[active])
    if config.redraw == "episode":
        # A held model may have left the active set: age zero makes every chain draw one anew.
        state = state._replace(chains=state.chains._replace(age=jnp.zeros_like(state.chains.age)))
    return state._replace(key=key), Context(pool.take(active), log_prior)


def draw(config: Config, log: Log, key: Array) -> Batch:
    """The rows of one iteration."""
    k_real, k_restart = jax.random.split(key)
    real = sample_rows(log, k_real, config.real_batch, config.discounted_rows)
    return Batch(real, sample_rows(log, k_restart, config.synthetic_batch, config.discounted_rows).obs)


def posterior(
    config: Config, parts: Parts, context: Context, state: State, obs: Array, action: Array, key: Array
) -> Weighed:
    """What the active models say of (s, a), weighed by Eq. model:eq1 with beta in the configured unit of F."""
    arrays, norm = parts.arrays, parts.norm
    unit = state.f_spread if config.f_unit == "spread" else 1.0
    beta = 0.0 if config.posterior == "uniform" else config.beta
    return weigh(
        context.models,
        context.log_prior,
        norm,
        arrays.terminated,
        parts.range,
        value=lambda features: state.learned.value(features)[..., 0],
        q=q_values(config, state.target_critic, norm.encode(obs), action),
        obs=obs,
        action=action,
        noise=model_noise(config, obs, key),
        gamma=config.gamma,
        beta=beta / unit,
        limits=parts.limits,
    )


def model_noise(config: Config, obs: Array, key: Array) -> Array:
    """(draws, 1, *obs.shape); means need no second draw."""
    if config.model_noise == 0.0:
        return jnp.zeros((1, 1, *obs.shape))
    return config.model_noise * antithetic_noise(key, config.next_pairs, obs)


def rollout_action(config: Config, parts: Parts, state: State, obs: Array, key: Array) -> Array:
    """Unit actions of rollouts: the policy's, some of mu's."""
    k_policy, k_mu, k_which = jax.random.split(key, 3)
    features = parts.norm.encode(obs)
    own = state.learned.policy(features).sample(k_policy, 1)[0]
    logged = parts.arrays.reference(features).sample(k_mu, 1)[0]
    take_mu = jax.random.bernoulli(k_which, config.reference_rollouts, (own.shape[0], 1))
    return squash(jnp.where(take_mu, logged, own))


def visit(state: State, key: Array) -> tuple[Array, Array]:
    """The visited states with those of this iteration, and a batch of them; rows not yet written are never drawn."""
    count, capacity = state.chains.obs.shape[0], state.visited.shape[0]
    visited = jax.lax.dynamic_update_slice(state.visited, state.chains.obs, (state.step * count % capacity, 0))
    written = jnp.minimum((state.step + 1) * count, capacity)
    return visited, visited[jax.random.randint(key, (count,), 0, written)]


def roll_out(config: Config, parts: Parts, context: Context, state: State, restart: Array, key: Array) -> Imagined:
    """All chains a step ahead; the synthetic rows are where they stood, or where chains have ever been (`visited`)."""
    k_rollout, k_weigh, k_member, _ = jax.random.split(key, 4)  # the fourth is the improvement's
    visited, obs = state.visited, state.chains.obs
    action = rollout_action(config, parts, state, obs, k_rollout)
    weighed = posterior(config, parts, context, state, obs, action, k_weigh)
    member = draw_members(state.chains, weighed, k_member, hold=config.redraw == "episode")
    chains = advance(state.chains, weighed, member, restart, config.rollout_horizon)
    if config.visited:
        # Chains alone are a narrow sight: steps of a few long rollouts in a row. Their past is wider, actions are new.
        k_visit, k_action, k_weigh = jax.random.split(jax.random.fold_in(key, 1), 3)
        visited, obs = visit(state, k_visit)
        action = rollout_action(config, parts, state, obs, k_action)
        weighed = posterior(config, parts, context, state, obs, action, k_weigh)
    return Imagined(obs, action, weighed, chains, visited)


def logged_target(config: Config, parts: Parts, value: MLP, rows: Rows) -> Array:
    """r + gamma V(s') of logged rows, within what rewards can add up to."""
    next_value = value(parts.norm.encode(rows.next_obs))[..., 0]
    target = rows.reward + config.gamma * jnp.where(rows.terminal, 0.0, next_value)
    return jnp.clip(target, parts.limits.backup_low, parts.limits.backup_high)


def critic_loss(critic: MLP, features: Array, action: Array, target: Array) -> Array:
    """Squared error to the backups of Eq. opt:eq2, averaged over rows and critics."""
    q = apply_stack(critic, jnp.concatenate([features, action], axis=-1))[..., 0]
    return jnp.square(q - target).mean()


def value_loss(value: MLP, features: Array, target: Array) -> Array:
    """Regression of the soft value alpha log E_mu exp(Q/alpha)."""
    return jnp.square(value(features)[..., 0] - target).mean()


def update(
    config: Config, parts: Parts, context: Context, state: State, batch: Batch, key: Array
) -> tuple[State, dict[str, Array]]:
    """One iteration of Algorithm 1."""
    k_actions = jax.random.split(key, 4)[3]  # the others are the rollout's
    norm, learned, real = parts.norm, state.learned, batch.real
    synthetic = roll_out(config, parts, context, state, batch.restart, key)
    weighed = synthetic.weighed
    features = norm.encode(jnp.concatenate([real.obs, synthetic.obs]))
    action = jnp.concatenate([real.action, synthetic.action])
    target = jnp.concatenate([logged_target(config, parts, learned.value, real), weighed.target])

    nets = Policies(parts.arrays.reference, learned.policy, state.centre)
    trust = jnp.exp(state.log_trust)
    improved = improvement(config, nets, state.target_critic, features, trust, k_actions)

    def loss(nets: tuple[MLP, MLP]) -> tuple[Array, tuple[Array, Array]]:
        critic = critic_loss(nets[0], features, action, target)
        value = value_loss(nets[1], features, improved.soft)
        return critic + value, (critic, value)

    grads, (loss_critic, loss_value) = jax.grad(loss, has_aux=True)((learned.critic, learned.value))
    grads = Learned(improved.grads, *grads)
    updates, opt = optimiser(config).update(grads, state.opt, learned)  # pyright: ignore[reportArgumentType]
    moved: Learned = optax.apply_updates(learned, updates)  # pyright: ignore[reportAssignmentType, reportArgumentType]

    push = jnp.clip(improved.kl_centre / config.epsilon - 1.0, -1.0, 1.0) * (state.step >= config.policy_wait)
    spread = jnp.maximum(weighed.f.std(axis=0).mean(), 1e-12)
    state = State(
        learned=moved,
        target_critic=moving_average(state.target_critic, moved.critic, config.target_rate),
        centre=moving_average(state.centre, moved.policy, config.centre_rate),
        opt=opt,
        log_trust=jnp.clip(state.log_trust + config.trust_rate * push, *TRUST_RANGE),
        f_spread=state.f_spread + SPREAD_RATE * (spread - state.f_spread),
        chains=synthetic.chains,
        visited=synthetic.visited,
        key=state.key,
        step=state.step + 1,
    )
    bits = entropy(weighed.log_weight)
    return state, {
        "posterior_entropy": bits.mean() / max(math.log(context.models.size), 1e-9),
        "effective_models": jnp.exp(bits).mean(),
        "f_mean": weighed.f.mean(),
        "f_spread": state.f_spread,
        "kl_mu": improved.kl_mu,
        "kl_mu_max": improved.kl_states.max(),
        "kl_centre": improved.kl_centre,
        "alpha": alpha_at(config, improved.kl_states, action.shape[-1]).mean(),
        "lambda": trust,
        "critic_loss": loss_critic,
        "value_loss": loss_value,
        "policy_loss": improved.loss,
        "q_min": improved.q.min(),
        "q_mean": improved.q.mean(),
        "q_max": improved.q.max(),
    }


def policies(state: State) -> dict[str, MixturePolicy]:
    """What is judged during training. The first is the one that is saved; the moving average is for comparison."""
    return {"policy": state.learned.policy, "centre": state.centre}
