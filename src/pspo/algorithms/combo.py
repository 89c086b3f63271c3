"""COMBO (Yu et al. 2021, "COMBO: Conservative Offline Model-Based Policy Optimization").

CQL on a mixture of real and synthetic transitions: Q is pushed down where rollouts in the models go, and up on real
transitions. The models' uncertainty is not used (Eq. 2):

    L_Qj = E_mix (Q_j(s, a) - y)^2 + beta (E_{s~rho} LSE_j(s) - E_{(s, a)~data} Q_j(s, a))
    y    = r + gamma min_j Q'_j(s', a'),    a' ~ pi(.|s')

LSE is CQL's log-sum-exp over 3n sampled actions, each over its own density; rho are the synthetic states of the batch,
or all (`penalised`). Actor and temperature are SAC's, on the whole batch. The authors released no code; OfflineRL-Kit's
is the usual reference. Differences from the public implementations:
- The log-sum-exp runs over all 3n samples of a critic at once (the Kit's over 3, unifloral's over critics as well).
- Its gradient reaches Q at the sampled actions (unifloral stops it, and so only raises Q on real transitions).
- Models are those of PSPO: targets are standardised, and predictions stay inside the dataset's range.
- The squared error has the weight 1, as in the Kit; the paper writes a half, which makes its beta half of ours.
- All losses are taken at the same parameters, in one fused step; networks are initialised as MOPO's.
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
    model_env,
    policies,
    prepare,
    refresh,
    rule,
)
from pspo.algorithms.common.sac import EncodedBatch, soft_step
from pspo.core.config import Bounds
from pspo.core.errors import UserError
from pspo.data.batches import DeviceDataset, Transitions
from pspo.dynamics.buffer import mixed, real_count
from pspo.dynamics.model_env import elite_step
from pspo.nets.actors import TanhGaussian
from pspo.nets.mlp import MLP

__all__ = ["HEADLINE", "Config", "begin_chunk", "draw", "init", "policies", "prepare", "update"]

HEADLINE = ("critic_loss",)


@dataclass(frozen=True)
class Config(SoftConfig, PoolConfig):
    real_ratio: Annotated[float, Bounds(0.0, 1.0)] = 0.5
    """Fraction of a batch that is real; the rest is synthetic, and COMBO needs some of each."""
    conservatism: Annotated[float, Bounds(0.0, 1e6)] = 0.5
    """beta: weight of the conservative gap between synthetic states and real transitions; 0 is SAC on the mixture."""
    samples: Annotated[int, Bounds(1, 1000)] = 10
    """n: actions of each of the three kinds in the log-sum-exp."""
    penalised: Literal["model", "mix"] = "model"
    """rho, the states at which Q is pushed down: the synthetic ones of a batch (the paper), or all (OfflineRL-Kit)."""
    uniform_rollouts: bool = False
    """Take uniformly random actions in rollouts, not the policy's: the paper's choice for some tasks."""

    def __post_init__(self) -> None:
        if not 0 < real_count(self.batch, self.real_ratio) < self.batch:
            raise UserError(
                f"real_ratio={self.real_ratio} leaves a batch of {self.batch} without real or without synthetic "
                "transitions: COMBO needs some of each, 0.5 is usual."
            )


class UniformPolicy(NamedTuple):
    """Uniformly random actions."""

    columns: int

    def unit_action(self, features: Array, key: Array) -> Array:
        return jax.random.uniform(key, (*features.shape[:-1], self.columns), minval=-1.0, maxval=1.0)


def begin_chunk(
    config: Config, setup: Setup, data: DeviceDataset, state: State
) -> tuple[State, None, dict[str, Array]]:
    """Between chunks: rollouts of the present policy, or of random actions, into the buffer."""
    key, roll_key = jax.random.split(state.key)
    actor = UniformPolicy(data.transitions.action.shape[-1]) if config.uniform_rollouts else state.agent.params.actor
    step = partial(elite_step, model_env(setup), setup.arrays.elite, actor)
    buffer, metrics = refresh(config, data, state.buffer, step, roll_key)
    return state._replace(buffer=buffer, key=key), None, metrics


def penalised_slice(config: Config) -> slice:
    """rho, in a batch that begins with its real transitions."""
    return slice(real_count(config.batch, config.real_ratio) if config.penalised == "model" else 0, config.batch)


def sampled_actions(config: Config, actor: TanhGaussian, encoded: EncodedBatch, key: Array) -> tuple[Array, Array]:
    """The 3n actions of the log-sum-exp at each penalised state, with their log densities."""
    rho = penalised_slice(config)
    shape = (config.samples, *encoded.batch.action[rho].shape)
    k_normal, k_uniform = jax.random.split(key)
    uniform = jax.random.uniform(k_uniform, shape, minval=-1.0, maxval=1.0)
    return proposals(
        actor, encoded.features[rho], encoded.next_features[rho], jax.random.normal(k_normal, (2, *shape)), uniform
    )


def gap(config: Config, critic: MLP, features: Array, q: Array, sampled: tuple[Array, Array]) -> Array:
    """(critics,): E_{s~rho} LSE_j(s) - E_{(s, a)~data} Q_j(s, a) (Eq. 2); q (critics, batch) is Q on the batch."""
    low = pushed_down(critic, features[penalised_slice(config)], sampled).mean(-1)
    return low - q[:, : real_count(config.batch, config.real_ratio)].mean(-1)


def update(
    config: Config, setup: Setup, context: None, state: State, batch: Transitions, key: Array
) -> tuple[State, dict[str, Array]]:
    """One fused step of critics, actor and temperature."""
    mix_key, sample_key, step_key = jax.random.split(key, 3)
    batch = mixed(state.buffer, batch, config.real_ratio, mix_key)
    encoded = EncodedBatch(batch, setup.norm.encode(batch.obs), setup.norm.encode(batch.next_obs))
    actor, target_critic = state.agent.params.actor, state.agent.target_critic
    sampled = sampled_actions(config, actor, encoded, sample_key)

    def target(noise: Array) -> Array:
        return sampled_target(actor, target_critic, encoded.next_features, batch, noise, config.gamma)

    def penalty(critic: MLP, q: Array) -> tuple[Array, dict[str, Array]]:
        gaps = gap(config, critic, encoded.features, q, sampled)
        return config.conservatism * gaps.sum(), {"conservative_gap": gaps.mean()}

    agent, metrics = soft_step(rule(config, batch.action.shape[-1]), state.agent, encoded, step_key, target, penalty)
    return state._replace(agent=agent, step=state.step + 1), metrics
