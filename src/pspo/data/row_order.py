"""Whether the rows of episodes are in the order of time, from the dataset alone.

In the right order the next row depends on the row before it. Rows in a random order do not follow each other, but rows
of an independent process (a contextual bandit) do not either. So the order counts as wrong only if both hold:

- no number of the next state depends on a number of the state or action before it, by more than chance:
  lag-one rank correlations within episodes, compared with those of random orders of the same rows;
- rows of one episode belong together: the means of episodes differ by more than (or less than) independent rows allow.

A column that counts the steps is better evidence: one that would rise by the same step in another order of the rows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pspo.data.dataset import Dataset

MOST_ROWS, MOST_COLUMNS = 10_000, 40
RANDOM_ORDERS = 40
FEWEST_PER_EPISODE = 5  # on average: shorter episodes hardly have an order
FEWEST_ROWS = 60  # within episodes that have a following row
CHANCE = 0.005  # how often rows in a random order may seem to depend on each other
SIGNIFICANT = 4.5  # standard deviations, for differences between episodes
REGULAR = 0.95  # fraction of the steps of a clock that are equal
CLOCK_ROWS = 10


class Sequence(NamedTuple):
    """Whole episodes: values by row, and the number of the episode."""

    values: np.ndarray  # (rows, columns) float64
    episode: np.ndarray  # (rows,) int, ascending from 0


def looks_shuffled(dataset: Dataset) -> bool:
    """Whether the next state follows this row no better than in a random order, though rows belong together."""
    sequence = _sequence(dataset)
    episodes = int(sequence.episode[-1]) + 1
    if len(sequence.episode) < max(FEWEST_ROWS + episodes, FEWEST_PER_EPISODE * episodes):
        return False
    obs = slice(0, min(dataset.obs_dim, MOST_COLUMNS))
    return _groups_differ(sequence, obs) and not next_row_depends(sequence, obs)


def rows_are_independent(dataset: Dataset) -> bool:
    """Whether no number of the next state depends on this row: a contextual bandit, or a random order."""
    sequence = _sequence(dataset)
    if len(sequence.episode) - 1 - int(sequence.episode[-1]) < FEWEST_ROWS:
        return False
    return not next_row_depends(sequence, slice(0, min(dataset.obs_dim, MOST_COLUMNS)))


def _sequence(dataset: Dataset) -> Sequence:
    """Ranks of the first rows, whole episodes: heavy tails then count no more than other values."""
    rows = min(dataset.size, MOST_ROWS)
    parts = (dataset.obs[:rows, :MOST_COLUMNS], dataset.action[:rows, :MOST_COLUMNS], dataset.reward[:rows, None])
    values = np.nan_to_num(np.concatenate(parts, axis=1).astype(np.float64))
    from scipy.stats import rankdata  # takes seconds to import, and policies are served without it

    ranks = rankdata(values, axis=0) / rows
    episode = np.concatenate(([0], np.cumsum(dataset.episode_end[: rows - 1])))
    return Sequence(ranks, episode)


def next_row_depends(sequence: Sequence, obs: slice) -> bool:
    """Whether lag-one correlations within episodes differ from those in random orders of the same rows.

    Both the largest over all pairs (a number of a row, a number of the next row's state) and the sum over the state's
    own columns are tested; the latter has more power where many columns change slowly.
    """
    centred = _centred(sequence)
    centred /= np.maximum(centred.std(axis=0), 1e-12)
    given = _lag_products(centred, sequence.episode, obs)
    random = np.random.default_rng(0)
    shuffled = []
    for _ in range(RANDOM_ORDERS):
        order = np.lexsort((random.random(len(centred)), sequence.episode))
        shuffled.append(_lag_products(centred[order], sequence.episode, obs))
    mean, std = np.mean(shuffled, axis=0), np.std(shuffled, axis=0, ddof=1)
    varies = std > 0  # constant columns say nothing
    if not varies.any():
        return True
    deviations = np.abs(given - mean)[varies] / std[varies]
    from scipy.stats import t as student_t

    limits = student_t.isf([CHANCE / 2 / (len(deviations) - 1), CHANCE / 2], RANDOM_ORDERS - 1)  # two-sided
    return bool(deviations[:-1].max(initial=0.0) > limits[0] or deviations[-1] > limits[1])


def _centred(sequence: Sequence) -> np.ndarray:
    counts = np.bincount(sequence.episode)
    means = np.stack([np.bincount(sequence.episode, column) / counts for column in sequence.values.T], axis=1)
    return sequence.values - means[sequence.episode]


def _lag_products(centred: np.ndarray, episode: np.ndarray, obs: slice) -> np.ndarray:
    """All products of a column with a column of the next state, and last the sum over columns with themselves."""
    inside = np.flatnonzero(episode[1:] == episode[:-1])
    products = centred[inside].T @ centred[inside + 1][:, obs]
    return np.append(products, np.trace(products))


def _groups_differ(sequence: Sequence, obs: slice) -> bool:
    """Analysis of variance: whether episodes' means vary as those of independent rows do.

    Columns that never change within an episode describe the episode, not the row, and say nothing.
    """
    counts = np.bincount(sequence.episode)
    groups, rows = len(counts), len(sequence.episode)
    if groups < 5 or rows - groups < FEWEST_ROWS:
        return False
    within = np.square(_centred(sequence)[:, obs]).sum(axis=0) / (rows - groups)
    total = np.square(sequence.values[:, obs] - sequence.values[:, obs].mean(axis=0)).sum(axis=0)
    between = (total - within * (rows - groups)) / (groups - 1)
    varies = within > 1e-6 * total / rows
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = np.where(varies, between / within, 1.0)
    # Var(F) of independent rows, for columns that are roughly normal or uniform.
    std = np.sqrt(2.0 / (groups - 1) + 2.0 / (rows - groups))
    return bool((np.abs(np.log(np.maximum(ratio, 1e-9))) > SIGNIFICANT * std).any())


class TimeColumn(NamedTuple):
    """A column that counts the steps of an episode, except at some rows."""

    column: int
    step: float
    rows: np.ndarray  # after which it jumps ahead or, if shuffled, does not rise by `step`
    shuffled: bool  # its values are those of a clock, in another order


def clocks(dataset: Dataset) -> list[TimeColumn]:
    """Columns of the state that count the steps, but not everywhere: rows are missing there, or out of order.

    Only jumps ahead count as missing rows: an hour of the day starts again at midnight.
    """
    columns_of_time = []
    rows = np.flatnonzero(~dataset.episode_end[:-1])
    for column in range(dataset.obs_dim) if len(rows) >= CLOCK_ROWS else ():
        values = dataset.obs[:, column].astype(np.float64)
        if not np.isfinite(values).all():  # `check` reports them
            continue
        steps = values[rows + 1] - values[rows]
        if (step := _regular_step(steps[: 2 * MOST_ROWS])) is not None:
            jumps = rows[steps / step > 1.5]
            if 0 < jumps.size < (1 - REGULAR) * len(rows):
                columns_of_time.append(TimeColumn(column, step, jumps, False))
        elif (step := _regular_step(_sorted_steps(dataset, values[:MOST_ROWS]))) is not None:
            columns_of_time.append(TimeColumn(column, step, rows[~np.isclose(steps, step, rtol=1e-3)], True))
    return columns_of_time


def _sorted_steps(dataset: Dataset, values: np.ndarray) -> np.ndarray:
    """The steps between values that are sorted within episodes."""
    episode = np.concatenate(([0], np.cumsum(dataset.episode_end[: len(values) - 1])))
    order = np.lexsort((values, episode))
    return np.diff(values[order])[episode[order][1:] == episode[order][:-1]]


def _regular_step(steps: np.ndarray) -> float | None:
    """The median step, if nearly all are equal to it and it is not zero."""
    if len(steps) < CLOCK_ROWS:
        return None
    step = float(np.median(steps))
    regular = np.isclose(steps, step, rtol=1e-3, atol=0.0).mean() >= REGULAR
    return step if regular and step != 0.0 and np.isfinite(step) else None
