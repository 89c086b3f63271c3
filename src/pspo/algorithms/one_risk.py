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

from pspo.algorithms.model_based import (
    Parts,
    PoolConfig,
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
from pspo.config import Bounds
from pspo.data.batches import Log, Rows
from pspo.dynamics.imagination import Outcome, World, random_member, target_noise
from pspo.dynamics.selectors import choose_by_rank, cvar_weights, wang_weights
from pspo.losses import bellman_target, q_values
from pspo.soft_actor_critic import Learned, fresh_agent

__all__ = ["Config", "draw", "imagine", "init", "policies", "prepare", "update"]


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
    cloning_rate: Annotated[float, Bounds(0.0, 1.0)] = 1e-4
    """Learning rate of the clone."""


def init(config: Config, parts: Parts, log: Log, key: Array) -> State:
    """Fresh networks, but an actor that imitates the log."""
    key, net_key, clone_key = jax.random.split(key, 3)
    learned = fresh_learned(config, parts.norm, log.rows.action.shape[-1], net_key)
    rate, steps = config.cloning_rate, config.cloning_steps
    learned = learned._replace(actor=cloned(learned.actor, parts.norm, log, steps, config.batch, rate, clone_key))
    return State(fresh_agent(learned, optimiser(config)), fresh_buffer(config, log), key, jnp.int32(0))


def rank_weights(config: Config) -> np.ndarray:
    """Odds of the candidates by rank, the lowest first; as many as are drawn."""
    match config.risk:
        case "cvar":
            return cvar_weights(config.candidates, config.cvar_alpha)
        case "wang":
            return wang_weights(config.candidates, config.wang_eta)
        case _:
            return np.ones(1)


def draw_outcomes(place: World, elite: Array, obs: Array, action: Array, count: int, key: Array) -> Outcome:
    """What may follow each (s, a), (candidates, batch, ...): every time by a member and with noise of its own."""
    k_member, k_noise = jax.random.split(key)
    member = random_member(k_member, elite, (count, obs.shape[0]))
    return place.draw(obs, action, place.predict(obs, action), member, target_noise(k_noise, obs, count))


def outcome_values(place: World, learned: Learned, outcomes: Outcome, gamma: float, key: Array) -> Array:
    """q_i (candidates, batch): by the online critics, at a sampled action, without entropy."""
    features = place.norm.encode(outcomes.next_obs)
    next_value = q_values(learned.critic, features, learned.actor.unit_action(features, key)).min(0)
    return bellman_target(outcomes.reward, outcomes.terminal, next_value, gamma)


def risky_step(
    config: Config, place: World, elite: Array, learned: Learned, obs: Array, key: Array
) -> tuple[Array, Rows]:
    """One step of rollouts: the policy's action, and of its possible outcomes the one that risk chooses."""
    k_action, k_outcome, k_value, k_choice = jax.random.split(key, 4)
    action = learned.actor.unit_action(place.norm.encode(obs), k_action)
    weights = rank_weights(config)
    outcomes = draw_outcomes(place, elite, obs, action, len(weights), k_outcome)
    chosen = choose_by_rank(k_choice, outcome_values(place, learned, outcomes, config.gamma, k_value), weights)
    next_obs, reward, terminal = (part[chosen, jnp.arange(obs.shape[0])] for part in outcomes)
    return next_obs, Rows(obs, action, reward, next_obs, terminal)


def imagine(config: Config, parts: Parts, log: Log, state: State) -> tuple[State, dict[str, Array]]:
    """Between chunks: rollouts of the present policy into the buffer."""
    key, roll_key = jax.random.split(state.key)
    step = partial(risky_step, config, world(parts), parts.arrays.elite, state.agent.learned)
    buffer, facts = refresh(config, log, state.buffer, step, roll_key)
    return state._replace(buffer=buffer, key=key), facts
