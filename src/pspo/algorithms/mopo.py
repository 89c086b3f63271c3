"""MOPO (Yu et al. 2020, "MOPO: Model-based Offline Policy Optimization").

SAC on short rollouts in an ensemble, whose rewards are lowered by how uncertain the models say they are (Eq. 7):

    r~(s, a) = r^ - lambda u(s, a),     u = max_e |sigma_e(s, a)|

sigma_e being a member's predicted standard deviation of next state and reward, in raw units; all members are asked,
rollouts go through the elite. Logged rows keep their rewards. Ours and the authors' code differ:
- Models are those of PSPO: targets are standardised, and predictions stay inside the log's range.
- `uncertainty=disagreement` is the other measure that the code has: the largest distance of a member's mean next
  state to the mean of all.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal

import jax
from jax import Array

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
    update,
    world,
)
from pspo.core.config import Bounds
from pspo.data.batches import DeviceDataset, Transitions
from pspo.dynamics.model_env import ModelEnv, random_member, target_noise
from pspo.dynamics.uncertainty import largest_deviation, largest_std
from pspo.nets.actors import TanhGaussian

__all__ = ["HEADLINE", "Config", "begin_chunk", "draw", "init", "policies", "prepare", "update"]

HEADLINE = ("critic_loss",)


@dataclass(frozen=True)
class Config(SoftConfig, PoolConfig):
    penalty: Annotated[float, Bounds(0.0, 1e6)] = 1.0
    """lambda: weight of the models' uncertainty in an imagined reward, both in raw units."""
    uncertainty: Literal["std", "disagreement"] = "std"
    """u(s, a): the largest standard deviation that a member predicts, or the largest distance to their mean."""


def penalised_step(
    config: Config, place: ModelEnv, elite: Array, actor: TanhGaussian, obs: Array, key: Array
) -> tuple[Array, Transitions]:
    """One step of rollouts: the policy's action, a random elite's outcome, the reward of Eq. 7."""
    k_action, k_member, k_noise = jax.random.split(key, 3)
    action = actor.unit_action(place.norm.encode(obs), k_action)
    prediction = place.predict(obs, action)
    member = random_member(k_member, elite, obs.shape[:1])
    then = place.draw(obs, action, prediction, member, target_noise(k_noise, obs))
    measure = largest_std if config.uncertainty == "std" else largest_deviation
    doubt = measure(prediction, place.model_norm.reward_scale) / place.norm.reward_scale
    reward = then.reward - config.penalty * doubt
    return then.next_obs, Transitions(obs, action, reward, then.next_obs, then.terminal)


def begin_chunk(
    config: Config, setup: Setup, data: DeviceDataset, state: State
) -> tuple[State, None, dict[str, Array]]:
    """Between chunks: rollouts of the present policy into the buffer."""
    key, roll_key = jax.random.split(state.key)
    step = partial(penalised_step, config, world(setup), setup.arrays.elite, state.agent.params.actor)
    buffer, metrics = refresh(config, data, state.buffer, step, roll_key)
    return state._replace(buffer=buffer, key=key), None, metrics
