"""Columns whose numbers are so large that float32 rounds them: the offset is found, kept, and subtracted everywhere."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pspo.core.errors import UserError
from pspo.data import Dataset, check, load_dataset, save_dataset
from pspo.data.encoder import Encoder, offset_encoder
from pspo.data.normalise import fit_normaliser
from pspo.data.offsets import subtract
from pspo.dynamics.fit import fit_targets
from pspo.envs.task import get_task
from tests.data.made_up_data import clean_d4rl, clean_fields

ROWS = 600
OFFSETS = [1700020000.0, 6378137.0, 0.0]
FORMATS = ("npz", "hdf5", "parquet", "csv")


def log(seed: int = 0) -> dict[str, np.ndarray]:
    """A clock in unix time, the earth's radius within centimetres, and an ordinary column; a row each minute."""
    rng = np.random.default_rng(seed)
    clock = 1.7e9 + 60.0 * np.arange(ROWS + 1)
    radius = 6378137.0 + 0.05 * rng.uniform(-1, 1, size=ROWS + 1)
    states = np.stack([clock, radius, rng.normal(size=ROWS + 1)], axis=1)
    return {
        "observations": states[:-1],
        "next_observations": states[1:],
        "actions": rng.uniform(-1, 1, size=(ROWS, 1)),
        "rewards": rng.normal(size=ROWS),
        "terminals": np.arange(ROWS) % 50 == 49,
    }


def columns_of(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    table = {f"obs_{c}": arrays["observations"][:, c] for c in range(3)}
    table |= {f"next_obs_{c}": arrays["next_observations"][:, c] for c in range(3)}
    return table | {"action": arrays["actions"][:, 0], "reward": arrays["rewards"], "terminal": arrays["terminals"]}


def constructed(arrays: dict[str, np.ndarray], **options: Any) -> Dataset:
    """By the public constructor."""
    fields = {"obs": "observations", "action": "actions", "reward": "rewards", "next_obs": "next_observations"}
    bounds = {"action_low": arrays["actions"].min(axis=0), "action_high": arrays["actions"].max(axis=0)}
    ends = {"terminal": arrays["terminals"], "timeout": np.zeros(ROWS, bool)}
    given = {field: arrays[name] for field, name in fields.items()}
    if isinstance(encoder := options.get("encoder"), Encoder):  # then arrays are encoded already
        given |= {field: subtract(given[field], encoder.offsets) for field in ("obs", "next_obs")}
    return Dataset(**given, **bounds, **ends, **options)


def minari_dataset(folder: Path, arrays: dict[str, np.ndarray]) -> str:
    """As Minari stores it: one observation more than steps in each episode."""
    minari = pytest.importorskip("minari")
    from gymnasium.spaces import Box
    from minari.data_collector import EpisodeBuffer

    buffers = []
    for number, stop in enumerate(np.flatnonzero(arrays["terminals"]) + 1):
        rows = slice(stop - 50, stop)
        observations = np.concatenate([arrays["observations"][rows], arrays["next_observations"][stop - 1 : stop]])
        flags = {"terminations": list(arrays["terminals"][rows]), "truncations": [False] * 50}
        steps = {"actions": arrays["actions"][rows], "rewards": list(arrays["rewards"][rows])}
        contents: Any = {"observations": observations, **steps, **flags}
        buffers.append(EpisodeBuffer(id=number, **contents))
    name = f"toy/log-v{len([*folder.glob('toy/*')])}"
    boxes = {
        f"{what}_space": Box(-np.inf, np.inf, (arrays[f"{what}s"].shape[1],), np.float64)
        for what in ("observation", "action")
    }
    minari.create_dataset_from_buffers(name, buffers, algorithm_name="test", **boxes)
    return f"minari:{name}"


@pytest.fixture(autouse=True)
def minari_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))


def through(way: str, folder: Path, arrays: dict[str, np.ndarray], **options: Any) -> Dataset:
    if way == "constructor":
        return constructed(arrays, **options)
    if way == "minari":
        return load_dataset(minari_dataset(folder, arrays), **options)
    table, path = columns_of(arrays), folder / f"log.{way}"
    if way == "csv":
        pyarrow.csv.write_csv(pa.table(table), path)
    elif way == "parquet":
        pyarrow.parquet.write_table(pa.table(table), path)
    elif way == "npz":
        np.savez(path, **arrays)  # pyright: ignore[reportArgumentType]
    elif way == "hdf5":
        with h5py.File(path, "w") as file:
            for name, array in arrays.items():
                file[name] = array
    sources = {"frame": pa.table(table), "dictionary": arrays, "named arrays": table}
    if way == "named arrays":
        options["columns"] = {"obs": "obs_*", "next_obs": "next_obs_*"}
    return load_dataset(sources.get(way, str(path)), **options)


def offsets(data: Dataset) -> list[float] | None:
    return None if data.encoder is None else data.encoder.offsets.tolist()


