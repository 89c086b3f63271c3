"""The learned models as an environment: single steps, and rollouts of several steps from states of the dataset."""

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

MAX_PARALLEL = 5000  # rollouts in one batch: this bounds the memory, whatever the number of rollouts

C = TypeVar("C")


class Outcome(NamedTuple):
    """The result of a step."""

    next_obs: Array
    reward: Array  # in the critics' unit
    terminal: Array


class ModelEnv(NamedTuple):
    """An ensemble of models with a termination rule, and the units of its users."""

    models: Ensemble
    terminated: Termination
    model_norm: Normaliser  # of the models' inputs and of the rewards they predict
    norm: Normaliser  # of policy and critics
    range: PredictionRange  # what the models may predict

    def predict(self, obs: Array, action: Array) -> Prediction:
        """The prediction of every member."""
        return self.models.predict(model_inputs(self.model_norm, obs, action))

    def draw(self, obs: Array, action: Array, prediction: Prediction, member: Array, noise: Array) -> Outcome:
        """Outcomes drawn from the given members; member (..., batch), noise (..., batch, targets)."""
        each = jnp.arange(obs.shape[0])
        return self.outcome(obs, action, prediction.mean[member, each] + prediction.std[member, each] * noise)

    def outcome(self, obs: Array, action: Array, target: Array) -> Outcome:
        """The outcome for given targets of the models: observation change (raw units) and reward."""
        return self.arrive(obs, action, obs + target[..., :-1], target[..., -1])

    def arrive(self, obs: Array, action: Array, predicted: Array, reward: Array) -> Outcome:
        """The outcome for a predicted next observation. The termination rule sees it before it is clipped."""
        reached = self.range.reached(self.model_norm, predicted)
        done = self.terminated(self.model_norm, obs, action, reached)
        return Outcome(self.range.clip(reached), self.range.reward(reward) * self.reward_unit, done)

    @property
    def reward_unit(self) -> float:
        """One unit of the models' rewards, in the critics' unit."""
        return float(self.model_norm.reward_scale / self.norm.reward_scale)


def random_member(key: Array, elite: Array, shape: tuple[int, ...]) -> Array:
    """Members drawn uniformly from the elite."""
    return elite[jax.random.randint(key, shape, 0, elite.shape[0])]


def outcome_noise(key: Array, obs: Array, *lead: int) -> Array:
    """Standard normal noise for the next observation and reward of each state, with leading axes `lead`."""
    return jax.random.normal(key, (*lead, *obs.shape[:-1], obs.shape[-1] + 1))


def elite_step(env: ModelEnv, elite: Array, actor: Any, obs: Array, key: Array) -> tuple[Array, Transitions]:
    """One step of plain rollouts: the policy's action, then the outcome of a random elite member."""
    k_action, k_member, k_noise = jax.random.split(key, 3)
    action = actor.unit_action(env.norm.encode(obs), k_action)
    member = random_member(k_member, elite, obs.shape[:1])
    outcome = env.draw(obs, action, env.predict(obs, action), member, outcome_noise(k_noise, obs))
    return outcome.next_obs, Transitions(obs, action, outcome.reward, outcome.next_obs, outcome.terminal)


def rollout(
    step: Callable[[C, Array], tuple[C, Transitions]], start: C, count: int, horizon: int, key: Array
) -> tuple[Transitions, Array]:
    """`count` parallel rollouts: transitions (horizon, count, ...), and which of them happened.

    `step` maps the state of the rollouts to their next state and the transitions in between. The transition into a
    terminal state is the last that happens.
    """

    def one_step(carry: tuple[C, Array], k: Array) -> tuple[tuple[C, Array], tuple[Transitions, Array]]:
        state, alive = carry
        state, transitions = step(state, k)
        return (state, alive & ~transitions.terminal), (transitions, alive)

    alive = jnp.ones(count, bool)
    return jax.lax.scan(one_step, (start, alive), jax.random.split(key, horizon))[1]


def split_rollouts(count: int) -> tuple[int, int]:
    """The number of batches for `count` rollouts, and the size of each (the last one is filled up)."""
    batches = -(-count // MAX_PARALLEL)
    return batches, -(-count // batches)


def capacity_for(count: int, horizon: int, retain: int) -> int:
    """The largest number of transitions in `retain` rounds of rollouts."""
    batches, size = split_rollouts(count)
    return batches * size * horizon * retain


def rollouts_in_batches(
    count: int, roll: Callable[[int, Array], tuple[Transitions, Array]], key: Array
) -> tuple[Transitions, Array]:
    """Call `roll` (number of rollouts, key) batch by batch: flat transitions, and which of them happened."""
    batches, size = split_rollouts(count)
    transitions, happened = jax.lax.map(lambda k: roll(size, k), jax.random.split(key, batches))
    flat: Any = jax.tree.map(lambda part: part.reshape(-1, *part.shape[3:]), (transitions, happened))
    return flat
