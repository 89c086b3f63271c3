"""The order of columns is the source's own, in every format; other data are brought into a given order by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd
import pytest

from pspo.core.errors import UserError
from pspo.data import Dataset, load_dataset
from pspo.data.column_order import in_order_of

ORDER = ["obs_time", "obs_inventory", "obs_price", "obs_10", "obs_9"]
ACTIONS = ["action_sell", "action_hedge"]
NEXT = [f"next_{name}" for name in sorted(ORDER)]  # not in the order of the state


def columns(rows: int = 60) -> dict[str, np.ndarray]:
    """Every column has its own values; rewards, next states and ends are complete."""
    rng = np.random.default_rng(0)
    table = {name: rng.normal(size=rows).astype(np.float32) + place for place, name in enumerate(ORDER)}
    table |= {name: rng.uniform(-1, 1, rows).astype(np.float32) for name in ACTIONS}
    table |= {name: np.roll(table[name.removeprefix("next_")], -1) + np.float32(0.5) for name in NEXT}
    return table | {"reward": np.arange(rows, dtype=np.float32), "terminal": np.arange(rows) % 10 == 9}


def as_csv(table: dict[str, Any], folder: Path) -> Any:
    pd.DataFrame(table).to_csv(folder / "log.csv", index=False)
    return folder / "log.csv"


def as_parquet(table: dict[str, Any], folder: Path) -> Any:
    pd.DataFrame(table).to_parquet(folder / "log.parquet")
    return folder / "log.parquet"


def as_npz(table: dict[str, Any], folder: Path) -> Any:
    np.savez(folder / "log.npz", **table)
    return folder / "log.npz"


def as_hdf5(table: dict[str, Any], folder: Path, track_order: bool = True) -> Any:
    with h5py.File(folder / "log.hdf5", "w", track_order=track_order) as file:
        for name, values in table.items():
            file[name] = values
    return folder / "log.hdf5"


SOURCES: dict[str, Callable[..., Any]] = {
    "csv": as_csv,
    "parquet": as_parquet,
    "frame": lambda table, _: pd.DataFrame(table),
    "dictionary": lambda table, _: table,
    "npz": as_npz,
    "hdf5": as_hdf5,
}
ASKED = [{}, {"obs": "obs_*", "action": "action_*"}, {"obs": "obs_*", "next_obs": "next_*"}]


@pytest.mark.parametrize("source", sorted(SOURCES))
@pytest.mark.parametrize("asked", ASKED)
def test_detected_columns_and_patterns_keep_the_order_of_the_source(source: str, asked: Any, tmp_path: Path) -> None:
    table = columns()
    loaded = load_dataset(SOURCES[source](table, tmp_path), columns=asked)
    assert (loaded.obs_names, loaded.action_names) == (tuple(ORDER), tuple(ACTIONS))
    np.testing.assert_array_equal(loaded.obs, np.column_stack([table[name] for name in ORDER]))
    np.testing.assert_array_equal(loaded.next_obs, np.column_stack([table[f"next_{name}"] for name in ORDER]))
    np.testing.assert_array_equal(loaded.action, np.column_stack([table[name] for name in ACTIONS]))


@pytest.mark.parametrize("source", sorted(SOURCES))
def test_a_list_keeps_its_own_order_and_patterns_follow_each_other(source: str, tmp_path: Path) -> None:
    table = columns()
    made = SOURCES[source](table, tmp_path)
    given = ["obs_price", "obs_10", "obs_time", "obs_9", "obs_inventory"]
    for asked in (given, ["obs_price", "obs_1?", "obs_time", "obs_?", "obs_*"]):
        loaded = load_dataset(made, columns={"obs": asked})
        assert loaded.obs_names == tuple(given)
        np.testing.assert_array_equal(loaded.obs, np.column_stack([table[name] for name in given]))
        np.testing.assert_array_equal(loaded.next_obs, np.column_stack([table[f"next_{name}"] for name in given]))


def test_a_source_without_an_order_has_its_columns_in_natural_order(tmp_path: Path) -> None:
    loaded = load_dataset(as_hdf5(columns(), tmp_path, track_order=False), columns={"obs": "obs_*"})
    assert loaded.obs_names == ("obs_9", "obs_10", "obs_inventory", "obs_price", "obs_time")


def test_numbered_columns_in_order_have_the_same_hash_as_ever() -> None:
    """The hash of version 0.1 for this table: caches and runs are found by it."""
    rows = np.arange(40.0)
    table = {f"obs_{d}": rows * (d + 3) % 7 for d in range(12)} | {"action_0": rows % 5 / 4 - 0.5, "reward": rows}
    table |= {f"next_obs_{d}": (rows + 1) * (d + 3) % 7 for d in range(12)} | {"terminal": rows % 8 == 7}
    assert load_dataset(pd.DataFrame(table)).hash.startswith(HASH)


HASH = "d6088c20c5634c771b9bcd5d"


def test_columns_that_are_not_numbers_are_listed() -> None:
    with pytest.raises(UserError, match="arrays 'obs_time', 'obs_inventory'"):
        load_dataset(columns() | {"obs_inventory": np.zeros((60, 2, 2))}, columns={"obs": "obs_time,obs_inventory"})


# Into the order of a run


def reordered(names: list[str]) -> Dataset:
    return load_dataset(pd.DataFrame(columns())[[*names, *ACTIONS[::-1], *NEXT, "reward", "terminal"]])


def test_data_in_another_order_become_equal_by_name() -> None:
    own, other = load_dataset(pd.DataFrame(columns())), reordered(sorted(ORDER))
    assert other.hash != own.hash
    brought = in_order_of(other, ORDER, ACTIONS)
    assert (brought.hash, brought.obs_names, brought.action_names) == (own.hash, own.obs_names, own.action_names)
    assert in_order_of(own, ORDER, ACTIONS) is own
    assert in_order_of(own, [], []) is own  # nothing is known about the order


def test_bounds_move_with_their_actions() -> None:
    table = columns()
    table["action_hedge"] = table["action_hedge"] * 5
    data = load_dataset(pd.DataFrame(table))
    brought = in_order_of(data, ORDER, ACTIONS[::-1])
    np.testing.assert_array_equal(brought.action_low, data.action_low[::-1])
    np.testing.assert_array_equal(brought.action_high, data.action_high[::-1])
    np.testing.assert_array_equal(brought.action, data.action[:, ::-1])


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        ([*ORDER[:4], "obs_speed"], "the obs of 'dataset' lacks 'obs_speed' and has the unknown 'obs_9'"),
        (ORDER[:4], "the obs of 'dataset' has the unknown 'obs_9'"),
        ([*ORDER, "obs_speed"], "the obs of 'dataset' lacks 'obs_speed'"),
    ],
)
def test_other_names_are_refused(wanted: list[str], says: str) -> None:
    with pytest.raises(UserError) as caught:
        in_order_of(load_dataset(pd.DataFrame(columns())), wanted, ACTIONS)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