WAYS = ("dictionary", "named arrays", "frame", "constructor", "minari", *FORMATS)
pytestmark = pytest.mark.filterwarnings("ignore")  # Minari's own


@pytest.mark.parametrize("way", WAYS)
def test_every_reader_keeps_what_float32_would_round(way: str, tmp_path: Path) -> None:
    arrays = log()
    data = through(way, tmp_path, arrays)
    assert offsets(data) == OFFSETS
    assert data.obs.dtype == data.next_obs.dtype == np.float32
    for stored, raw in ((data.obs, arrays["observations"]), (data.next_obs, arrays["next_observations"])):
        np.testing.assert_array_equal(stored, (raw - OFFSETS).astype(np.float32))
    assert len(np.unique(data.obs[:, 1])) == ROWS
    again = through(way, tmp_path, log(), encoder=data.encoder)  # as for a run that has this encoder
    assert (again.hash, again.encoder) == (data.hash, data.encoder)


@pytest.mark.parametrize("way", WAYS)
def test_a_run_without_an_encoder_reads_the_bits_that_it_was_trained_on(way: str, tmp_path: Path) -> None:
    data = through(way, tmp_path, log(), encoder=None)
    assert data.encoder is None
    np.testing.assert_array_equal(data.obs, log()["observations"].astype(np.float32))


@pytest.mark.parametrize("way", WAYS)
def test_other_data_for_a_run_are_read_with_its_offsets(way: str, tmp_path: Path) -> None:
    later = log(seed=1)
    for name in ("observations", "next_observations"):
        later[name][:, 0] += 86400.0
    data = through(way, tmp_path, later, encoder=offset_encoder(np.array(OFFSETS), ()))
    np.testing.assert_array_equal(data.obs, (later["observations"] - OFFSETS).astype(np.float32))


@pytest.mark.parametrize("suffix", FORMATS)
def test_saved_data_are_the_same_again(suffix: str, tmp_path: Path) -> None:
    data = load_dataset(log() | {"obs_names": ["obs_0", "obs_1", "obs_2"]})
    again = load_dataset(save_dataset(data, tmp_path / f"out.{suffix}"))
    np.testing.assert_array_equal(again.obs, data.obs)
    np.testing.assert_array_equal(again.next_obs, data.next_obs)
    assert again.encoder == data.encoder is not None
    if suffix != "csv":
        assert again.hash == data.hash


def test_a_csv_holds_raw_numbers(tmp_path: Path) -> None:
    path = save_dataset(load_dataset(log()), tmp_path / "out.csv")
    written = pyarrow.csv.read_csv(path)["obs_0"].to_numpy()
    np.testing.assert_array_equal(written, log()["observations"][:, 0])


def test_next_states_that_are_missing_share_the_offset() -> None:
    arrays = log()
    del arrays["next_observations"]
    data = load_dataset(arrays)
    assert offsets(data) == OFFSETS
    known = data.next_known & ~data.terminal
    np.testing.assert_array_equal((data.next_obs - data.obs)[known, 0], 60.0)


def test_a_cell_that_is_not_finite_does_not_hide_the_offset() -> None:
    arrays = log()
    arrays["observations"][3, 0] = np.nan
    data = load_dataset(arrays)
    assert offsets(data) == OFFSETS
    assert {finding.code for finding in check(data) if finding.level == "error"} == {"not-finite"}


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 1000),
    st.floats(-1e6, 1e6),
    st.sampled_from([1e-9, 1e-3, 1.0, 1e4]),
    st.sampled_from([np.float64, np.float32, np.int64]),
)
def test_other_data_are_what_they_were(seed: int, place: float, unit: float, kind: Any) -> None:
    """Float64 that float32 holds well enough is rounded as before, bit for bit; so are integers that are exact."""
    arrays = clean_d4rl(seed=seed)
    width = unit * (1.0 if kind is np.int64 else max(1.0, abs(place) / 2.0 / unit))
    for name in ("observations", "next_observations"):
        arrays[name] = (place + width * arrays[name].astype(np.float64)).astype(kind)
    narrow = arrays | {name: arrays[name].astype(np.float32) for name in ("observations", "next_observations")}
    data = load_dataset(arrays)
    assert data.encoder is None
    assert data.hash == load_dataset(narrow).hash


@pytest.mark.parametrize("column", [np.full(60, 6378137.05), 1.7e9 + 128.0 * np.arange(60), 1e300 + np.zeros(60)])
def test_constants_and_numbers_that_float32_has_need_no_offset(column: np.ndarray) -> None:
    arrays = clean_d4rl()
    for name in ("observations", "next_observations"):
        arrays[name] = arrays[name].astype(np.float64)
        arrays[name][:, 1] = column
    assert load_dataset(arrays).encoder is None


