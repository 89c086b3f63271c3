"""Times with and without a time zone are not mixed: the same text would mean another hour."""

from __future__ import annotations

import datetime
import json
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from pspo.core.errors import UserError
from pspo.data import load_dataset
from pspo.data.dataset import Dataset
from pspo.data.encoder import encoder_from_json
from pspo.data.readers.state_columns import StateColumns
from pspo.policies.named_observations import raw_columns

ROWS = 48
HOURS = np.datetime64("2024-01-01T00:00:00") + np.arange(ROWS) * np.timedelta64(1, "h")
COLUMNS = {"obs": "x,when", "action": "u", "reward": "r", "episode": "id", "cyclic": "hour_of_day"}


def table(zone: str | None) -> pa.Table:
    random = np.random.default_rng(0)
    return pa.table({
        "id": np.repeat([0, 1], ROWS // 2),
        "x": random.normal(size=ROWS),
        "when": pa.array(HOURS.astype("datetime64[us]"), pa.timestamp("us", zone)),
        "u": random.uniform(-1, 1, ROWS),
        "r": random.normal(size=ROWS),
    })  # fmt: skip


@pytest.fixture(scope="module")
def naive() -> Dataset:
    return load_dataset(table(None), columns=COLUMNS)


@pytest.fixture(scope="module")
def zoned() -> Dataset:
    return load_dataset(table("Europe/Berlin"), columns=COLUMNS)


def hour(dataset: Dataset, when: Any) -> float:
    """The hour of day in UTC, or on the data's own clock, as a policy of the dataset sees it."""
    assert dataset.encoder is not None
    _, sine, cosine = np.ravel(dataset.encoder.encode(raw_columns({"x": 0.0, "when": when}, dataset.encoder)))
    return round(float(np.arctan2(sine, cosine)) / (2 * np.pi) * 24, 3) % 24


NOON = datetime.datetime(2024, 3, 1, 12)
BERLIN = datetime.timezone(datetime.timedelta(hours=1))
WITHOUT = ["2024-03-01 12:00", NOON, np.datetime64(NOON), pd.Timestamp(NOON), pd.Series([NOON])[0]]
WITH = ["2024-03-01T12:00+01:00", NOON.replace(tzinfo=BERLIN), pd.Timestamp(NOON, tz="Europe/Berlin")]


@pytest.mark.parametrize("when", WITHOUT, ids=lambda when: type(when).__name__)
def test_times_without_a_zone_suit_data_without_one(when: Any, naive: Dataset, zoned: Dataset) -> None:
    assert hour(naive, when) == 12
    with pytest.raises(UserError, match=r"'when' holds 2024-03-01.12:00.* without a time zone, and the data had one"):
        hour(zoned, when)


@pytest.mark.parametrize("when", WITH, ids=lambda when: type(when).__name__)
def test_times_with_a_zone_suit_data_with_one(when: Any, naive: Dataset, zoned: Dataset) -> None:
    assert hour(zoned, when) == 11  # UTC
    with pytest.raises(UserError, match=r"'when' holds 2024-03-01.12:00.*, with a time zone, and the data had none"):
        hour(naive, when)


@pytest.mark.parametrize("way", ["pandas", "arrow"])
def test_columns_of_tables_keep_their_zone(way: str, naive: Dataset, zoned: Dataset) -> None:
    def rows(zone: str | None) -> Any:
        columns = table(zone).select(["x", "when"])
        return columns.to_pandas() if way == "pandas" else columns

    for dataset, own, other in ((naive, None, "Europe/Berlin"), (zoned, "Europe/Berlin", None)):
        encoder = dataset.encoder
        assert encoder is not None
        expected = load_dataset(
            table(own), columns=COLUMNS | {"time": "when"}
        ).obs  # last rows of episodes are left out
        assert np.allclose(encoder.encode(raw_columns(rows(own), encoder))[: ROWS // 2 - 1], expected[: ROWS // 2 - 1])
        with pytest.raises(UserError, match="time zone"):
            raw_columns(rows(other), encoder)


def test_seconds_are_taken_by_both(naive: Dataset, zoned: Dataset) -> None:
    seconds = NOON.replace(tzinfo=datetime.UTC).timestamp()
    assert hour(naive, seconds) == hour(zoned, seconds) == 12


def test_other_data_for_a_run_need_the_same_clock(naive: Dataset, zoned: Dataset) -> None:
    for dataset, own, other in ((naive, None, "UTC"), (zoned, "UTC", None)):
        assert load_dataset(table(own), columns=COLUMNS, encoder=dataset.encoder).encoder == dataset.encoder
        with pytest.raises(UserError, match=r"the times of column 'when' name .*time zone, and those of the data of"):
            load_dataset(table(other), columns=COLUMNS, encoder=dataset.encoder)


def test_a_column_of_lists_before_the_time_hides_no_zone() -> None:
    """Such a column gives two of the encoder's columns, so those behind it have other places than their names."""
    lists = pa.array(np.random.default_rng(1).normal(size=(ROWS, 2)).tolist())

    def load(zone: str | None, **options: Any) -> Dataset:
        return load_dataset(table(zone).append_column("past", lists), columns=COLUMNS | {"obs": "past,when"}, **options)

    for own, other in ((None, "UTC"), ("UTC", None)):
        encoder = load(own).encoder
        assert encoder is not None
        assert load(own, encoder=encoder).encoder == encoder
        with pytest.raises(UserError, match=r"the times of column 'when' name .*time zone, and those of the data of"):
            load(other, encoder=encoder)


@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
def test_encoders_of_earlier_versions_know_no_zone_and_take_both(zone: str | None) -> None:
    dataset = load_dataset(table(zone), columns=COLUMNS)
    assert dataset.encoder is not None
    earlier = json.loads(json.dumps(dataset.encoder.as_json()))
    for column in earlier:
        column.pop("zone", None)
    encoder = encoder_from_json(earlier)
    assert encoder.columns[1].zone is None
    again = load_dataset(table(zone), columns=COLUMNS, encoder=encoder)
    np.testing.assert_array_equal(again.obs, dataset.obs)
    assert hour(again, NOON) == 12
    assert hour(again, NOON.replace(tzinfo=BERLIN)) == 11


def test_the_zone_is_stored_and_said(naive: Dataset, zoned: Dataset) -> None:
    for dataset in (naive, zoned):
        assert dataset.encoder is not None
        assert encoder_from_json(dataset.encoder.as_json()) == dataset.encoder
    assert zoned.encoder is not None
    assert "is a time in UTC, the sine and cosine" in " ".join(zoned.encoder.describe())


def test_files_of_both_kinds_are_refused() -> None:
    states = StateColumns({"when": "time"})
    states.add("when", table(None)["when"].combine_chunks())
    with pytest.raises(UserError, match="some files name time zones in column 'when' and others do not"):
        states.add("when", table("UTC")["when"].combine_chunks())
