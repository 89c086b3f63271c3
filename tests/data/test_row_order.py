"""Without a time column, `check` finds rows that are out of order, missing or written twice, and single wild values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pspo.data import Dataset, Finding, check
from pspo.data.outliers import outliers

CODES = ("wrong-order", "missing-rows", "doubled-rows", "duplicate-rows", "outlier-action", "outlier-reward")


def inventory(seed: int = 0, episodes: int = 60, days: int = 30) -> dict[str, np.ndarray]:
    """Orders between 0 and 60 for a stock; demand follows a forecast with memory."""
    random = np.random.default_rng(seed)
    stock, forecast = random.uniform(0, 60, episodes), random.normal(20, 10, episodes)
    rows: list[np.ndarray] = []
    for day in range(days):
        order = np.clip(np.round((40 - stock) * random.uniform(0, 1, episodes) + random.normal(0, 8, episodes)), 0, 60)
        demand = np.maximum(0, forecast + random.normal(0, 5, episodes))
        sold = np.minimum(stock + order, demand)
        rows.append(np.stack([np.full(episodes, day), stock, forecast, order, 2 * sold - order], axis=1))
        stock, forecast = stock + order - sold, 20 + 0.6 * (forecast - 20) + random.normal(0, 8, episodes)
    day, stock, forecast, order, reward = np.stack(rows, axis=1).reshape(-1, 5).T
    columns = {"day": day, "stock": stock, "forecast": forecast, "order": order, "reward": reward}
    return columns | {"episode": np.repeat(np.arange(episodes), days)}


def dataset(log: dict[str, np.ndarray], *obs: str) -> Dataset:
    ends = np.append(log["episode"][1:] != log["episode"][:-1], True)
    arrays = {"observations": np.stack([log[name] for name in obs], axis=1), "actions": log["order"][:, None]}
    arrays |= {"rewards": log["reward"], "terminals": np.zeros(len(ends)), "timeouts": ends}
    names: Any = {"obs_names": obs, "action_names": ["order"]}
    return Dataset.from_arrays(arrays | names)


def found(log: dict[str, np.ndarray], *obs: str) -> list[Finding]:
    return [finding for finding in check(dataset(log, *(obs or ("stock", "forecast")))) if finding.code in CODES]


def shuffled(log: dict[str, np.ndarray], seed: int = 0) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed).random(len(log["episode"]))
    order = np.lexsort((random, log["episode"]))
    return {name: column[order] for name, column in log.items()}


@pytest.mark.parametrize("seed", range(5))
def test_a_clean_log_gives_no_warning(seed: int) -> None:
    assert found(inventory(seed)) == []
    assert found(inventory(seed), "day", "stock", "forecast") == []


@pytest.mark.parametrize("seed", range(5))
def test_rows_shuffled_within_episodes(seed: int) -> None:
    (finding,) = found(shuffled(inventory(seed), seed))
    assert finding.code == "wrong-order"
    assert "--time" in finding.message


def test_independent_rows_have_no_wrong_order() -> None:
    random = np.random.default_rng(0)
    for seed in range(5):
        log = inventory(seed)
        log = {name: column[random.permutation(len(column))] for name, column in log.items()}
        log["episode"] = np.sort(log["episode"])
        assert found(log) == []
        ends = {**log, "episode": np.arange(len(log["episode"]))}  # every row is an episode, as in a bandit
        arrays = {"observations": ends["stock"][:, None], "actions": ends["order"][:, None], "rewards": ends["reward"]}
        bandit = Dataset.from_arrays(arrays | {"terminals": np.ones(len(log["episode"]))})
        assert not {"wrong-order", "missing-rows"} & {finding.code for finding in check(bandit)}


def test_one_sequence_of_independent_rows() -> None:
    log = inventory(0)
    order = np.random.default_rng(0).permutation(len(log["stock"]))
    arrays = {"observations": log["stock"][order, None], "actions": log["order"][order, None]}
    arrays |= {"rewards": log["reward"][order], "terminals": np.zeros(len(order))}
    assert "independent-rows" in {finding.code for finding in check(Dataset.from_arrays(arrays))}
    in_order = {**arrays, "observations": np.cumsum(arrays["observations"], axis=0)}
    assert "independent-rows" not in {finding.code for finding in check(Dataset.from_arrays(in_order))}


def test_a_clock_in_another_order_is_named() -> None:
    findings = found(shuffled(inventory()), "day", "stock", "forecast")
    assert findings[0].code == "wrong-order"
    assert "obs column 'day' has the values of a clock with steps of 1" in findings[0].message


def test_a_missing_day_is_named_where_a_column_counts_days() -> None:
    log = {name: np.delete(column, 44) for name, column in inventory().items()}
    (finding,) = found(log, "day", "stock", "forecast")
    assert finding.code == "missing-rows"
    assert "obs column 'day' rises by 1 with every row, but goes from 13 to 15 after row 43" in finding.message


def test_an_hour_that_starts_again_is_not_a_missing_row() -> None:
    log = inventory(episodes=4, days=240)
    log["day"] %= 24
    assert found(log, "day", "stock", "forecast") == []


@pytest.mark.parametrize("rows", ["blocks", "pairs"])
def test_a_file_that_is_written_twice(rows: str) -> None:
    log = inventory()
    size = len(log["episode"])
    copies = np.tile(np.arange(size), 2) if rows == "blocks" else np.repeat(np.arange(size), 2)
    twice = {name: column[copies] for name, column in log.items()}
    if rows == "blocks":
        twice["episode"][size:] += 1000
    (finding,) = [finding for finding in found(twice) if finding.code in ("duplicate-rows", "doubled-rows")]
    assert finding.message.startswith("the data seem to be written twice: row ")
    assert finding.code == ("duplicate-rows" if rows == "blocks" else "doubled-rows")


@pytest.mark.parametrize(("column", "value"), [("order", 6000.0), ("order", 600.0), ("reward", -1e5)])
def test_one_wild_value_is_named_with_its_row_and_column(column: str, value: float) -> None:
    log = inventory()
    log[column][333] = value
    (finding,) = [finding for finding in found(log) if finding.code.startswith("outlier")]
    which = "action column 'order'" if column == "order" else "reward"
    assert f"{which} is {value:.9g} at row 333, where all others are between " in finding.message
    assert finding.code == ("outlier-action" if column == "order" else "outlier-reward")


def test_a_wild_reward_of_a_last_row_without_a_next_state_is_named() -> None:
    """Such a row is no transition, but counts in the return of its episode."""
    log = inventory()
    log["reward"][5 * 30 + 29] = 1e6
    (finding,) = [finding for finding in found(log) if finding.code.startswith("outlier")]
    assert (
        "reward is 1000000 at the row after row 178, the last of its episode, where all others are " in finding.message
    )
    log["reward"][5 * 30 + 29] = np.inf
    (finding,) = [finding for finding in check(dataset(log, "stock", "forecast")) if finding.code == "not-finite"]
    assert finding.message.startswith("reward is inf at the row after row 178, the last of its episode, which is infin")


@pytest.mark.parametrize("seed", range(20))
def test_ordinary_tails_and_rare_rewards_have_no_outliers(seed: int) -> None:
    random = np.random.default_rng(seed)
    for values in (random.normal(size=5000), random.lognormal(size=5000), random.standard_t(4, size=5000)):
        assert outliers(values) is None
    sparse = np.zeros(5000)
    sparse[random.integers(5000, size=2)] = 100.0
    assert outliers(sparse) is None
