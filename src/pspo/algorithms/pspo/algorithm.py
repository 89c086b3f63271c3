"""PSPO: Posterior Sampling-based Policy Optimization ("Offline Policy Optimization with Posterior Sampling").

One iteration is the paper's Algorithm 1: weight the models (Eq. 4), evaluate with the optimality operator (Eq. 8),
improve inside a trust region (Eq. 9), move the target networks. Read config, state, posterior, rollout,
model_returns, evaluation, improvement, discrete, then `update` here.

Where the paper leaves a choice, ours is:
- The soft value of Eq. (8) is estimated from sampled actions and regressed into a value network, so that next states of
  all models cost one small network instead of many critic calls.
- Members draw next states from common random numbers, in antithetic pairs: what differs between their backups is
  what the models predict, not sampling noise.
- The sampled backup over T ~ P(T|E) is replaced by its exact expectation over the active set.
- The improvement step is projected onto the policy by weighted likelihood of sampled actions, the weights being the
  closed form of Eq. (9), or follows its objective along a reparameterised gradient (`improvement`); lambda follows the
  measured KL(pi||pi') to epsilon.
- beta acts on F divided by F's own running standard deviation between models (`f_unit`), so that one unit of beta is
  one nat between typical members on every task.
- Discrete actions need no sampling: the sums over them are exact (discrete.py).
What goes beyond the paper (`critic_value`, `box`, `clip_targets`, `kl_limit`, `value_rollouts`, ...) is off unless a
preset names it. Equation numbers are those printed in the paper; labels of its source stand in the files of each step.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from pspo.algorithms.common.behaviour import load_or_fit_reference
from pspo.algorithms.common.losses import q_range
from pspo.algorithms.pspo.config import Config
from pspo.algorithms.pspo.discrete import by_sums
from pspo.algorithms.pspo.evaluation import critic_loss, fit_to_returns, real_target, value_loss
from pspo.algorithms.pspo.improvement import Constraints, Improved, Policies, alpha_at, improvement
from pspo.algorithms.pspo.model_returns import model_returns, path_disagreement, roll_out_by_mode, supported_kl_limit
from pspo.algorithms.pspo.posterior import (
    PRIOR_TEMPERATURE,
    Limits,
    PosteriorBackup,
    entropy,
    f_scale,
    likelihood_log_prior,
)
from pspo.algorithms.pspo.rollout import RolloutKeys, roll_out
from pspo.algorithms.pspo.state import Arrays, Batch, Context, Params, PolicyNetwork, Setup, State
from pspo.core.progress import Progress
from pspo.data.batches import DeviceDataset, returns_known, sample_transitions
from pspo.data.dataset import Dataset
from pspo.data.normalise import Normaliser, fit_normaliser
from pspo.dynamics.persistent_rollouts import start_rollouts
from pspo.dynamics.pool import load_or_fit_pool
from pspo.dynamics.prediction_range import data_box, prediction_range
from pspo.dynamics.termination import make_termination
from pspo.envs.task import get_task
from pspo.nets.categorical import CategoricalPolicy
from pspo.nets.mlp import MLP, mlp, mlp_stack, moving_average

HEADLINE = ("posterior_entropy", "kl_mu", "critic_loss")
UNUSED_IF_DISCRETE = ("action_samples", "improvement", "reference.components", "value_rollouts")
LOG_LAMBDA_RANGE = (math.log(1e-5), math.log(1e3))
REWARD_RANGE = (0.001, 0.999)  # quantiles: one freak reward should not widen the range of all values
F_SCALE_RATE = 0.02  # the running standard deviation of F forgets its start within some hundred iterations


def prepare(config: Config, dataset: Dataset, seed: int, progress: Progress) -> tuple[Setup, dict[str, Any]]:
    """Fit or load what stays fixed: normaliser, models, mu, termination of rollouts; with a report of each."""
    norm = fit_normaliser(dataset, config.gamma)
    pool, pool_info = load_or_fit_pool(dataset, norm, config.model, seed, partial(progress, "dynamics pool"))
    show = partial(progress, "reference policy")
    mu, mu_info = load_or_fit_reference(dataset, norm, config.reference, 0, show, config.gamma)
    rule = get_task(dataset.task).terminated if dataset.task else None
    terminated, info = make_termination(config.termination, dataset, rule, norm, config.width, 0)
    log_prior = jnp.zeros(config.model.pool)
    if config.prior == "likelihood":
        log_prior = likelihood_log_prior(pool.holdout_nll, PRIOR_TEMPERATURE)
    arrays = Arrays(pool.models, log_prior, mu, terminated)
    setup = Setup(arrays, norm, prediction_range(dataset, norm), make_limits(config, dataset, norm))
    return setup, {"pool": pool_info, "reference": mu_info, "reward": "learned", **info}


def make_limits(config: Config, dataset: Dataset, norm: Normaliser) -> Limits:
    """Ours, not the paper's: where the dataset ends, and what its rewards can add up to."""
    limits = Limits()
    if config.box == "end":
        # Transitions before a time-out have low returns only because the episode was cut there.
        to_go, known = dataset.returns_to_go(config.gamma), returns_known(dataset, config.gamma)
        worst = float(to_go[known if known.any() else slice(None)].min() / norm.reward_scale)
        limits = limits._replace(box=data_box(dataset.obs, norm, config.box_margin), left_value=worst)
    if config.clip_targets and config.gamma < 1.0:
        low, high = np.quantile(dataset.reward, REWARD_RANGE) / norm.reward_scale / (1.0 - config.gamma)
        limits = limits._replace(backup_low=float(min(low, 0.0)), backup_high=float(max(high, 0.0)))
    return limits


