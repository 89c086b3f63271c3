"""Where a policy acts differently from the dataset: by action column, by state, and by transition. NumPy only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pspo.data.dataset import Dataset
from pspo.evaluation.raw_columns import MISSING_WORD, RawColumn, column_names, raw_columns
from pspo.policies.policy import Policy

COMPARED = 20_000  # transitions
BINS = 8  # groups of equal size along an observation column
SHOWN_COLUMNS = 2  # observation columns that explain most
SHOWN_ROWS = 5
NOTICEABLE = 0.01  # of the range of an action column
BY_CHANCE = 4.0  # times what groups explain on average where the difference does not depend on the column


def action_differences(policy: Policy, dataset: Dataset) -> dict[str, Any]:
    """The policy's action, by its mode, beside the logged one in the same states, as plain numbers for JSON.

    "actions" has one entry per action column, "by_state" how the column that differs most depends on the observation
    columns that explain most of its differences, "rows" the largest differences, at most one of each episode, by their
    row in the file, as `pspo inspect --row` takes it. Observations are as the file has them, not as they are encoded.
    """
    compared = np.sort(np.random.default_rng(0).permutation(dataset.size)[:COMPARED])
    obs, logged = dataset.obs[compared], dataset.action[compared].astype(np.float64)
    own = np.asarray(policy.act_encoded(obs), np.float64)
    width = (dataset.action_high - dataset.action_low).astype(np.float64)
    names = column_names(dataset.action_names, dataset.action_dim, "action")
    if dataset.discrete:  # each label is a column of 0 and 1, whose mean is how often it is taken
        width = np.ones(dataset.action_dim)
        names = [f"{column_names(dataset.action_names, 1, 'action')[0]} = {label}" for label in dataset.action_labels]
    difference = own - logged
    actions = [_column(name, logged[:, i], own[:, i], width[i]) for i, name in enumerate(names)]
    most = int(np.argmax([entry["share_of_range"] for entry in actions]))
    observed = raw_columns(dataset, obs)
    numbers = compared if dataset.source_rows is None else dataset.source_rows[compared]
    return {
        "compared_rows": len(compared),
        "actions": actions,
        "by_state": by_state(names[most], observed, logged[:, most], own[:, most]),
        "rows": [
            {
                "row": int(numbers[i]),
                "obs": [column.plain(i) for column in observed],
                "dataset": logged[i].tolist(),
                "policy": own[i].tolist(),
            }
            for i in _largest(np.abs(difference / width).max(1), dataset, compared)
        ],
        "obs_names": [column.name for column in observed],
    }


def _column(name: str, logged: np.ndarray, own: np.ndarray, width: float) -> dict[str, Any]:
    difference = own - logged
    return {
        "name": name,
        "dataset_mean": float(logged.mean()),
        "policy_mean": float(own.mean()),
        "mean_difference": float(np.abs(difference).mean()),
        "share_of_range": float(np.abs(difference).mean() / width),
        "higher": float((difference > NOTICEABLE * width).mean()),
        "lower": float((difference < -NOTICEABLE * width).mean()),
    }


def by_state(action: str, columns: Sequence[RawColumn], logged: np.ndarray, own: np.ndarray) -> list[dict[str, Any]]:
    """Means of both actions in groups along the observation columns that explain most of the difference.

    A group is a range of a number ("low", "high"), or one category or what is missing ("label").
    """
    difference = own - logged
    total = float(difference.var())
    if total == 0.0:
        return []
    groups = [_groups(column) for column in columns]
    explained = [_between(difference, group) / total for group in groups]
    chance = [(len(np.unique(group)) - 1) / len(group) for group in groups]
    ranked = [i for i in np.argsort(explained)[::-1] if explained[i] > BY_CHANCE * chance[i]][:SHOWN_COLUMNS]
    return [
        {
            "action": action,
            "column": columns[i].name,
            "explained": float(explained[i]),
            "groups": [
                _which(columns[i], members)
                | {
                    "dataset": float(logged[members].mean()),
                    "policy": float(own[members].mean()),
                    "share": float(np.abs(difference[members]).sum() / np.abs(difference).sum()),
                }
                for members in (groups[i] == g for g in np.unique(groups[i]))
            ],
        }
        for i in ranked
    ]


def _which(column: RawColumn, members: np.ndarray) -> dict[str, Any]:
    values = column.values[members]
    if column.is_category:
        return {"label": str(values[0])}
    if np.isnan(values).all():
        return {"label": MISSING_WORD}
    return {"low": float(values.min()), "high": float(values.max())}


def _groups(column: RawColumn) -> np.ndarray:
    """(transitions,) the group of each: a category; or quantiles of the column, equal values in the same group."""
    if column.is_category:
        return np.unique(column.values, return_inverse=True)[1]
    missing = np.isnan(column.values)
    if missing.all():
        return np.zeros(len(missing), int)
    edges = np.unique(np.quantile(column.values[~missing], np.arange(1, BINS) / BINS))
    return np.where(missing, BINS, np.searchsorted(edges, column.values, side="right"))


def _between(values: np.ndarray, group: np.ndarray) -> float:
    """The variance of the groups' means, weighted by their sizes."""
    count = np.bincount(group)
    mean = np.bincount(group, values) / np.maximum(count, 1)
    return float(np.average(np.square(mean - values.mean()), weights=count))


def _largest(size: np.ndarray, dataset: Dataset, compared: np.ndarray) -> list[int]:
    """Positions of the largest differences, largest first, at most one of each episode."""
    episode = np.searchsorted(dataset.episode_starts, compared, side="right")
    chosen: dict[int, int] = {}
    for i in np.argsort(-size, kind="stable"):
        if len(chosen) == SHOWN_ROWS or size[i] == 0.0:
            break
        chosen.setdefault(int(episode[i]), int(i))
    return [*chosen.values()]
