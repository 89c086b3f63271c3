"""COMBO (Yu et al. 2021, "COMBO: Conservative Offline Model-Based Policy Optimization").

CQL on a mixture of logged and imagined rows: Q is pushed down where rollouts in the models go, and up on logged rows.
Nobody asks the models how sure they are (Eq. 2):

    L_Qj = E_mix (Q_j(s, a) - y)^2 + beta (E_{s~rho} LSE_j(s) - E_{(s, a)~log} Q_j(s, a))
    y    = r + gamma min_j Q'_j(s', a'),    a' ~ pi(.|s')

LSE is CQL's log-sum-exp over 3n sampled actions, each over its own density; rho are the imagined rows of the batch, or
all (`penalised`). Actor and temperature are SAC's, on the whole batch. The authors released no code; OfflineRL-Kit's
is the usual reference, and ours differs from the public ones:
- The log-sum-exp runs over all 3n samples of a critic at once (the Kit's over 3, unifloral's over critics as well).
- Its gradient reaches Q at the sampled actions (unifloral stops it, and so only raises Q on the log).
- Models are those of PSPO: targets are standardised, and predictions stay inside the log's range.
- The squared error has the weight 1, as in the Kit; the paper writes a half, which makes its beta half of ours.
- All losses are taken at the same parameters, in one fused step; networks begin as MOPO's.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal, NamedTuple

import jax
from jax import Array

from pspo.algorithms.common.losses import proposals, pushed_down, sampled_target
from pspo.algorithms.common.model_based import (
    PoolConfig,
    Setup,
    SoftConfig,
    State,
    draw,
    init,
    policies,
    prepare,
    refresh,
    rule,
    world,
)
from pspo.algorithms.common.sac import EncodedBatch, soft_step
from pspo.core.config import Bounds
from pspo.core.errors import UserError
from pspo.data.batches import DeviceDataset, Transitions
from pspo.dynamics.buffer import mixed, real_rows
from pspo.dynamics.model_env import elite_step
from pspo.nets.actors import TanhGaussian
from pspo.nets.mlp import MLP

__all__ = ["HEADLINE", "Config", "begin_chunk", "draw", "init", "policies", "prepare", "update"]

HEADLINE = ("critic_loss",)


@dataclass(frozen=True)
class Config(SoftConfig, PoolConfig):
    real_ratio: Annotated[float, Bounds(0.0, 1.0)] = 0.5
    """Share of a batch that is logged; the rest is imagined, and COMBO needs some of each."""
    conservatism: Annotated[float, Bounds(0.0, 1e6)] = 0.5
    """beta: weight of the conservative gap between imagined states and logged rows; 0 is SAC on the mixture."""
    samples: Annotated[int, Bounds(1, 1000)] = 10
    """n: actions of each of the three kinds in the log-sum-exp."""
    penalised: Literal["model", "mix"] = "model"
    """rho, the states at which Q is pushed down: the imagined ones of a batch, or all."""
    uniform_rollouts: bool = False
    """Act at random in rollouts, not by the policy."""

    def __post_init__(self) -> None:
        if not 0 < real_rows(self.batch, self.real_ratio) < self.batch:
            raise UserError(
                f"real_ratio={self.real_ratio} leaves a batch of {self.batch} without logged or without imagined rows: "
                "COMBO needs some of each, 0.5 is usual."
            )


class Anyone(NamedTuple):
    """Acts evenly at random."""

    columns: int

    def unit_action(self, features: Array, key: Array) -> Array:
        return jax.random.uniform(key, (*features.shape[:-1], self.columns), minval=-1.0, maxval=1.0)


def begin_chunk(
    config: Config, setup: Setup, data: DeviceDataset, state: State
) -> tuple[State, None, dict[str, Array]]:
    """Between chunks: rollouts of the present policy, or of anyone, into the buffer."""
    key, roll_key = jax.random.split(state.key)
    actor = Anyone(data.transitions.action.shape[-1]) if config.uniform_rollouts else state.agent.params.actor
    step = partial(elite_step, world(setup), setup.arrays.elite, actor)
    buffer, metrics = refresh(config, data, state.buffer, step, roll_key)
    return state._replace(buffer=buffer, key=key), None, metrics


def penalised_rows(config: Config) -> slice:
    """rho, of a batch that begins with its logged rows."""
    return slice(real_rows(config.batch, config.real_ratio) if config.penalised == "model" else 0, config.batch)


def sampled_actions(config: Config, actor: TanhGaussian, seen: EncodedBatch, key: Array) -> tuple[Array, Array]:
    """The 3n actions of the log-sum-exp at each penalised state, with their log densities."""
    rho = penalised_rows(config)
    shape = (config.samples, *seen.rows.action[rho].shape)
    k_normal, k_uniform = jax.random.split(key)
    uniform = jax.random.uniform(k_uniform, shape, minval=-1.0, maxval=1.0)
    return proposals(
        actor, seen.features[rho], seen.next_features[rho], jax.random.normal(k_normal, (2, *shape)), uniform
    )


def gap(config: Config, critic: MLP, features: Array, q: Array, sampled: tuple[Array, Array]) -> Array:
    """(critics,): E_{s~rho} LSE_j(s) - E_{(s, a)~log} Q_j(s, a) (Eq. 2); q (critics, batch) is that of the rows."""
    low = pushed_down(critic, features[penalised_rows(config)], sampled).mean(-1)
    return low - q[:, : real_rows(config.batch, config.real_ratio)].mean(-1)


def update(
    config: Config, setup: Setup, context: None, state: State, rows: Transitions, key: Array
) -> tuple[State, dict[str, Array]]:
    """One fused step of critics, actor and temperature."""
    mix_key, sample_key, step_key = jax.random.split(key, 3)
    rows = mixed(state.buffer, rows, config.real_ratio, mix_key)
    seen = EncodedBatch(rows, setup.norm.encode(rows.obs), setup.norm.encode(rows.next_obs))
    actor, target_critic = state.agent.params.actor, state.agent.target_critic
    sampled = sampled_actions(config, actor, seen, sample_key)

    def target(noise: Array) -> Array:
        return sampled_target(actor, target_critic, seen.next_features, rows, noise, config.gamma)

    def penalty(critic: MLP, q: Array) -> tuple[Array, dict[str, Array]]:
        gaps = gap(config, critic, seen.features, q, sampled)
        return config.conservatism * gaps.sum(), {"conservative_gap": gaps.mean()}

    agent, metrics = soft_step(rule(config, rows.action.shape[-1]), state.agent, seen, step_key, target, penalty)
    return state._replace(agent=agent, step=state.step + 1), metrics
