"""1R2R (Rigter et al. 2023, "One Risk to Rule Them All: A Risk-Sensitive Perspective on Model-Based Offline RL").

SAC on rollouts that are biased towards bad outcomes. At every step of a rollout m successors are drawn, each from its
own random elite,

    q_i = r_i + gamma min_j Q_j(s'_i, a'_i),    a'_i ~ pi(.|s'_i),

and the rollout continues with one of them, drawn by its rank among the q_i (1 the lowest):

    CVaR_alpha   uniformly among the ceil(alpha m) lowest
    Wang_eta     with the probability Phi(Phi^-1(i / m) + eta) - Phi(Phi^-1((i - 1) / m) + eta)

These are the worst-case weights of a dynamic risk measure on m samples, so the policy learns to avoid both chance and
lack of data: models disagree where the dataset has no transitions. Rewards are as predicted, real transitions as they
are, and the models stay as fitted. The actor starts from behaviour cloning. Differences from the authors' code:
- Every state gets one successor. Their CVaR branch draws from all states' lowest candidates together, so that a state
  may have none or several; the paper, and their branch for Wang, have one.
- Behaviour cloning moves actions at the bounds just inside; theirs skips every batch that has one.
- States are standardised for policy and critics; the models have the units of all our models, and predictions stay
  inside the dataset's range.
- `risk=neutral` draws one successor: plain rollouts, the same as choosing uniformly among m.
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
    draw,
    fit_bc,
    fresh_buffer,
    fresh_params,
    model_env,
    optimiser,
    policies,
    prepare,
    refresh,
    update,
)
from pspo.algorithms.common.sac import Params, fresh_agent
from pspo.core.config import Bounds
from pspo.data.batches import DeviceDataset, Transitions
from pspo.dynamics.model_env import ModelEnv, Outcome, outcome_noise, random_member
from pspo.dynamics.selectors import choose_by_rank, cvar_weights, wang_weights

__all__ = ["HEADLINE", "Config", "begin_chunk", "draw", "init", "policies", "prepare", "update"]

HEADLINE = ("critic_loss",)


@dataclass(frozen=True)
class Config(SoftConfig, PoolConfig):
    real_ratio: Annotated[float, Bounds(0.0, 1.0)] = 0.5
    """Fraction of a batch that is real; the rest is synthetic."""
    risk: Literal["neutral", "cvar", "wang"] = "cvar"
    """Risk measure by which a successor is chosen: the paper's two, or neutral, which is plain rollouts."""
    cvar_alpha: Annotated[float, Bounds(0.0, 1.0)] = 0.9
    """Level of CVaR: fraction of the candidates, the lowest, that may be chosen; 1 is all."""
    wang_eta: Annotated[float, Bounds(-10.0, 10.0)] = 0.1
    """Parameter of Wang's measure: above 0 is risk-averse, below 0 risk-seeking."""
    candidates: Annotated[int, Bounds(1, 1000)] = 10
    """m: successors drawn at each step of a rollout."""
    cloning_steps: Annotated[int, Bounds(0, 1_000_000_000)] = 20_000
    """Steps of behaviour cloning at the start."""
    cloning_lr: Annotated[float, Bounds(0.0, 1.0)] = 1e-4
    """Learning rate of behaviour cloning."""


def init(config: Config, setup: Setup, data: DeviceDataset, key: Array) -> State:
    """New networks, with an actor from behaviour cloning."""
    key, net_key, bc_key = jax.random.split(key, 3)
    params = fresh_params(config, setup.norm, data.transitions.action.shape[-1], net_key)
    actor = fit_bc(
        actor=params.actor,
        norm=setup.norm,
        data=data,
        steps=config.cloning_steps,
        batch=config.batch,
        lr=config.cloning_lr,
        key=bc_key,
    )
    params = params._replace(actor=actor)
    return State(fresh_agent(params, optimiser(config)), fresh_buffer(config, data), key, jnp.int32(0))


def rank_weights(config: Config) -> np.ndarray:
    """Probabilities of the candidates by rank, the lowest first; as many as are drawn."""
    match config.risk:
        case "cvar":
            return cvar_weights(config.candidates, config.cvar_alpha)
        case "wang":
            return wang_weights(config.candidates, config.wang_eta)
        case _:
            return np.ones(1)


def draw_outcomes(env: ModelEnv, elite: Array, obs: Array, action: Array, count: int, key: Array) -> Outcome:
    """Possible successors of each (s, a), (candidates, batch, ...), each from its own member and noise."""
    k_member, k_noise = jax.random.split(key)
    member = random_member(k_member, elite, (count, obs.shape[0]))
    return env.draw(obs, action, env.predict(obs, action), member, outcome_noise(k_noise, obs, count))


def outcome_values(env: ModelEnv, params: Params, outcomes: Outcome, gamma: float, key: Array) -> Array:
    """q_i (candidates, batch): by the online critics, at a sampled action, without entropy."""
    features = env.norm.encode(outcomes.next_obs)
    next_value = q_values(params.critic, features, params.actor.unit_action(features, key)).min(0)
    return bellman_target(outcomes.reward, outcomes.terminal, next_value, gamma)


def risky_step(
    config: Config, env: ModelEnv, elite: Array, params: Params, obs: Array, key: Array
) -> tuple[Array, Transitions]:
    """One step of rollouts: the policy's action, and the outcome that the risk measure chooses."""
    k_action, k_outcome, k_value, k_choice = jax.random.split(key, 4)
    action = params.actor.unit_action(env.norm.encode(obs), k_action)
    weights = rank_weights(config)
    outcomes = draw_outcomes(env, elite, obs, action, len(weights), k_outcome)
    chosen = choose_by_rank(k_choice, outcome_values(env, params, outcomes, config.gamma, k_value), weights)
    next_obs, reward, terminal = (part[chosen, jnp.arange(obs.shape[0])] for part in outcomes)
    return next_obs, Transitions(obs, action, reward, next_obs, terminal)


def begin_chunk(
    config: Config, setup: Setup, data: DeviceDataset, state: State
) -> tuple[State, None, dict[str, Array]]:
    """Between chunks: rollouts of the present policy into the buffer."""
    key, roll_key = jax.random.split(state.key)
    step = partial(risky_step, config, model_env(setup), setup.arrays.elite, state.agent.params)
    buffer, metrics = refresh(config, data, state.buffer, step, roll_key)
    return state._replace(buffer=buffer, key=key), None, metrics
