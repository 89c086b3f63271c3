"""Texts, times, truth values and gaps of a table's state become columns of numbers, the same from every source."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pspo.core.errors import UserError
from pspo.data import Dataset, check, fit_normaliser, load_dataset, lost_in, save_dataset
from pspo.data.encoder import CYCLES, EncodedColumn, Encoder, encoder_from_json
from pspo.data.fit_encoder import FEW_ROWS, MOST_CATEGORIES, fit_category

ROWS = 1200
COLUMNS = {"categorical": "obs_kind", "cyclic": "hour_of_day,day_of_week"}


def frame(seed: int = 0) -> pd.DataFrame:
    """An hour between rows; a category with gaps, a price with gaps, a truth value, numbers that are names, a clock."""
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(
        {
            "obs_zone": rng.choice(["north", "south", "east"], ROWS, p=[0.6, 0.3, 0.1]),
            "obs_when": pd.date_range("2024-01-01", periods=ROWS, freq="h"),
            "obs_price": rng.normal(size=ROWS).round(3),
            "obs_open": rng.random(ROWS) < 0.5,
            "obs_kind": rng.integers(0, 4, ROWS),
            "obs_clock": 1.7e9 + 60.0 * np.arange(ROWS),
            "action": rng.uniform(-1, 1, ROWS).round(3),
            "reward": rng.normal(size=ROWS).round(3),
            "terminal": np.arange(ROWS) % 20 == 19,
        }
    )
    table["obs_price"] = table["obs_price"].mask(rng.random(ROWS) < 0.1)
    table["obs_zone"] = table["obs_zone"].mask(rng.random(ROWS) < 0.05)
    return table


def written(table: pd.DataFrame, folder: Path, way: str) -> Any:
    path = folder / f"log.{way}"
    if way == "csv":
        table.to_csv(path, index=False)
    elif way == "parquet":
        table.to_parquet(path)
    return {"frame": table, "categorical": table.astype({"obs_zone": "category"})}.get(way, path)


@pytest.mark.parametrize("way", ["csv", "parquet", "frame", "categorical"])
def test_columns_are_those_that_pandas_and_numpy_give(way: str, tmp_path: Path) -> None:
    table = frame()
    data = load_dataset(written(table, tmp_path, way), columns=COLUMNS)
    hours = np.arange(ROWS)
    expected = {f"obs_zone={zone}": table["obs_zone"] == zone for zone in ("east", "north", "south")}
    expected["obs_zone is missing"] = table["obs_zone"].isna()
    for cycle, turns in (("hour_of_day", hours / 24), ("day_of_week", hours / 168)):  # 1 January 2024 was a Monday
        expected[f"obs_when {cycle} sin"] = np.sin(2 * np.pi * turns)
        expected[f"obs_when {cycle} cos"] = np.cos(2 * np.pi * turns)
    median = table["obs_price"].sort_values().dropna().iloc[(table["obs_price"].notna().sum() - 1) // 2]
    expected["obs_price"] = table["obs_price"].fillna(median)
    expected["obs_price is missing"] = table["obs_price"].isna()
    expected["obs_open"] = table["obs_open"]
    expected |= {f"obs_kind={kind}": table["obs_kind"] == kind for kind in range(4)}
    expected["obs_clock"] = table["obs_clock"] - 1700040000.0
    assert data.obs_names == tuple(expected)
    assert data.raw_obs_names == tuple(name for name in table if name.startswith("obs_"))
    for column, (name, values) in enumerate(expected.items()):
        np.testing.assert_allclose(data.obs[:, column], np.float32(values)[: data.size], atol=2e-6, err_msg=name)
    assert not [finding for finding in check(data) if finding.level == "error"]


def test_all_sources_give_the_same_dataset(tmp_path: Path) -> None:
    ways = ("csv", "parquet", "frame", "categorical")
    data = [load_dataset(written(frame(), tmp_path, way), columns=COLUMNS) for way in ways]
    assert len({each.hash for each in data}) == 1
    for suffix in ("npz", "hdf5", "parquet"):
        again = load_dataset(save_dataset(data[0], tmp_path / f"again.{suffix}"))
        assert (again.hash, again.encoder) == (data[0].hash, data[0].encoder)
    assert "a CSV keeps no encoder" in lost_in(data[0], "x.csv")[0]


def test_times_without_cycles_are_seconds(tmp_path: Path) -> None:
    data = load_dataset(frame())
    assert data.encoder is not None
    column = data.obs_names.index("obs_when")
    raw = data.obs[:, column].astype(np.float64) + data.encoder.offsets[column]
    np.testing.assert_array_equal(raw, 1704067200.0 + 3600.0 * np.arange(ROWS)[: data.size])
    with pytest.raises(UserError, match="no column of the state holds dates or times"):
        load_dataset(frame().drop(columns="obs_when"), columns={"cyclic": "hour_of_day"})
    with pytest.raises(UserError, match="unknown cycle 'hour'"):
        load_dataset(frame(), columns={"cyclic": "hour"})


def test_next_states_have_the_same_columns() -> None:
    table = frame()
    after = table.filter(like="obs_").shift(-1).rename(columns=lambda name: f"next_{name}")
    data = load_dataset(pd.concat([table, after.mask(table["terminal"])], axis=1), columns=COLUMNS)
    own = load_dataset(table, columns=COLUMNS)
    assert data.obs_names == own.obs_names
    inside = ~data.episode_end
    np.testing.assert_array_equal(data.next_obs[inside], data.obs[1:][inside[:-1]])
    assert not data.next_known[data.terminal].any()  # rows without a next state are no rows with gaps


def test_other_data_are_encoded_as_the_first(tmp_path: Path) -> None:
    encoder = load_dataset(frame(0), columns=COLUMNS).encoder
    later = frame(1)
    later.loc[3, "obs_zone"] = "west"
    data = load_dataset(later[later.columns[::-1]], columns=COLUMNS, encoder=encoder)
    assert data.encoder == encoder
    assert not data.obs[3, :4].any()
    assert [note for note in data.notes if "'obs_zone' has 1 rows with other texts" in note and "'west'" in note]
    assert encoder is not None
    one_by_one = encoder.columns[0].encode(later["obs_zone"].fillna("").to_numpy(object))
    np.testing.assert_array_equal(data.obs[:, :4], np.stack(one_by_one, axis=1)[: data.size])
    with pytest.raises(UserError, match="the state lacks 'obs_open'"):
        load_dataset(later.drop(columns="obs_open"), columns=COLUMNS, encoder=encoder)


def test_a_run_without_an_encoder_refuses_texts() -> None:
    with pytest.raises(UserError, match="column 'obs_zone' holds values of type"):
        load_dataset(frame(), encoder=None)


# Categories


def test_the_most_frequent_categories_have_columns() -> None:
    counts = {f"c{i:02d}": 100 + i for i in range(40)}
    column = fit_category("x", counts)
    assert column.categories == tuple(f"c{i:02d}" for i in range(8, 40))
    assert len(column.categories) == MOST_CATEGORIES
    assert column.other == sum(counts[f"c{i:02d}"] for i in range(8))
    assert fit_category("x", {"a": 5000, "b": FEW_ROWS - 1, "c": FEW_ROWS}).categories == ("a", "c")
    assert fit_category("x", {"a": 3, "b": 1}).categories == ("a", "b")  # few rows in all
    assert fit_category("x", {"10": 9, "9": 9, "z": 9, "": 1}).categories == ("9", "10", "z", "")
    with pytest.raises(UserError, match="has 5000 different texts, and none in more than 1 rows"):
        fit_category("id", {str(i): 1 for i in range(5000)})


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from(["a", "b", "c", "", "new", "A"]), min_size=1, max_size=20))
def test_a_row_is_one_category_or_none(texts: list[str]) -> None:
    column = EncodedColumn("x", "category", categories=("a", "b", ""))
    encoded = np.stack(column.encode(np.array(texts, object)), axis=-1)
    for row, text in zip(encoded, texts, strict=True):
        assert row.tolist() == [float(text == category) for category in column.categories]


def test_a_number_with_a_wrong_cell_is_no_category(tmp_path: Path) -> None:
    table = frame().astype({"obs_price": object})
    table.loc[5, "obs_price"] = "1.2.3"
    with pytest.raises(UserError, match=r"column 'obs_price' holds '1.2.3' at row 5 .*not a number"):
        load_dataset(written(table, tmp_path, "csv"))
    (tmp_path / "log.csv").write_text(frame().to_csv(index=False, na_rep="nan"))
    data = load_dataset(tmp_path / "log.csv")  # nan is a value, not a gap
    assert "not-finite" in {finding.code for finding in check(data)}


# The encoder itself


@settings(max_examples=30, deadline=None)
@given(st.floats(0, 4e9), st.sampled_from(sorted(CYCLES)))
def test_cycles_are_where_the_calendar_is(seconds: float, cycle: str) -> None:
    sine, cosine = EncodedColumn("t", "time", cyclic=(cycle,)).encode(np.array(seconds))
    moment = pd.Timestamp(seconds, unit="s")
    day = moment.hour / 24 + moment.minute / 1440 + (moment.second + moment.microsecond / 1e6) / 86400
    turns = {
        "minute_of_hour": (day * 24) % 1,
        "hour_of_day": day,
        "day_of_week": (moment.day_of_week + day) / 7,
        "day_of_year": (moment.day_of_year - 1 + day) / 365.2425,
    }
    slack = 0.03 if cycle == "day_of_year" else 1e-3  # the calendar's leap days
    assert np.hypot(sine - np.sin(2 * np.pi * turns[cycle]), cosine - np.cos(2 * np.pi * turns[cycle])) < slack


def test_an_encoder_is_json_and_only_a_sound_one_is_read() -> None:
    encoder = load_dataset(frame(), columns=COLUMNS).encoder
    assert encoder is not None
    stored = json.loads(json.dumps(encoder.as_json()))
    assert encoder_from_json(stored) == encoder
    for wrong in (
        {"kind": "text"},
        {"offset": float("nan")},
        {"offset": "1"},
        {"categories": ["a", "a"], "kind": "category"},
        {"categories": ["a"]},
        {"kind": "category"},
        {"cyclic": ["moon"], "kind": "time"},
        {"categories": [str(i) for i in range(2000)], "kind": "category"},
        {"unknown": 1},
        {"name": 3},
    ):
        with pytest.raises(ValueError, match="column"):
            encoder_from_json([wrong])
    for wrong in ([], {}, None, [3]):
        with pytest.raises(ValueError, match="encoder"):
            encoder_from_json(wrong)


# Networks and models


def categories(seed: int, other: int) -> Dataset:
    """A state of one category, drawn in each step, and a number."""
    rng = np.random.default_rng(seed)
    texts = rng.choice(["a", "b", "c", "d"], ROWS, p=[0.6, 0.3, 0.1 - 0.002 * other, 0.002 * other])
    table = {"obs_x": texts, "obs_y": rng.normal(size=ROWS), "action": rng.uniform(-1, 1, ROWS)}
    return load_dataset(pd.DataFrame(table | {"reward": 0.0, "terminal": np.arange(ROWS) % 30 == 29}))


def test_predictions_are_snapped_to_a_category() -> None:
    """As they come from models: a Gaussian for each column, with the mean and the deviation of the column."""
    data, rng = categories(0, other=0), np.random.default_rng(1)
    norm = fit_normaliser(data)
    share = data.obs[:, :3].mean(axis=0)
    predicted = np.concatenate(
        [share + np.sqrt(share * (1 - share)) * rng.normal(size=(4000, 3)), np.ones((4000, 1))], 1
    )
    snapped = norm.snap(predicted.astype(np.float32))
    assert (snapped[:, :3].sum(axis=1) == 1).all()
    assert np.isin(snapped[:, :3], (0.0, 1.0)).all()
    np.testing.assert_array_equal(snapped[:, 3], 1.0)
    single = (predicted[:, :3] > 0.5).sum(axis=1) == 1  # column by column, as other grids are snapped
    assert single.mean() < 0.7
    frequency = snapped[:, :3].mean(axis=0)
    assert (np.argsort(frequency) == np.argsort(share)).all()
    np.testing.assert_allclose(frequency, share, atol=0.12)


def test_zeros_are_valid_where_the_dataset_has_them() -> None:
    norm = fit_normaliser(categories(0, other=3))  # d has fewer rows than a category needs
    assert norm.one_hot is not None
    assert norm.one_hot.tolist() == [[0, 3, 1]]
    near = np.float32([[0.2, 0.4, 0.1, 0.0], [0.2, 0.7, 0.6, 0.0]])
    np.testing.assert_array_equal(norm.snap(near)[:, :3], [[0, 0, 0], [0, 1, 0]])
    assert fit_normaliser(categories(0, other=0)).one_hot.tolist() == [[0, 3, 0]]


def test_networks_see_each_category_once_and_rare_ones_not_far_away() -> None:
    table = frame()
    table["obs_zone"] = np.where(np.arange(ROWS) == 7, None, "north")
    data = load_dataset(table[["obs_zone", "obs_price", "action", "reward", "terminal"]])
    norm = fit_normaliser(data)
    assert data.obs_names[:2] == ("obs_zone=north", "obs_zone is missing")
    assert np.abs(norm.encode(data.obs)[:, 1]).max() < 10.01
    assert 0 not in norm.grid_column
    assert norm.features == 4 + 2  # a hat for each value of the price's indicator, none for categories


def test_the_offsets_of_a_mixed_encoder_are_in_their_columns() -> None:
    columns = (
        EncodedColumn("a", "category", categories=("x", "y")),
        EncodedColumn("b", offset=5.0, fill=6.0),
        EncodedColumn("c", "time", cyclic=("hour_of_day",)),
        EncodedColumn("d", offset=-2.0),
    )
    encoder = Encoder(columns)
    assert encoder.offsets.tolist() == [0, 0, 5, 0, 0, 0, -2]
    assert encoder.flags.tolist() == [True, True, False, True, False, False, False]
    encoded = encoder.encode([np.array("y", object), np.array(np.nan), np.array(0.0), np.array(1.0)])
    np.testing.assert_allclose(encoded, [0, 1, 1, 1, 0, 1, 3])


@pytest.mark.parametrize("form", ["{:,.2f}", "{:.3f}%", "${:.2f}", "{:.2E}"])
def test_numbers_that_were_written_as_texts_are_no_categories(form: str) -> None:
    """Of 600 of them a few would become categories, and all others the same row of zeros."""
    texts = {form.format(1234.5 * number).replace("E", "D"): 2 + 50 * (number == 3) for number in range(1, 600)}
    with pytest.raises(UserError, match="'x' holds texts that look like numbers, such as '"):
        fit_category("x", texts)
    assert fit_category("x", texts, wanted=True).categories
    assert fit_category("x", texts | {"none": 1}).categories


@pytest.mark.parametrize("wanted", [None, "obs_price"])
def test_categories_that_are_wanted_may_look_like_numbers(wanted: str | None, tmp_path: Path) -> None:
    table = frame()
    table["obs_price"] = [f"{row % 40 / 10:.1f}".replace(".", ",") for row in range(ROWS)]
    path = written(table, tmp_path, "parquet")
    if wanted is None:
        with pytest.raises(UserError, match="'obs_price' holds texts that look like numbers"):
            load_dataset(path)
    else:
        assert "obs_price=0,1" in load_dataset(path, columns={"categorical": wanted}).obs_names
