"""Where a PSPO iteration spends its time: its parts, each compiled and timed alone on the step's own inputs.

Alone, a part writes to memory what the whole step keeps inside a fused loop, and it pays for one dispatch per
call (tens of microseconds), so the parts may add up to more than the step.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import Array

from benchmarks.cases import Case
from pspo.algorithms.pspo import algorithm as pspo
from pspo.algorithms.pspo.evaluation import q_values
from pspo.algorithms.pspo.improvement import Constraints, Sampled, improve, policy_loss
from pspo.algorithms.pspo.rollout import REFERENCE_ROLLOUTS
from pspo.data.normalise import squash
from pspo.dynamics.ensemble import Prediction, draw_next, model_inputs
from pspo.dynamics.persistent_rollouts import antithetic_noise
from pspo.experiments.timing import Work
from pspo.nets.mlp import moving_average
from pspo.nets.policies import Mixture, kl_bound


class Stages:
    """Runs the stages of a step one after the other and remembers each, with its inputs, as work to be timed."""

    def __init__(self) -> None:
        self.works: dict[str, Work] = {}

    def __call__(self, name: str, stage: Callable[..., Any], *inputs: Any) -> Any:
        compiled = jax.jit(stage)
        self.works[name] = partial(compiled, *inputs)
        return compiled(*inputs)


def parts_of_step(case: Case) -> dict[str, Work]:
    """The parts in the order of pspo.update; those with matrix products carry the names of flops.pspo_step."""
    stage, real, arrays = Stages(), case.config.real_batch, case.setup.arrays
    state, context, batch = case.start
    encode = jax.jit(case.setup.norm.encode)
    features = encode(jnp.concatenate([batch.real.obs, state.rollouts.obs]))
    policy = jax.jit(lambda f: state.params.policy(f))(features)  # the step shares this pass with the policy's gradient
    mixtures = stage("policy, mu and target policy", partial(_mixtures, real), arrays.reference, state, features)
    mu, target = mixtures[0], mixtures[1]
    draws = stage("random numbers", partial(_draws, case), case.device_data, state.rollouts.obs, mu, policy, state.key)
    x, noise, synthetic = draws["actions"], draws["noise"], squash(draws["rollout action"])
    prediction = stage("ensemble forward", partial(_predict, case), context.models, state.rollouts.obs, synthetic)
    after = stage("next states", partial(_next_states, case), state.rollouts.obs, synthetic, prediction, noise)
    real_after = encode(batch.real.next_obs)
    stage("value at next states", _values, state.params.value, after[0], real_after)
    q, _ = stage("target critics", partial(_critics, case.config, real), state.target_critic, features, x, synthetic)
    soft, log_weight = stage(
        "densities and weights", partial(_weights, case), (mu, policy, target), x, q, state.log_lambda
    )
    action = jnp.concatenate([batch.real.action, synthetic])
    grads = stage("gradients", _gradients, state.params, features, action, soft, x, log_weight)
    stage("optimiser and averages", partial(_optimiser, case), state, grads)
    return stage.works


def _mixtures(real: int, mu: Any, state: pspo.State, features: Array) -> tuple[Mixture, ...]:
    """mu and target policy at the batch, mu and policy at the rollouts."""
    rollouts = features[real:]
    return mu(features), state.target_policy(features), mu(rollouts), state.params.policy(rollouts)


def _draws(case: Case, data: Any, obs: Array, mu: Mixture, policy: Mixture, key: Array) -> dict[str, Any]:
    """Every draw of an iteration."""
    config, keys = case.config, jax.random.split(key, 8)
    at_rollouts = [Mixture(*(part[config.real_batch :] for part in m)) for m in (mu, policy)]
    reference, own = (m.sample(k, 1)[0] for m, k in zip(at_rollouts, keys[:2], strict=True))
    from_mu = jax.random.bernoulli(keys[2], REFERENCE_ROLLOUTS, (obs.shape[0], 1))
    n = config.action_samples
    even = jnp.zeros((min(config.active, case.setup.arrays.pool.size), obs.shape[0]))
    return {
        "batch": pspo.draw(config, data, keys[3]),
        "rollout action": jnp.where(from_mu, reference, own),
        "noise": antithetic_noise(keys[4], config.next_pairs, obs),
        "member": jax.random.categorical(keys[5], even, axis=0),
        "actions": jnp.concatenate([mu.sample(keys[6], n), policy.sample(keys[7], n)]),
    }


def _predict(case: Case, models: Any, obs: Array, action: Array) -> Prediction:
    return models.predict(model_inputs(case.setup.norm, obs, action))


def _next_states(case: Case, obs: Array, action: Array, prediction: Prediction, noise: Array) -> tuple[Array, Array]:
    """Drawn, kept inside the data's range, encoded, and checked for the end of the episode."""
    norm = case.setup.norm
    next_obs = norm.snap(draw_next(obs, prediction, noise)[0])
    return norm.encode(next_obs), case.setup.arrays.terminated(norm, obs, action, next_obs)


def _values(value: Any, synthetic: Array, real: Array) -> tuple[Array, Array]:
    return value(synthetic), value(real)


def _critics(
    config: pspo.Config, real: int, critic: Any, features: Array, x: Array, synthetic: Array
) -> tuple[Array, Array]:
    """On the sampled actions of every state, and on those of the rollouts."""
    return q_values(config, critic, features, squash(x)), q_values(config, critic, features[real:], synthetic)


def _weights(
    case: Case, mixtures: tuple[Mixture, Mixture, Mixture], x: Array, q: Array, log_lambda: Array
) -> tuple[Array, Array]:
    mu, policy, target = mixtures
    drawn = Sampled(x, mu.log_prob(x), policy.log_prob(x), target.log_prob(x), q, kl_bound(policy, mu))
    return improve(case.config, drawn, Constraints(jnp.exp(log_lambda), case.config.kl_limit))


def _gradients(
    params: pspo.Params, features: Array, action: Array, target: Array, x: Array, log_weight: Array
) -> pspo.Params:
    def loss(params: pspo.Params) -> Array:
        critic = pspo.critic_loss(params.critic, features, action, target)
        value = pspo.value_loss(params.value, features, target)
        return critic + value + policy_loss(params.policy, features, x, log_weight)

    return jax.grad(loss)(params)


def _optimiser(case: Case, state: pspo.State, grads: Any) -> tuple[Any, ...]:
    config, params = case.config, state.params
    updates, opt = pspo.optimiser(config).update(grads, state.opt, params)
    moved = optax.apply_updates(params, updates)
    critic = moving_average(state.target_critic, moved.critic, config.tau)
    return moved, opt, critic, moving_average(state.target_policy, moved.policy, config.policy_tau)
