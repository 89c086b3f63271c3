"""MOPO (Yu et al. 2020, "MOPO: Model-based Offline Policy Optimization").

SAC on short rollouts in an ensemble, with rewards that are lowered by the models' uncertainty (Eq. 7):

    r~(s, a) = r^ - lambda u(s, a),     u = max_e |sigma_e(s, a)|

where sigma_e is the standard deviation of next state and reward that a member predicts, in raw units. u takes all
members, rollouts the elites. Real transitions keep their rewards. Differences from the authors' code:
- Models are those of PSPO: targets are standardised, and predictions stay inside the dataset's range.
- `uncertainty=disagreement` is the other measure of the authors' code: the largest distance of a member's mean next
  state to the mean of all.
- For discrete actions the learner is SAC for discrete actions, with exact sums over them (common/sac.py).
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
    model_env,
    policies,
    prepare,
    refresh,
    update,
)
from pspo.algorithms.common.sac import Actor
from pspo.core.config import Bounds
from pspo.data.batches import DeviceDataset, Transitions
from pspo.dynamics.model_env import ModelEnv, outcome_noise, random_member
from pspo.dynamics.uncertainty import largest_deviation, largest_std

__all__ = ["HEADLINE", "Config", "begin_chunk", "draw", "init", "policies", "prepare", "update"]

HEADLINE = ("critic_loss",)


@dataclass(frozen=True)
class Config(SoftConfig, PoolConfig):
    penalty: Annotated[float, Bounds(0.0, 1e6)] = 1.0
    """lambda: weight of the models' uncertainty in a synthetic reward, both in raw units."""
    uncertainty: Literal["std", "disagreement"] = "std"
    """u(s, a): the largest standard deviation that a member predicts (Eq. 7), or the largest distance of a member to
    the mean of all, the alternative in the authors' code."""


def penalised_step(
    config: Config, env: ModelEnv, elite: Array, actor: Actor, obs: Array, key: Array
) -> tuple[Array, Transitions]:
    """One step of rollouts: the policy's action, a random elite's outcome, the reward of Eq. 7."""
    k_action, k_member, k_noise = jax.random.split(key, 3)
    action = actor.unit_action(env.norm.encode(obs), k_action)
    prediction = env.predict(obs, action)
    member = random_member(k_member, elite, obs.shape[:1])
    outcome = env.draw(obs, action, prediction, member, outcome_noise(k_noise, obs))
    measure = largest_std if config.uncertainty == "std" else largest_deviation
    uncertainty = measure(prediction, env.model_norm.reward_scale) / env.norm.reward_scale
    reward = outcome.reward - config.penalty * uncertainty
    return outcome.next_obs, Transitions(obs, action, reward, outcome.next_obs, outcome.terminal)


def begin_chunk(
    config: Config, setup: Setup, data: DeviceDataset, state: State
) -> tuple[State, None, dict[str, Array]]:
    """Between chunks: rollouts of the present policy into the buffer."""
    key, roll_key = jax.random.split(state.key)
    step = partial(penalised_step, config, model_env(setup), setup.arrays.elite, state.agent.params.actor)
    buffer, metrics = refresh(config, data, state.buffer, step, roll_key)
    return state._replace(buffer=buffer, key=key), None, metrics
