"""A tiny PSPO made by NumPy (nothing is fitted, little is compiled), and its networks' outputs computed by hand."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pspo.algorithms.pspo import algorithm as pspo
from pspo.algorithms.pspo.algorithm import Arrays, Config, Setup, State
from pspo.algorithms.pspo.improvement import Constraints
from pspo.core.config import build
from pspo.data.batches import DeviceDataset, Transitions
from pspo.data.normalise import Normaliser
from pspo.dynamics.ensemble import Ensemble
from pspo.dynamics.termination import KnownTermination
from pspo.nets.mlp import MLP
from pspo.nets.policies import MixturePolicy
from pspo.training.loop import compile_chunk
from tests.arrays import f32
from tests.dynamics.dynamics_cases import unlimited

OBS, ACT, POOL, COMPONENTS = 2, 1, 3, 2


def made_mlp(rng: np.random.Generator, sizes: list[int], members: tuple[int, ...] = ()) -> MLP:
    """Random weights and biases; a stack where `members` is given."""
    weights = [f32(rng.normal(scale=0.6, size=(*members, a, b))) for a, b in pairwise(sizes)]
    return MLP(weights, [f32(rng.normal(scale=0.3, size=(*members, size))) for size in sizes[1:]], "silu")


def made_policy(seed: int) -> MixturePolicy:
    rng = np.random.default_rng(seed)
    return MixturePolicy(made_mlp(rng, [OBS, 6, COMPONENTS * (1 + 2 * ACT)]), COMPONENTS, ACT)


def made_pool(seed: int = 0) -> Ensemble:
    rng, targets = np.random.default_rng(seed), OBS + 1
    return Ensemble(
        made_mlp(rng, [OBS + ACT, 6, 2 * targets], (POOL,)),
        log_std_low=jnp.full((POOL, targets), -3.0, jnp.float32),
        log_std_high=jnp.full((POOL, targets), 0.0, jnp.float32),
        target_mean=f32(rng.normal(scale=0.2, size=targets)),
        target_std=f32(rng.uniform(0.3, 0.6, size=targets)),
    )


def ends(obs, action, next_obs):
    return next_obs[..., 0] > 1.0


def made_setup(log_prior=(0.0, 0.0, 0.0)) -> Setup:
    norm = Normaliser(
        obs_mean=np.array([0.1, -0.2], np.float32),
        obs_std=np.array([1.0, 1.5], np.float32),
        obs_low=np.full(OBS, -5.0, np.float32),
        obs_high=np.full(OBS, 5.0, np.float32),
        grid_column=np.zeros(0, np.int32),
        grid_points=np.zeros((0, 0), np.float32),
        action_low=np.full(ACT, -2.0, np.float32),
        action_high=np.full(ACT, 3.0, np.float32),
        reward_scale=np.asarray(1.7, np.float32),
    )
    return Setup(
        Arrays(made_pool(), f32(log_prior), made_policy(1), KnownTermination(ends)), norm, unlimited(norm.obs_mean.size)
    )


def constraints(config: Config, multiplier: float) -> Constraints:
    return Constraints(jnp.float32(multiplier), config.kl_limit)


def made_data(count: int = 40) -> DeviceDataset:
    rng = np.random.default_rng(3)
    rows = Transitions(
        obs=f32(rng.normal(size=(count, OBS))),
        action=f32(rng.uniform(-1, 1, size=(count, ACT))),
        reward=f32(rng.normal(size=count)),
        next_obs=f32(rng.normal(size=(count, OBS))),
        terminal=jnp.asarray(rng.random(count) < 0.4),
    )
    return DeviceDataset(
        rows, jnp.arange(count) // 2, f32(rng.normal(size=count)), jnp.asarray(rng.random(count) < 0.8)
    )


def made_config(**changes: Any) -> Config:
    tiny = {
        "gamma": 0.9,
        "alpha": 0.3,
        "active": 2,
        "next_pairs": 1,
        "action_samples": 3,
        "real_batch": 6,
        "synthetic_batch": 5,
        "rollout_horizon": 4,
        "width": 6,
        "depth": 1,
        "steps": 20,
        "chunk": 5,
        "model.pool": POOL,
    }
    return build(Config, tiny, changes)


@jax.jit
def _start(key: jax.Array) -> State:
    return pspo.init(made_config(), made_setup(), made_data(), key)


def start(seed: int = 0) -> State:
    """A fresh state. None of the settings that tests change has a part in it, so that one program serves all."""
    return _start(jax.random.PRNGKey(seed))


def run_chunks(config: Config, count: int) -> tuple[State, list[dict]]:
    """The training loop without what surrounds it."""
    setup, device_data = made_setup(), made_data()
    state, chunk, metrics = start(), compile_chunk(pspo, config, setup), []
    for _ in range(count):
        state, found = chunk(state, setup.arrays, device_data, length=config.chunk)
        metrics.append({name: float(value) for name, value in found.items()})
    return state, metrics


# By hand, in double precision


def member(stack: MLP, m: int) -> MLP:
    return jax.tree.map(lambda leaf: leaf[m], stack)


def mlp_by_hand(net: MLP, x: np.ndarray) -> np.ndarray:
    for layer, (w, b) in enumerate(zip(net.weights, net.biases, strict=True)):
        x = x @ np.asarray(w, np.float64) + np.asarray(b, np.float64)
        if layer < len(net.weights) - 1:
            x = x / (1.0 + np.exp(-x))
    return x


def critics_by_hand(critic: MLP, features: np.ndarray, action: np.ndarray) -> np.ndarray:
    """(critics, ...)"""
    x = np.concatenate([np.broadcast_to(features, (*action.shape[:-1], features.shape[-1])), action], axis=-1)
    return np.stack([mlp_by_hand(member(critic, c), x)[..., 0] for c in range(critic.weights[0].shape[0])])


def log_density_by_hand(policy: MixturePolicy, features: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Of pre-squash actions x (samples, batch, 1) under the policy's mixtures at features (batch, f)."""
    out = mlp_by_hand(policy.net, features)
    logits = out[:, :COMPONENTS]
    weight = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    mean = 3.0 * np.tanh(out[:, COMPONENTS : 2 * COMPONENTS] / 3.0)
    std = np.exp(-2.0 + 3.0 * np.tanh(out[:, 2 * COMPONENTS :] / 3.0))
    density = weight * np.exp(-0.5 * ((x - mean) / std) ** 2) / (std * np.sqrt(2 * np.pi))
    return np.log(density.sum(axis=-1))


def encode_by_hand(norm: Normaliser, obs: Any) -> np.ndarray:
    return (np.asarray(obs, np.float64) - norm.obs_mean) / norm.obs_std


def predict_by_hand(pool: Ensemble, m: int, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of one member in raw units."""
    out = mlp_by_hand(member(pool.net, m), x)
    mean, raw = out[..., : OBS + 1], out[..., OBS + 1 :]
    low, high = np.asarray(pool.log_std_low[m], np.float64), np.asarray(pool.log_std_high[m], np.float64)
    log_std = low + np.log1p(np.exp(high - np.log1p(np.exp(high - raw)) - low))
    scale = np.asarray(pool.target_std, np.float64)
    return mean * scale + np.asarray(pool.target_mean, np.float64), np.exp(log_std) * scale
