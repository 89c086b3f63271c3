"""What float32 would round away although a few numbers hide it, and what not even an offset can save."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest

from pspo.core.errors import UserError
from pspo.data import load_dataset
from pspo.data.check import check, check_source
from pspo.data.offsets import lost_notes, offsets_of
from tests.data.test_offsets import OFFSETS, ROWS, WAYS, columns_of, constructed, log, minari_folder, offsets, through

__all__ = ["minari_folder"]  # a fixture
pytestmark = pytest.mark.filterwarnings("ignore")  # Minari's own


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("share", [0.01, 0.3])
def test_a_sensor_that_is_sometimes_off_keeps_what_it_measures(way: str, share: float, tmp_path: Path) -> None:
    arrays = log()
    off = np.random.default_rng(2).random(ROWS) < share
    for name in ("observations", "next_observations"):
        arrays[name][off, 1] = 0.0
    data = through(way, tmp_path, arrays)
    assert offsets(data) == OFFSETS
    assert len(np.unique(data.obs[:, 1])) == len(np.unique(arrays["observations"][:, 1]))
    assert data.obs[off, 1].tolist() == [-OFFSETS[1]] * off.sum()
    assert not [note for note in data.notes if "rounded" in note]


def two_places(change: float) -> np.ndarray:
    """Northings of two sites, between which lie 800 km; a vehicle moves by less than float32 can tell."""
    place = change * np.random.default_rng(3).normal(size=ROWS + 1).cumsum()
    return place + np.where(np.arange(ROWS + 1) < ROWS // 2, 5.0e6, 5.8e6)


LOST = "is rounded to float32 in steps of 0.03125, where it usually changes by 0.0"


@pytest.mark.parametrize("way", WAYS)
def test_what_no_offset_can_save_gets_a_note(way: str, tmp_path: Path) -> None:
    arrays = log()
    arrays["observations"][:, 2], arrays["next_observations"][:, 2] = two_places(0.02)[:-1], two_places(0.02)[1:]
    (note,) = (note for note in through(way, tmp_path, arrays).notes if "rounded" in note)
    name = "2" if way in ("constructor", "dictionary", "minari", "npz", "hdf5") else "'obs_2'"
    assert note.startswith(f"obs column {name} {LOST}")


def test_changes_that_float32_holds_get_no_note() -> None:
    for column in (two_places(20.0), np.exp(10.0 * np.random.default_rng(4).normal(size=ROWS + 1))):
        assert offsets_of(column[:, None]) is None or column.max() > 1e6
        assert lost_notes(offsets_of(column[:, None]), column[:, None]) == []


def test_data_far_from_the_offset_of_a_run_get_a_note() -> None:
    arrays = log()
    encoder = load_dataset(arrays).encoder
    for name in ("observations", "next_observations"):
        arrays[name][:, 1] += 3e6
    (note,) = load_dataset(arrays, encoder=encoder).notes
    assert load_dataset(arrays).notes == ()
    assert note.startswith("obs column 1 is rounded to float32 in steps of 0.5")


@pytest.mark.parametrize("way", ["dictionary", "frame", "csv", "hdf5"])
def test_numbers_that_float32_makes_zero_get_a_note(way: str, tmp_path: Path) -> None:
    arrays = log()
    for name in ("observations", "next_observations", "rewards"):
        arrays[name] = 1e-60 * arrays[name]
    reward, *obs = [note for note in through(way, tmp_path, arrays).notes if "makes it 0" in note]
    assert reward == "reward is too small for float32, which makes it 0: log it in a larger unit."
    assert len(obs) == 3
    assert all(note.startswith("obs column") for note in obs)


def test_times_of_two_seasons_get_a_note() -> None:
    pa = pytest.importorskip("pyarrow")
    table = columns_of(log())
    seconds = 1_700_000_000 + np.arange(ROWS) + np.where(np.arange(ROWS) < ROWS // 2, 0, 150_000_000)
    states = {"clock": seconds.astype("datetime64[s]"), "x": table["obs_2"]}
    rest = {name: table[name] for name in ("action", "reward", "terminal")}
    data = load_dataset(pa.table(states | rest), columns={"obs": ["clock", "x"]})
    assert [note for note in data.notes if note.startswith("obs column 'clock' is rounded to float32 in steps of 8")]
    data = load_dataset(pa.table(states | rest), columns={"obs": ["clock", "x"], "cyclic": ["hour_of_day"]})
    assert not [note for note in data.notes if "rounded" in note]


def test_check_shows_times_as_they_are_in_the_file() -> None:
    arrays = log()
    for name in ("observations", "next_observations"):
        arrays[name][ROWS // 2 + 5 :, 0] += 6000.0
        arrays[name] = arrays[name][:, :1]
    arrays["timeouts"], arrays["terminals"] = arrays["terminals"], np.zeros(ROWS, bool)
    data = load_dataset(arrays)
    (message,) = (finding.message for finding in check(data) if finding.code == "missing-rows")
    assert "goes from 1700018240 to 1700024300 after row 304" in message
    _, findings = check_source(data, holdout=0.2, holdout_by="time")
    (message,) = (finding.message for finding in findings if finding.code == "holdout-differs")
    assert "training part's range (1700000000 to 1700041940) in 100%" in message


def test_check_of_infinite_numbers_has_no_warnings_of_numpy() -> None:
    arrays = log()
    arrays["observations"][:, 2] = np.inf
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert "not-finite" in [finding.code for finding in check(load_dataset(arrays))]


def test_a_run_without_an_encoder_says_how_to_build_its_dataset() -> None:
    with pytest.raises(UserError, match="or build the Dataset with encoder=None"):
        load_dataset(constructed(log()), encoder=None)
    assert load_dataset(constructed(log(), encoder=None), encoder=None).encoder is None


def test_texts_beside_a_column_of_lists_are_read_again_for_a_run() -> None:
    """The columns of the table are fewer than those of the encoder."""
    pa = pytest.importorskip("pyarrow")

    def table(*labels: str) -> object:
        lists = pa.array(list(np.random.default_rng(5).normal(size=(ROWS, 3))))
        rest = {name: columns_of(log())[name] for name in ("action", "reward", "terminal")}
        return pa.table({"obs_vector": lists, "obs_mode": [labels[row % 2] for row in range(ROWS)], **rest})

    data = load_dataset(table("a", "b"))
    again = load_dataset(table("a", "b"), encoder=data.encoder)
    assert again.hash == data.hash
    note, *_ = load_dataset(table("a", "c"), encoder=data.encoder).notes
    assert note.startswith("column 'obs_mode' has 300 rows with other texts than the categories of the run")


def test_numbers_that_float64_makes_equal_are_not_called_constant() -> None:
    """Identifiers near 2^64: their neighbours in float64 are 2048 apart."""
    rows = np.arange(ROWS)
    pa = pytest.importorskip("pyarrow")
    table = pa.table({"obs_x": np.sin(rows), "obs_id": rows.astype(np.uint64) + np.uint64(2**64 - 1000)})
    for name in ("action", "reward", "terminal"):
        table = table.append_column(name, pa.array(columns_of(log())[name]))
    messages = [finding.message for finding in check(load_dataset(table))]
    assert any("never changes as far as float64 tells" in message for message in messages), messages


@pytest.mark.parametrize("way", ["dictionary", "frame", "hdf5"])
def test_numbers_beyond_those_of_float64_get_a_note(way: str, tmp_path: Path) -> None:
    arrays = log()
    for name, first in (("observations", 0), ("next_observations", 1)):
        arrays[name] = (2**60 + np.arange(first, ROWS + first))[:, None] * np.ones(3, np.int64)
    notes = through(way, tmp_path, arrays).notes
    assert len([note for note in notes if "that even float64 rounds their changes" in note]) == 3
