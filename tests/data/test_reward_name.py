"""Messages name the reward by its column; the name changes nothing that is learned."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from pspo.data import check, load_dataset, save_dataset
from tests.data.test_time_order import COLUMNS, log


def wild(reward: str) -> dict[str, np.ndarray]:
    table = {("u" if name == "u" else name): column for name, column in log(20, 12).items() if name != "r"}
    table[reward] = np.random.default_rng(3).normal(size=240)
    table[reward][100] = 6000.0
    return table


def messages(source: object, columns: dict[str, str] | None) -> list[str]:
    return [finding.message for finding in check(load_dataset(source, columns=columns)) if "6000" in finding.message]


def test_an_outlier_has_the_name_of_its_column(tmp_path: Path) -> None:
    columns = COLUMNS | {"reward": "profit"}
    frame = pd.DataFrame(wild("profit"))
    for source in (frame, {**wild("profit"), "x": wild("profit")["x"][:, None]}):
        assert messages(source, columns)[0].startswith("reward column 'profit' is 6000 at row 100, where all others")
    assert messages(pd.DataFrame(wild("reward")), COLUMNS | {"reward": "reward"})[0].startswith("reward is 6000 at row")
    dataset, other = load_dataset(frame, columns=columns), pd.DataFrame(wild("reward"))
    assert dataset.hash == load_dataset(other, columns=COLUMNS | {"reward": "reward"}).hash
    for suffix in (".npz", ".hdf5", ".parquet"):
        again = load_dataset(save_dataset(dataset, tmp_path / f"log{suffix}"))
        assert (again.reward_name, again.hash) == ("profit", dataset.hash)


@pytest.mark.parametrize(("value", "start"), [(np.nan, "reward column 'profit' is nan at row 7"), (None, "reward")])
def test_other_findings_have_it_too(value: float | None, start: str) -> None:
    table = wild("profit")
    if value is None:
        table["profit"][:] = 2.0
    else:
        table["profit"][7] = value
    found = [f.message for f in check(load_dataset(pd.DataFrame(table), columns=COLUMNS | {"reward": "profit"}))]
    assert any(message.startswith(start) for message in found)
    assert any("reward column 'profit' is" in message for message in found)
