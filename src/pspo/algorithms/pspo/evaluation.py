"""PSPO, step 3: policy evaluation. Critics are regressed on the backups of Eq. (8) (opt:eq2 in the paper's source),
the value network on the soft value of the sampled actions, so that next states of all models cost one small network."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import Array

from pspo.algorithms.pspo.config import Config
from pspo.algorithms.pspo.posterior import Limits
from pspo.data.batches import DeviceDataset, Transitions, pick_transitions
from pspo.data.normalise import Normaliser
from pspo.nets.mlp import MLP, apply_stack


def q_values(config: Config, critic: MLP, features: Array, unit_action: Array) -> Array:
    """Mean or minimum of the critics; features (batch, f), actions (..., batch, d) -> (..., batch)."""
    features = jnp.broadcast_to(features, (*unit_action.shape[:-1], features.shape[-1]))
    x = jnp.concatenate([features, unit_action], axis=-1)
    flat = apply_stack(critic, x.reshape(-1, x.shape[-1]))
    together = flat.min(0) if config.critic_value == "min" else flat.mean(0)
    return together.reshape(unit_action.shape[:-1])


def real_target(config: Config, norm: Normaliser, limits: Limits, value: MLP, batch: Transitions) -> Array:
    """r + gamma V(s') of transitions of the dataset, within what rewards can add up to."""
    next_value = value(norm.encode(batch.next_obs))[..., 0]
    target = batch.reward + config.gamma * jnp.where(batch.terminal, 0.0, next_value)
    return jnp.clip(target, limits.backup_low, limits.backup_high)


def critic_loss(critic: MLP, features: Array, action: Array, target: Array) -> Array:
    """Squared error to the backups of Eq. (8), averaged over batch and critics."""
    q = apply_stack(critic, jnp.concatenate([features, action], axis=-1))[..., 0]
    return jnp.square(q - target).mean()


def value_loss(value: MLP, features: Array, target: Array) -> Array:
    """Regression of the soft value alpha log E_mu exp(Q/alpha) of Eq. (8)."""
    return jnp.square(value(features)[..., 0] - target).mean()


def fit_to_returns(
    config: Config, norm: Normaliser, data: DeviceDataset, critic: MLP, value: MLP, key: Array
) -> tuple[MLP, MLP]:
    """Critics and value regressed on the dataset's own discounted returns: an unbiased start at the value of mu."""
    adam = optax.adam(config.critic_lr)

    def step(carry: Any, k: Array) -> tuple[Any, None]:
        nets, opt = carry
        pick = pick_transitions(data, k, config.real_batch + config.synthetic_batch, config.discounted_fraction)
        features, to_go = norm.encode(data.transitions.obs[pick]), data.to_go[pick]

        def loss(nets: tuple[MLP, MLP]) -> Array:
            q = apply_stack(nets[0], jnp.concatenate([features, data.transitions.action[pick]], axis=-1))[..., 0]
            error = jnp.square(q - to_go).sum(0) + jnp.square(nets[1](features)[..., 0] - to_go)
            return jnp.where(data.to_go_known[pick], error, 0.0).mean()

        updates, opt = adam.update(jax.grad(loss)(nets), opt, nets)
        return (optax.apply_updates(nets, updates), opt), None

    nets: Any = (critic, value)
    if config.start_steps:
        keys = jax.random.split(key, config.start_steps)
        (nets, _), _ = jax.lax.scan(step, (nets, adam.init(nets)), keys)
    return nets
