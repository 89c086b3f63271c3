"""What the models say follows a state and an action, how much each is believed, and how much of it is chance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pspo.dynamics.ensemble import model_inputs
from pspo.evaluation.inspect.judges import Judges
from pspo.evaluation.inspect.question import Logged
from pspo.evaluation.ope.estimates import effective

REPEATS = 32  # draws of the posterior's noise that weights are averaged over
REWARD = "reward"


class Member(NamedTuple):
    """One model of the pool, in the log's units."""

    number: int
    weight: float
    next_obs: list[float]  # its mean
    reward: float
    ends: float  # share of its draws after which the episode is over
    backup: float  # r + gamma E V(s'): what it says Q should be


class Following(NamedTuple):
    """One column of the next state, or the reward: the models' together, as they are believed."""

    name: str
    now: float | None  # None for the reward
    expected: float
    between: float  # standard deviation between models
    chance: float  # standard deviation that a model itself predicts
    followed: float | None = None  # what the log says
    then_expected: float | None = None  # after the logged action
    then_spread: float | None = None  # of both kinds, after the logged action


class Beliefs(NamedTuple):
    effective: float  # Kish's number of models
    entropy: float  # of the weights, 1 is uniform
    members: list[Member]  # the most believed first
    following: list[Following]  # the columns of the state, then the reward
    ends: float  # share of what follows in which the episode is over


class Said(NamedTuple):
    """Of one state and action, (members, ...) each."""

    weight: np.ndarray
    mean: np.ndarray  # next state and reward, raw
    std: np.ndarray
    ends: np.ndarray
    backup: np.ndarray


def beliefs_at(
    judges: Judges, names: Sequence[str], obs: np.ndarray, unit: np.ndarray, logged: Logged | None
) -> Beliefs:
    said = say(judges, obs, unit)
    order = np.argsort(-said.weight, kind="stable")
    return Beliefs(
        effective=effective(said.weight),
        entropy=_entropy(said.weight),
        members=[
            Member(
                number=int(i),
                weight=float(said.weight[i]),
                next_obs=said.mean[i, :-1].tolist(),
                reward=float(said.mean[i, -1]),
                ends=float(said.ends[i]),
                backup=float(said.backup[i]),
            )
            for i in order
        ],
        following=_following(judges, names, obs, said, logged),
        ends=float(said.weight @ said.ends),
    )


def say(judges: Judges, obs: np.ndarray, unit: np.ndarray) -> Said:
    """The state is weighed several times over, as the posterior's noise would have it, and weights are averaged."""
    many_obs, many_unit = (jnp.asarray(np.repeat(part[None], REPEATS, axis=0)) for part in (obs, unit))
    weighed = jax.device_get(judges.weigh(many_obs, many_unit, jax.random.PRNGKey(0)))
    predicted = judges.pool.predict(model_inputs(judges.norm, many_obs[:1], many_unit[:1]))
    scale = float(judges.norm.reward_scale)
    mean, std = (np.array(part[:, 0], np.float64) for part in predicted)
    mean[:, :-1] += obs
    mean[:, -1] *= scale
    std[:, -1] *= scale
    weight = np.exp(weighed.log_weight.astype(np.float64)).mean(1)
    return Said(
        weight=weight / weight.sum(),
        mean=mean,
        std=std,
        ends=weighed.done.mean((0, 2)).astype(np.float64),
        backup=weighed.backup.mean(1).astype(np.float64) * scale,
    )


def mixed(weight: np.ndarray, mean: np.ndarray, std: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean, spread between members and spread within them, of a mixture of (members, columns)."""
    expected = weight @ mean
    return expected, np.sqrt(weight @ np.square(mean - expected)), np.sqrt(weight @ np.square(std))


def _entropy(weight: np.ndarray) -> float:
    some = weight[weight > 0.0] if np.isfinite(weight).all() else weight
    return float(-(some * np.log(some)).sum() / np.log(max(len(weight), 2)))


def _following(
    judges: Judges, names: Sequence[str], obs: np.ndarray, said: Said, logged: Logged | None
) -> list[Following]:
    now = [*obs.tolist(), None]
    columns = zip([*names, REWARD], now, *mixed(said.weight, said.mean, said.std), strict=True)
    found = [Following(name, here, *map(float, numbers)) for name, here, *numbers in columns]
    if logged is None:
        return found
    unit = np.clip(judges.norm.unit_action(np.asarray(logged.action, np.float32)), -1.0, 1.0).astype(np.float32)
    then = say(judges, obs, unit)
    expected, between, chance = mixed(then.weight, then.mean, then.std)
    followed = [*(logged.next_obs or [None] * len(obs)), logged.reward]
    return [
        column._replace(followed=real, then_expected=float(mean), then_spread=float(np.hypot(a, b)))
        for column, real, mean, a, b in zip(found, followed, expected, between, chance, strict=True)
    ]
