"""Small policies of every kind, their networks and their exports."""

from __future__ import annotations

from functools import cache
from typing import Any

import jax
import numpy as np

from pspo.data.normalise import Normaliser, fit_normaliser
from pspo.nets.actors import ClippedGaussian, Deterministic, LinearGaussian, Perturbed, TanhGaussian, act
from pspo.nets.mlp import MLP
from pspo.nets.policies import MixturePolicy
from pspo.policies.onnx.export import input_contract
from pspo.policies.onnx.graph import model_bytes
from pspo.policies.onnx.runtime import OnnxPolicy
from pspo.policies.policy import Policy, from_network
from tests.algorithms.baseline_cases import made_mlp
from tests.arrays import f32
from tests.core.core_cases import HIGH, LOW, small_dataset

METADATA = {"algo": "pspo", "dataset": "made up", "task": None, "seed": 3, "preset": "smoke", "step": 10}
WIDTH = HIGH - LOW


def two_grids() -> Normaliser:
    """Three columns: a number, a counter of five and a flag, so that the flag's grid is padded."""
    rows = np.arange(400)
    price = np.random.default_rng(0).normal(3.0, 2.0, size=400)
    obs = np.stack([price, rows % 5, (rows % 3 == 0) * 7.0], axis=1).astype(np.float32)
    return fit_normaliser(small_dataset(400, obs=obs, next_obs=np.roll(obs, -1, axis=0)))


NORM = two_grids()
OBS, ACT, HIDDEN = 3, 2, 6


def net(inputs: int, outputs: int, seed: int, activation: str = "relu", layers: int = 1) -> MLP:
    return made_mlp(np.random.default_rng(seed), [inputs, *[HIDDEN] * layers, outputs], activation=activation)


def made_network(kind: str) -> Any:
    features, latent = NORM.features, 3
    if kind == "mixture":
        return MixturePolicy(net(features, 3 * (1 + 2 * ACT), 0, "silu", 2), 3, ACT)
    if kind == "one component":
        return MixturePolicy(net(features, 1 + 2 * ACT, 1, "silu"), 1, ACT)
    if kind == "tanh-gaussian":
        return TanhGaussian(net(features, 2 * ACT, 2))
    if kind == "clipped-gaussian":
        return ClippedGaussian(net(features, ACT, 3), f32([-0.7, 0.1]))
    if kind == "linear-gaussian":
        return LinearGaussian(net(features, ACT, 4, "tanh"), f32([-0.7, 0.1]))
    if kind == "deterministic":
        return Deterministic(net(features, ACT, 5, "relu", 3))
    if kind == "one layer":
        return Deterministic(net(features, ACT, 6, layers=0))
    return Perturbed(net(features + latent, ACT, 7), net(features + ACT, ACT, 8), latent_dim=latent, reach=0.25)


CASES = (
    *("mixture", "one component", "tanh-gaussian", "clipped-gaussian"),
    *("linear-gaussian", "deterministic", "one layer", "perturbed"),
)


@cache
def made_policy(case: str) -> Policy:
    return from_network(made_network(case), NORM, METADATA)


@cache
def exported(case: str) -> OnnxPolicy:
    return in_memory(made_policy(case))


def in_memory(policy: Policy) -> OnnxPolicy:
    """Exported without the check."""
    model = model_bytes(policy)
    return OnnxPolicy(model, input_contract(policy, model))


@jax.jit
def by_jax(network: Any, obs: Any) -> Any:
    return act(network, NORM, obs)
