"""Which learning rate moves which part: temperature apart from the actor, and cloning apart from what follows it."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from pspo.algorithms import mopo
from pspo.algorithms.common import model_based
from pspo.algorithms.cql import algorithm as cql
from pspo.algorithms.epq import algorithm as epq
from pspo.core.config import build


def step_sizes(optimiser: Any, params: Any, steps: int) -> list[Any]:
    """How far each part moves in each step along a constant gradient: with Adam, by its learning rate."""
    state, sizes = optimiser.init(params), []
    for _ in range(steps):
        changes, state = optimiser.update(type(params)(*(jnp.ones(1) for _ in params)), state, params)
        sizes.append(type(params)(*(-float(change[0]) for change in changes)))
    return sizes


SAC = model_based.Params(*(jnp.zeros(1) for _ in model_based.Params._fields))
CQL = cql.Params(*(jnp.zeros(1) for _ in cql.Params._fields))
EPQ = epq.Params(*(jnp.zeros(1) for _ in epq.Params._fields))


@pytest.mark.parametrize(
    ("module", "optimiser", "params"),
    [(mopo, model_based.optimiser, SAC), (cql, cql.optimiser, CQL), (epq, epq.optimiser, EPQ)],
    ids=["mopo", "cql", "epq"],
)
def test_temperature_has_its_own_rate_or_the_actors(module: Any, optimiser: Any, params: Any) -> None:
    rates = {"actor_lr": 1e-4, "critic_lr": 1e-3}
    own, shared = (
        step_sizes(optimiser(build(module.Config, rates, more)), params, 1)[0] for more in ({"alpha_lr": 0.02}, {})
    )
    np.testing.assert_allclose((own.actor, own.critic, own.log_alpha), (1e-4, 1e-3, 0.02), rtol=1e-4)
    np.testing.assert_allclose((shared.actor, shared.critic, shared.log_alpha), (1e-4, 1e-3, 1e-4), rtol=1e-4)


def test_epq_has_its_own_learning_rate_for_bc() -> None:
    rates = {"actor_lr": 1e-4, "critic_lr": 3e-4, "cloning_steps": 3}
    apart = step_sizes(epq.optimiser(build(epq.Config, rates, {"cloning_lr": 1e-3})), EPQ, 5)
    as_before = step_sizes(epq.optimiser(build(epq.Config, rates)), EPQ, 5)
    np.testing.assert_allclose([size.actor for size in apart], [1e-3, 1e-3, 1e-3, 1e-4, 1e-4], rtol=1e-4)
    np.testing.assert_allclose([size.critic for size in apart], 5 * [3e-4], rtol=1e-4)
    np.testing.assert_allclose([size.actor for size in as_before], 5 * [1e-4], rtol=1e-4)
