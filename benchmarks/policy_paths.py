"""Episodes of a policy in the models of a dataset, and statistics of where they go: what `ope_locomotion` compares.

All is computed from the dataset alone. Every member of the pool is rolled out from the same first states, by the
policy's mode, in three ways: with the noise that the models predict (as `pspo ope` did), without it, and without it but
in another member at every step.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pspo.dynamics.ensemble import model_inputs
from pspo.dynamics.prediction_range import data_box, outside, prediction_range
from pspo.dynamics.termination import Termination
from pspo.evaluation.problem import EvaluationProblem
from pspo.policies.policy import Policy

WAYS = {"noise": (4, 1.0, False), "mean": (10, 0.0, False), "switch": (4, 0.0, True)}
"""Episodes per member, scale of the models' noise, and whether the member is another one at every step."""
_ENDS = np.cumsum([count for count, *_ in WAYS.values()])
COLUMNS = {way: slice(end - WAYS[way][0], end) for way, end in zip(WAYS, _ENDS.tolist(), strict=True)}
HORIZON = 1000
DISCOUNTS = (0.99, 0.995, 1.0)
STATES = 1000  # of the path, and of the dataset
SEARCHED = 10_000  # transitions of the dataset that the path is compared with
LEVELS = (0.5, 0.9, 0.99)
BOX_MARGIN = 0.1  # of the range of every column


class Models(NamedTuple):
    """The pool of a dataset, with what is needed to roll out in it."""

    pool: Any
    terminated: Termination
    reference: Any  # mu


class Path(NamedTuple):
    """Of all steps, members and episodes; an episode takes part while it is alive."""

    reward: np.ndarray  # (steps, members, episodes), in the dataset's units
    alive: np.ndarray
    left: np.ndarray  # whether the step leaves the range of the data
    obs: np.ndarray  # (steps, members, episodes without noise, obs_dim)
    unit: np.ndarray  # actions in [-1, 1]


class Fixed(NamedTuple):
    """Arguments of the compiled step, so that it serves all datasets of a task."""

    norm: Any
    within: Any
    box: Any
    models: Models


@jax.jit
def _step(fixed: Fixed, obs: Any, unit: Any, key: Any) -> tuple[Any, ...]:
    """Every episode one step further: next observation, reward, end, and whether the data are left."""
    norm, within, box, models = fixed
    pool, (k_noise, k_shift) = models.pool, jax.random.split(key)
    parts = ([value] * count for count, *rest in WAYS.values() for value in [rest])
    scale, switch = (jnp.array(part) for part in zip(*(value for part in parts for value in part), strict=True))
    shift = jax.random.randint(k_shift, (), 0, pool.size)

    def turn(part: Any, by: Any) -> Any:
        return jnp.where(switch[:, None], jnp.roll(part, by, 0), part)

    prediction = pool.normalised(turn(model_inputs(norm, obs, unit), shift), each=True)
    mean, log_std = (turn(part, -shift) for part in prediction)
    noise = scale[:, None] * jax.random.normal(k_noise, (1, obs.shape[1], mean.shape[-1] - 1))
    target = mean.at[..., :-1].add(jnp.exp(log_std[..., :-1]) * noise) * pool.target_std + pool.target_mean
    predicted = obs + target[..., :-1]
    reached = within.reached(norm, predicted)
    done = models.terminated(norm, obs, unit, reached)
    return within.clip(reached), within.reward(target[..., -1]), done, outside(predicted, box) & ~done