def optimiser(config: Config) -> optax.GradientTransformation:
    half = config.steps // 2

    def schedule(lr: float) -> optax.Schedule:
        decay = optax.cosine_decay_schedule(lr, max(config.steps - half, 1), config.final_lr)
        return optax.join_schedules([optax.constant_schedule(lr), decay], [half])

    return optax.partition(
        {"policy": optax.adam(schedule(config.policy_lr)), "critic": optax.adam(schedule(config.critic_lr))},
        Params(policy="policy", critic="critic", value="critic"),  # pyright: ignore[reportArgumentType]
    )


def init(config: Config, setup: Setup, data: DeviceDataset, key: Array) -> State:
    """The policy starts as a copy of mu, so that the first rollouts stay close to the dataset."""
    key, critic_key, value_key, start_key, fit_key = jax.random.split(key, 5)
    mu = setup.arrays.reference
    inputs, hidden, ln = setup.norm.features, [config.width] * config.depth, config.layer_norm
    critic = mlp_stack(critic_key, config.critics, [inputs + mu.action_dim, *hidden, 1], last_scale=0.1, layer_norm=ln)
    value = mlp(value_key, [inputs, *hidden, 1], last_scale=0.1, layer_norm=ln)
    critic, value = fit_to_returns(config, setup.norm, data, critic, value, fit_key)
    params = Params(mu, critic, value)
    count = config.synthetic_batch
    start = sample_transitions(data, start_key, count).obs
    return State(
        params=params,
        target_critic=critic,
        target_policy=mu,
        opt=optimiser(config).init(params),  # pyright: ignore[reportArgumentType]
        log_lambda=jnp.log(jnp.float32(config.lambda_init)),
        f_scale=jnp.float32(1.0),
        rollouts=start_rollouts(start, config.rollout_horizon),
        visited=jnp.zeros((-(-config.visited // count) * count, start.shape[-1])),
        key=key,
        step=jnp.int32(0),
    )


def begin_chunk(
    config: Config, setup: Setup, data: DeviceDataset, state: State
) -> tuple[State, Context, dict[str, Array]]:
    """Draw the active set of N models from the pool; with `value_rollouts`, roll the present policy out in it."""
    key, draw_key = jax.random.split(state.key)
    pool = setup.arrays.pool
    active = jax.random.choice(draw_key, pool.size, (min(config.active, pool.size),), replace=False)
    log_prior = jax.nn.log_softmax(setup.arrays.log_prior[active])
    if config.redraw == "episode":
        # A held model may have left the active set: at age zero every rollout draws a new one.
        state = state._replace(rollouts=state.rollouts._replace(age=jnp.zeros_like(state.rollouts.age)))
    state, context = state._replace(key=key), Context(pool.take(active), log_prior)
    if config.value_rollouts:
        k_starts, k_rollouts = jax.random.split(jax.random.fold_in(draw_key, 2))  # `choice` takes 0 and 1
        starts = sample_transitions(data, k_starts, config.value_rollouts, config.discounted_fraction).obs
        common = {"state": state, "key": k_rollouts}
        returns, own = model_returns(config, setup, context, starts=starts, **common)
        context = context._replace(returns=returns)
        if config.kl_limit_rise > 1.0:
            mu = setup.arrays.reference
            steps, _ = roll_out_by_mode(config, setup, context=context, policy=mu, starts=starts[::2], **common)
            reference = path_disagreement(steps)
            kl_limit = supported_kl_limit(config, own, reference)
            metrics = {"disagreement_ratio": own / reference, "kl_limit": kl_limit}
            return state, context._replace(kl_limit=kl_limit), metrics
    return state, context, {}


def draw(config: Config, data: DeviceDataset, key: Array) -> Batch:
    """Transitions of the dataset, and states from which rollouts restart."""
    k_real, k_restart = jax.random.split(key)
    real = sample_transitions(data, k_real, config.real_batch, config.discounted_fraction)
    restart = sample_transitions(data, k_restart, config.synthetic_batch, config.discounted_fraction).obs
    return Batch(real, restart)


def update(
    config: Config, setup: Setup, context: Context, state: State, batch: Batch, key: Array
) -> tuple[State, dict[str, Array]]:
    """One iteration of Algorithm 1."""
    k_action, k_backup, k_member, k_improve, k_visited = jax.random.split(key, 5)
    keys = RolloutKeys(k_action, k_backup, k_member, k_visited)
    norm, params, real = setup.norm, state.params, batch.real

    # Posterior over the active models along the rollouts (Eqs. 3 and 4), and the backups it gives.
    synthetic = roll_out(config, setup, context, state, batch.restart, keys)
    features = norm.encode(jnp.concatenate([real.obs, synthetic.obs]))
    action = jnp.concatenate([real.action, synthetic.action])
    target = jnp.concatenate([real_target(config, norm, setup.limits, params.value, real), synthetic.backup.target])

    # Policy improvement inside the trust region (Eq. 9); it also gives the soft value of Eq. (8).
    nets = Policies(setup.arrays.reference, params.policy, state.target_policy)
    kl_limit = config.kl_limit if context.kl_limit is None else context.kl_limit
    constraints = Constraints(jnp.exp(state.log_lambda), kl_limit)
    if isinstance(params.policy, CategoricalPolicy):
        improved = by_sums(config, nets, state.target_critic, features, constraints)
    else:
        improved = improvement(config, nets, state.target_critic, features, constraints, k_improve)

    # Policy evaluation (Eq. 8); with `value_rollouts`, half of what the value network learns are returns in the models.
    def loss(nets: tuple[MLP, MLP]) -> tuple[Array, tuple[Array, Array]]:
        critic = critic_loss(nets[0], features, action, target)
        value = value_loss(nets[1], features, improved.soft)
        if context.returns is not None:
            pick = context.returns.draw(jax.random.fold_in(k_visited, 3), features.shape[0])
            returns = value_loss(nets[1], norm.encode(context.returns.obs[pick]), context.returns.returns[pick])
            value = 0.5 * (value + returns)
        return critic + value, (critic, value)

    grads, losses = jax.grad(loss, has_aux=True)((params.critic, params.value))
    grads = Params(improved.grads, *grads)
    updates, opt = optimiser(config).update(grads, state.opt, params)  # pyright: ignore[reportArgumentType]
    moved: Params = optax.apply_updates(params, updates)  # pyright: ignore[reportAssignmentType, reportArgumentType]

    # Target networks; lambda towards the KL limit epsilon; the unit of F.
    push = jnp.clip(improved.kl_target / config.epsilon - 1.0, -1.0, 1.0)
    state = State(
        params=moved,
        target_critic=moving_average(state.target_critic, moved.critic, config.tau),
        target_policy=moving_average(state.target_policy, moved.policy, config.policy_tau),
        opt=opt,
        log_lambda=jnp.clip(state.log_lambda + config.lambda_lr * push, *LOG_LAMBDA_RANGE),
        f_scale=state.f_scale + F_SCALE_RATE * (f_scale(synthetic.backup.f) - state.f_scale),
        rollouts=synthetic.rollouts,
        visited=synthetic.visited,
        key=state.key,
        step=state.step + 1,
    )
    return state, _metrics(config, state, synthetic.backup, improved, constraints, losses)


def _metrics(
    config: Config,
    state: State,
    backup: PosteriorBackup,
    improved: Improved,
    constraints: Constraints,
    losses: tuple[Array, Array],
) -> dict[str, Array]:
    nats = entropy(backup.log_weight)
    columns = action_columns(state.params.policy)
    return {
        "posterior_entropy": nats.mean() / max(math.log(backup.log_weight.shape[0]), 1e-9),
        "effective_models": jnp.exp(nats).mean(),
        "f_mean": backup.f.mean(),
        "f_scale": state.f_scale,
        "kl_mu": improved.kl_mu,
        "kl_mu_max": improved.kl_states.max(),
        "kl_target_policy": improved.kl_target,
        "alpha": alpha_at(config, improved.kl_states, columns, constraints.kl_limit).mean(),
        "lambda": constraints.multiplier,
        "critic_loss": losses[0],
        "value_loss": losses[1],
        "policy_loss": improved.loss,
        **q_range(improved.q),
    }


def action_columns(policy: PolicyNetwork) -> int:
    """A discrete action is one column, however many labels it has."""
    return 1 if isinstance(policy, CategoricalPolicy) else policy.action_dim


def policies(state: State) -> dict[str, PolicyNetwork]:
    """The first is saved and deployed; the target policy is evaluated beside it."""
    return {"policy": state.params.policy, "target_policy": state.target_policy}