def test_a_csv_of_float32_numbers_has_no_digits_to_save(tmp_path: Path) -> None:
    """Its decimals are not exactly the float32 numbers, but there is nothing beyond them."""
    arrays = clean_d4rl()
    for name in ("observations", "next_observations"):
        arrays[name] = (np.float32(1.1) + np.float32(1e-6) * arrays[name]).astype(np.float32)
    data = load_dataset(arrays)
    again = load_dataset(save_dataset(data, tmp_path / "out.csv"))
    assert again.encoder is None
    np.testing.assert_array_equal(again.obs, data.obs)


def test_the_hash_depends_on_the_offset() -> None:
    data = load_dataset(log())
    elsewhere = dataclasses.replace(data, encoder=offset_encoder(np.array(OFFSETS) + 1.0))
    assert elsewhere.hash != data.hash
    assert dataclasses.replace(data, name="other").hash == data.hash
    with pytest.raises(UserError, match="the encoder gives 2 columns where obs has 3"):
        dataclasses.replace(data, encoder=offset_encoder(np.zeros(2)))


def test_models_see_differences() -> None:
    data = load_dataset(log())
    norm = fit_normaliser(data)
    np.testing.assert_allclose(norm.encode(data.obs)[:, :3].std(axis=0), 1.0, atol=0.01)
    _, mean, std = fit_targets(data, norm)
    assert (mean[0], std[0]) == (60.0, 1.0)  # a clock that advances steadily


def test_check_names_the_columns_and_their_offsets() -> None:
    data = load_dataset(log() | {"obs_names": ["time", "radius", "noise"]})
    found = [finding.message for finding in check(data) if finding.code == "encoded-obs"]
    assert found == [
        "obs column 'time' is a number minus 1700020000.0, subtracted before float32 rounds it.",
        "obs column 'radius' is a number minus 6378137.0, subtracted before float32 rounds it.",
    ]
    assert not [finding for finding in check(data) if finding.code.startswith(("constant", "rounded"))]


@pytest.mark.parametrize("columns", [(0, 1, 2), (2, 3)], ids=["offset", "lost"])
def test_fewer_names_than_columns_are_refused(columns: tuple[int, ...]) -> None:
    """Where float32 rounds a column they used to be left out without a word, or to end in an IndexError."""
    arrays = log()
    clock = np.where(np.arange(600) < 300, 1e8, 1e9) + np.arange(600)  # no offset saves its digits
    arrays["observations"] = np.column_stack([arrays["observations"], clock])[:, columns]
    del arrays["next_observations"]
    found = load_dataset(dict(arrays))
    assert (found.encoder is None) == (3 in columns)
    assert any("is rounded to float32 in steps of" in note for note in found.notes) == (3 in columns)
    with pytest.raises(UserError, match=f"'obs_names' are 1 where there are {len(columns)} columns: name all, or none"):
        load_dataset(arrays | {"obs_names": ["first"]})


@pytest.mark.parametrize("way", WAYS)
def test_actions_and_rewards_that_are_rounded_get_a_note(way: str, tmp_path: Path) -> None:
    arrays = log()
    arrays["actions"], arrays["rewards"] = 1e7 + arrays["actions"], 1e9 + arrays["rewards"]
    action, reward = (note for note in through(way, tmp_path, arrays).notes if "is rounded to float32" in note)
    assert action.startswith("action column 0 is rounded to float32, which leaves 3 of 600 different values")
    assert reward.startswith("reward is rounded to float32, which leaves 1 of 600 different values")


def test_ordinary_actions_and_rewards_get_no_note() -> None:
    wide = {name: array.astype(np.float64) for name, array in clean_d4rl().items() if array.dtype != bool}
    assert load_dataset(clean_d4rl() | wide).notes == ()


def test_a_simulator_refuses_data_whose_offset_it_does_not_know() -> None:
    with pytest.raises(UserError, match="has columns that are encoded"):
        get_task("liquidation").require_fit("the dataset 'x'", load_dataset(log()))


def test_the_constructor_keeps_every_minute_and_its_names() -> None:
    clock = 1.7e9 + 60.0 * np.arange(2001)
    fields = clean_fields(rows=2000)
    fields["obs"], fields["next_obs"] = clock[:-1, None], clock[1:, None]
    data = Dataset(**fields, obs_names=("clock",))
    assert len(np.unique(data.obs)) == 2000
    assert (data.obs_names, data.raw_obs_names) == (("clock",), ("clock",))
    np.testing.assert_array_equal(data.obs + data.encoder.offsets, fields["obs"])  # pyright: ignore[reportOptionalMemberAccess]
    assert dataclasses.replace(data, name="other").hash == data.hash
    assert load_dataset(data) is data


def test_a_named_dataset_is_not_read_for_a_run_with_another_encoder() -> None:
    with pytest.raises(UserError, match="'liquidation' was not encoded as the data of the run"):
        load_dataset("liquidation", size=100, encoder=offset_encoder(np.ones(7)))
