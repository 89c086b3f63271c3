"""Rollouts of several steps in learned models: from logged states, one row per step, none past an end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax import Array

from pspo.data.batches import Transitions
from pspo.data.normalise import Normaliser
from pspo.dynamics.ensemble import Ensemble, Prediction, model_inputs
from pspo.dynamics.prediction_range import PredictionRange
from pspo.dynamics.termination import Termination

BLOCK = 5000  # rollouts that go side by side: memory is theirs, whatever the number of all

C = TypeVar("C")


class Outcome(NamedTuple):
    next_obs: Array
    reward: Array  # in the critics' unit
    terminal: Array


class ModelEnv(NamedTuple):
    """Models, their units, and those of who learns from them."""

    models: Ensemble
    terminated: Termination
    model_norm: Normaliser  # what the models see, and the unit of the rewards they predict
    norm: Normaliser  # what policy and critics see, and their unit of rewards
    range: PredictionRange  # what the models may predict

    def predict(self, obs: Array, action: Array) -> Prediction:
        return self.models.predict(model_inputs(self.model_norm, obs, action))

    def draw(self, obs: Array, action: Array, prediction: Prediction, member: Array, noise: Array) -> Outcome:
        """What follows, each from its own member; member (..., batch), noise (..., batch, targets)."""
        row = jnp.arange(obs.shape[0])
        return self.outcome(obs, action, prediction.mean[member, row] + prediction.std[member, row] * noise)

    def outcome(self, obs: Array, action: Array, target: Array) -> Outcome:
        """What follows, from the models' (observation change, reward) in raw units."""
        return self.arrive(obs, action, obs + target[..., :-1], target[..., -1])

    def arrive(self, obs: Array, action: Array, predicted: Array, reward: Array) -> Outcome:
        """The same from the predicted next observation. The termination rule sees it before it is kept in reach."""
        reached = self.range.reached(self.model_norm, predicted)
        done = self.terminated(self.model_norm, obs, action, reached)
        return Outcome(self.range.keep(reached), self.range.reward(reward) * self.reward_unit, done)

    @property
    def reward_unit(self) -> float:
        """One unit of the models' rewards, in the critics'."""
        return float(self.model_norm.reward_scale / self.norm.reward_scale)


def random_member(key: Array, elite: Array, shape: tuple[int, ...]) -> Array:
    """One of the elite for each."""
    return elite[jax.random.randint(key, shape, 0, elite.shape[0])]


def target_noise(key: Array, obs: Array, *lead: int) -> Array:
    """Standard normal noise for next observation and reward of each row, with leading axes if asked."""
    return jax.random.normal(key, (*lead, *obs.shape[:-1], obs.shape[-1] + 1))


def elite_step(place: ModelEnv, elite: Array, actor: Any, obs: Array, key: Array) -> tuple[Array, Transitions]:
    """One step of plain rollouts: the policy's action, a random elite's outcome."""
    k_action, k_member, k_noise = jax.random.split(key, 3)
    action = actor.unit_action(place.norm.encode(obs), k_action)
    member = random_member(k_member, elite, obs.shape[:1])
    then = place.draw(obs, action, place.predict(obs, action), member, target_noise(k_noise, obs))
    return then.next_obs, Transitions(obs, action, then.reward, then.next_obs, then.terminal)


def rollout(
    step: Callable[[C, Array], tuple[C, Transitions]], start: C, count: int, horizon: int, key: Array
) -> tuple[Transitions, Array]:
    """`count` rollouts side by side: rows (horizon, count, ...), and which of them happened.

    `step` goes from what a rollout holds to what it holds next, and the row between. The row that enters a terminal
    is the last that happens.
    """

    def go(carry: tuple[C, Array], k: Array) -> tuple[tuple[C, Array], tuple[Transitions, Array]]:
        held, alive = carry
        after, row = step(held, k)
        return (after, alive & ~row.terminal), (row, alive)

    alive = jnp.ones(count, bool)
    return jax.lax.scan(go, (start, alive), jax.random.split(key, horizon))[1]


def blocks_of(count: int) -> tuple[int, int]:
    """Into how many blocks `count` rollouts go, and how many each holds (the last is filled up)."""
    blocks = -(-count // BLOCK)
    return blocks, -(-count // blocks)


def capacity_for(count: int, horizon: int, retain: int) -> int:
    """Rows that `retain` rounds of rollouts fill at most."""
    blocks, each = blocks_of(count)
    return blocks * each * horizon * retain


def in_blocks(
    count: int, roll: Callable[[int, Array], tuple[Transitions, Array]], key: Array
) -> tuple[Transitions, Array]:
    """`roll` (how many, key) for all blocks, one after the other: flat rows, and which of them happened."""
    blocks, each = blocks_of(count)
    rows, happened = jax.lax.map(lambda k: roll(each, k), jax.random.split(key, blocks))
    flat: Any = jax.tree.map(lambda part: part.reshape(-1, *part.shape[3:]), (rows, happened))
    return flat
