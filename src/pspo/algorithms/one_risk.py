"""1R2R (Rigter et al. 2023, "One Risk to Rule Them All: A Risk-Sensitive Perspective on Model-Based Offline RL").

SAC on rollouts that go badly on purpose. At every imagined step m successors are drawn, each from its own random elite,

    q_i = r_i + gamma min_j Q_j(s'_i, a'_i),    a'_i ~ pi(.|s'_i),

and the rollout goes on with one of them, drawn by its rank among the q_i (1 the lowest):

    CVaR_alpha   evenly among the ceil(alpha m) lowest
    Wang_eta     with the odds Phi(Phi^-1(i / m) + eta) - Phi(Phi^-1((i - 1) / m) + eta)

These are the worst-case weights of a dynamic risk measure on m samples, so the policy learns to avoid chance and
ignorance alike: models disagree where the log has not been. Rewards are as predicted, logged rows as logged, and the
models stay as fitted. The actor begins as a clone of the log. Ours and the authors' code differ:
- Every state gets one successor. Their CVaR branch draws from all states' lowest candidates together, so that a state
  may have none or several; the paper, and their branch for Wang, have one.
- Cloning takes all rows, with actions at the bounds moved just inside; theirs leaves out a batch that has one such.
- States are standardised for policy and critics; the models have the units of all our models, and predictions stay
  inside the log's range.
- `risk=neutral` draws one successor: plain rollouts, as m of them chosen evenly would be.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from pspo.algorithms.common.losses import bellman_target, q_values
from pspo.algorithms.common.model_based import (
    PoolConfig,
    Setup,
    SoftConfig,
    State,
    cloned,
    draw,
    fresh_buffer,
    fresh_learned,
    optimiser,
    policies,
    prepare,
    refresh,
    update,
    world,
)
from pspo.algorithms.common.sac import Params, fresh_agent
from pspo.core.config import Bounds
from pspo.data.batches import DeviceDataset, Transitions
from pspo.dynamics.model_env import ModelEnv, Outcome, random_member, target_noise
from pspo.dynamics.selectors import choose_by_rank, cvar_weights, wang_weights

__all__ = ["HEADLINE", "Config", "begin_chunk", "draw", "init", "policies", "prepare", "update"]

HEADLINE = ("critic_loss",)


@dataclass(frozen=True)
class Config(SoftConfig, PoolConfig):
    real_ratio: Annotated[float, Bounds(0.0, 1.0)] = 0.5
    """Share of a batch that is logged; the rest is imagined."""
    risk: Literal["neutral", "cvar", "wang"] = "cvar"
    """Measure of risk by which a successor is chosen; neutral does not choose."""
    cvar_alpha: Annotated[float, Bounds(0.0, 1.0)] = 0.9
    """Level of CVaR: share of the candidates, the lowest, that may be chosen; 1 is all."""
    wang_eta: Annotated[float, Bounds(-10.0, 10.0)] = 0.1
    """Parameter of Wang's measure: above 0 fears the lowest, below 0 hopes for the highest."""
    candidates: Annotated[int, Bounds(1, 1000)] = 10
    """m: successors drawn at each imagined step."""
    cloning_steps: Annotated[int, Bounds(0, 1_000_000_000)] = 20_000
    """Steps of maximum likelihood by which the actor becomes a clone of the log before anything else."""
    cloning_lr: Annotated[float, Bounds(0.0, 1.0)] = 1e-4
    """Learning rate of the clone."""


def init(config: Config, setup: Setup, data: DeviceDataset, key: Array) -> State:
    """Fresh networks, but an actor that imitates the log."""
    key, net_key, clone_key = jax.random.split(key, 3)
    params = fresh_learned(config, setup.norm, data.transitions.action.shape[-1], net_key)
    rate, steps = config.cloning_lr, config.cloning_steps
    params = params._replace(actor=cloned(params.actor, setup.norm, data, steps, config.batch, rate, clone_key))
    return State(fresh_agent(params, optimiser(config)), fresh_buffer(config, data), key, jnp.int32(0))


def rank_weights(config: Config) -> np.ndarray:
    """Odds of the candidates by rank, the lowest first; as many as are drawn."""
    match config.risk:
        case "cvar":
            return cvar_weights(config.candidates, config.cvar_alpha)
        case "wang":
            return wang_weights(config.candidates, config.wang_eta)
        case _:
            return np.ones(1)


def draw_outcomes(place: ModelEnv, elite: Array, obs: Array, action: Array, count: int, key: Array) -> Outcome:
    """What may follow each (s, a), (candidates, batch, ...): every time by a member and with noise of its own."""
    k_member, k_noise = jax.random.split(key)
    member = random_member(k_member, elite, (count, obs.shape[0]))
    return place.draw(obs, action, place.predict(obs, action), member, target_noise(k_noise, obs, count))


def outcome_values(place: ModelEnv, params: Params, outcomes: Outcome, gamma: float, key: Array) -> Array:
    """q_i (candidates, batch): by the online critics, at a sampled action, without entropy."""
    features = place.norm.encode(outcomes.next_obs)
    next_value = q_values(params.critic, features, params.actor.unit_action(features, key)).min(0)
    return bellman_target(outcomes.reward, outcomes.terminal, next_value, gamma)


def risky_step(
    config: Config, place: ModelEnv, elite: Array, params: Params, obs: Array, key: Array
) -> tuple[Array, Transitions]:
    """One step of rollouts: the policy's action, and of its possible outcomes the one that risk chooses."""
    k_action, k_outcome, k_value, k_choice = jax.random.split(key, 4)
    action = params.actor.unit_action(place.norm.encode(obs), k_action)
    weights = rank_weights(config)
    outcomes = draw_outcomes(place, elite, obs, action, len(weights), k_outcome)
    chosen = choose_by_rank(k_choice, outcome_values(place, params, outcomes, config.gamma, k_value), weights)
    next_obs, reward, terminal = (part[chosen, jnp.arange(obs.shape[0])] for part in outcomes)
    return next_obs, Transitions(obs, action, reward, next_obs, terminal)


def begin_chunk(
    config: Config, setup: Setup, data: DeviceDataset, state: State
) -> tuple[State, None, dict[str, Array]]:
    """Between chunks: rollouts of the present policy into the buffer."""
    key, roll_key = jax.random.split(state.key)
    step = partial(risky_step, config, world(setup), setup.arrays.elite, state.agent.params)
    buffer, metrics = refresh(config, data, state.buffer, step, roll_key)
    return state._replace(buffer=buffer, key=key), None, metrics