class PolicyPaths:
    """One dataset's models and statistics, for all policies on it."""

    def __init__(self, problem: EvaluationProblem, models: Models, seed: int = 0) -> None:
        data, rng = problem.dataset, np.random.default_rng(seed)
        self.models, self.data, self.key = models, data, jax.random.PRNGKey(seed)
        starts = data.obs[rng.choice(data.episode_starts, max(count for count, *_ in WAYS.values()))]
        columns = np.concatenate([starts[:count] for count, *_ in WAYS.values()])
        self.first = np.broadcast_to(columns, (models.pool.size, *columns.shape))
        picked = rng.permutation(data.size)[: 2 * SEARCHED]
        known, asked = picked[:SEARCHED], picked[SEARCHED:][:STATES]
        unit = np.asarray(problem.norm.unit_action(data.action))
        state = (data.obs - problem.norm.obs_mean) / problem.norm.obs_std
        both = np.concatenate([state, unit], axis=1)
        self.known = both[known], state[known]
        self.logged = self._at(problem, data.obs[asked], unit[asked])
        box = data_box(data.obs, problem.norm, BOX_MARGIN)
        self.fixed = Fixed(problem.norm, prediction_range(data, problem.norm), box, models._replace(reference=None))
        self.asked = data.obs[asked]

    def statistics(self, policy: Policy, problem: EvaluationProblem) -> dict[str, Any]:
        """Of one policy; `problem` gives the dataset's units."""
        path = self._path(policy, problem)
        numbers: dict[str, Any] = {}
        for way, columns in COLUMNS.items():
            numbers[way] = _of_episodes(*(part[:, :, columns] for part in path[:3]))
        obs, unit = _visited(path, np.random.default_rng(0))
        here = self._at(problem, obs, unit)
        for name, logged in self.logged.items():
            numbers[name] = _against(here[name], logged)
        own = self._at(problem, self.asked, _unit(policy, problem, self.asked))
        for name, logged in self.logged.items():
            numbers[f"logged_states_{name}"] = _against(own[name], logged)
        return numbers

    def _path(self, policy: Policy, problem: EvaluationProblem) -> Path:
        """The policy acts in NumPy, which needs no compilation."""
        obs, alive, steps = self.first, np.ones(self.first.shape[:2], bool), []
        scale, calm = float(problem.norm.reward_scale), COLUMNS["mean"]
        while len(steps) < HORIZON and alive.any():
            unit = _unit(policy, problem, obs)
            key = jax.random.fold_in(self.key, len(steps))
            after, reward, done, left = jax.device_get(_step(self.fixed, obs, unit, key))
            steps.append((scale * reward.astype(np.float64), alive, left, obs[:, calm], unit[:, calm]))
            obs, alive = after, alive & ~done
        return Path(*(np.stack(part) for part in zip(*steps, strict=True)))

    def _at(self, problem: EvaluationProblem, obs: np.ndarray, unit: np.ndarray) -> dict[str, np.ndarray]:
        """One number per state: what members disagree on, their own noise, distances, mu's surprise."""
        norm, pool = problem.norm, self.models.pool
        mean, log_std = jax.jit(lambda p, x: p.normalised(x))(pool, model_inputs(norm, jnp.asarray(obs), unit))
        state = (obs - norm.obs_mean) / norm.obs_std
        mu = self.models.reference(norm.encode(jnp.asarray(obs)))
        inside = np.clip(unit, -1.0, 1.0)
        x = norm.presquash(norm.from_unit(inside))
        return {
            "disagreement": np.sqrt(np.asarray(mean).var(0)[:, :-1].mean(-1)),
            "own_noise": np.exp(np.asarray(log_std)[..., :-1]).mean((0, 2)),
            "distance": _nearest(np.concatenate([state, unit], axis=1), self.known[0]),
            "state_distance": _nearest(state, self.known[1]),
            "surprise": -np.asarray(mu.log_prob(jnp.asarray(x))),
        }


def _unit(policy: Policy, problem: EvaluationProblem, obs: np.ndarray) -> np.ndarray:
    return np.asarray(problem.norm.unit_action(policy.act_encoded(obs)), np.float32)


def _nearest(these: np.ndarray, known: np.ndarray) -> np.ndarray:
    """(these,): Euclidean distances to the nearest of the known points, by one product of matrices."""
    square = np.square(these).sum(1)[:, None] + np.square(known).sum(1) - 2.0 * these @ known.T
    return np.sqrt(np.maximum(square.min(1), 0.0))


def _of_episodes(reward: np.ndarray, alive: np.ndarray, left: np.ndarray) -> dict[str, Any]:
    """Means per member of returns and lengths, and how many episodes leave the range of the data."""
    steps = np.arange(len(reward))[:, None, None]
    returns = {f"return_{g:g}": (g**steps * reward * alive).sum(0).mean(-1).round(2).tolist() for g in DISCOUNTS}
    ever = (left & alive).any(0)
    inside = np.cumsum(left & alive, 0) == 0
    return returns | {
        "length": alive.sum(0).mean(-1).round(1).tolist(),
        "shortest": int(alive.sum(0).min()),
        "std": float((reward * alive).sum(0).std()),
        "left": float((left & alive).sum() / alive.sum()),
        "ever_left": float(ever.mean()),
        "length_inside": float((alive & inside).sum(0).mean()),
        "return_inside": float((reward * (alive & inside)).sum(0).mean()),
    }


def _visited(path: Path, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """States and actions before the end of episodes without noise, at random."""
    pick = rng.choice(np.flatnonzero(path.alive[:, :, COLUMNS["mean"]]), STATES)
    return path.obs.reshape(-1, path.obs.shape[-1])[pick], path.unit.reshape(-1, path.unit.shape[-1])[pick]


def _against(here: np.ndarray, logged: np.ndarray) -> dict[str, Any]:
    """Quantiles on the path and on the dataset, and the share of the path above each of the dataset's."""
    levels = np.quantile(logged, LEVELS)
    return {
        "path": np.quantile(here, LEVELS).round(6).tolist(),
        "dataset": levels.round(6).tolist(),
        "above": [round(float((here > level).mean()), 4) for level in levels],
        "mean_ratio": float(here.mean() / logged.mean()),
        "mean_difference": float(here.mean() - logged.mean()),
    }
