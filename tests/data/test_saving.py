"""Every format that can be written: a round trip keeps the hash, and losses are reported."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pandas as pd
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pspo.core.errors import UserError
from pspo.data import Dataset, load_dataset, lost_in, save_dataset
from pspo.data import save as save_module
from pspo.data.column_order import in_order_of
from pspo.data.load import FILE_READERS
from tests.data.made_up_data import clean_d4rl, clean_fields, datasets
from tests.refusals import message_of

KEEP_ALL = (".npz", ".hdf5", ".parquet")


def test_every_readable_format_can_be_written() -> None:
    assert set(save_module.WRITERS) == set(FILE_READERS)


@given(datasets(gaps=True), st.sampled_from(KEEP_ALL))
@settings(max_examples=60, deadline=None)
def test_a_round_trip_keeps_everything(dataset: Dataset, suffix: str) -> None:
    dataset = replace(dataset, notes=("one.", "and another."))
    with tempfile.TemporaryDirectory() as folder:
        result = load_dataset(save_dataset(dataset, Path(folder) / f"other{suffix}"))
    assert result.hash == dataset.hash
    assert (result.name, result.task) == (dataset.name, dataset.task)
    # Reading may add one note: whole numbers could be labels, which a Dataset in memory is not asked about.
    assert [note for note in result.notes if "not as labels" not in note] == list(dataset.notes)


@given(datasets(gaps=True), st.integers(0, 2**32 - 1))
@settings(max_examples=60, deadline=None)
def test_a_csv_keeps_every_bit_of_every_number(dataset: Dataset, seed: int) -> None:
    """All but the bounds and the task; numbers of any size and sign, as bits drawn at random give them."""
    bits = np.random.default_rng(seed).integers(0, 2**32, size=dataset.obs.shape, dtype=np.uint32).view(np.float32)
    dataset = replace(dataset, obs=np.where(np.isnan(bits), np.float32(-0.0), bits))
    action = np.random.default_rng(seed).uniform(-1, 1, size=dataset.action.shape)
    dataset = replace(
        dataset,
        action=action,
        action_low=np.full_like(dataset.action_low, -1),
        action_high=np.ones_like(dataset.action_high),
    )
    with tempfile.TemporaryDirectory() as folder:
        result = load_dataset(save_dataset(dataset, Path(folder) / "logs.csv"), task=dataset.task)
    assert result.hash == dataset.hash
    assert (result.name, result.notes) == ("logs", ())


@pytest.mark.parametrize("suffix", [*KEEP_ALL, ".csv"])
def test_nan_is_kept_and_is_not_a_missing_value(tmp_path: Path, suffix: str) -> None:
    fields = clean_fields()
    fields["next_obs"][5] = np.nan  # a terminal, with a next state that was logged
    fields["obs"][7, 1] = np.inf
    result = load_dataset(save_dataset(Dataset(**fields), tmp_path / f"x{suffix}"))
    assert result.next_known.all()
    assert np.isnan(result.next_obs[5]).all()
    assert result.obs[7, 1] == np.inf


@pytest.mark.parametrize("suffix", [*KEEP_ALL, ".csv"])
def test_large_datasets_are_written_in_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str) -> None:
    monkeypatch.setattr(save_module, "ROWS_AT_A_TIME", 7)
    dataset = Dataset(**clean_fields(), next_known=~clean_fields()["terminal"])
    assert load_dataset(save_dataset(dataset, tmp_path / f"x{suffix}")).hash == dataset.hash


def test_tables_can_be_read_by_other_programs(tmp_path: Path) -> None:
    dataset = Dataset(**clean_fields(), next_known=~clean_fields()["terminal"])
    for frame in (
        pd.read_csv(save_dataset(dataset, tmp_path / "x.csv")),
        pd.read_parquet(save_dataset(dataset, tmp_path / "x.parquet")),
    ):
        names = ["obs_0", "obs_1", "obs_2", "action_0", "action_1", "reward", "next_obs_0", "next_obs_1", "next_obs_2"]
        assert list(frame.columns) == [*names, "terminal", "timeout"]
        np.testing.assert_allclose(frame["obs_1"], dataset.obs[:, 1], rtol=1e-6)
        np.testing.assert_array_equal(frame["next_obs_0"].isna(), dataset.terminal)
        np.testing.assert_array_equal(frame["timeout"], dataset.timeout)


NAMES = [  # of obs and action, and as columns of a table
    (("obs_time", "obs_stock", "obs_price"), ("action_sell", "action_hedge"), "obs_time", "action_hedge"),
    (("steps taken", "stock", "price"), ("sell", "hedge"), "obs_steps taken", "action_hedge"),
    (("s2", "s10", "s1"), ("a1", "a0"), "s2", "a0"),
    (("obs_b", "state_a", "next"), ("action_b", "reward"), "obs_0", "action_1"),  # have the same name
    (("obs_a,b", 'obs_"c"', "obs_d"), ("u", "v"), "obs_0", "action_1"),
]


@pytest.mark.parametrize("suffix", [*KEEP_ALL, ".csv"])
@pytest.mark.parametrize(("obs", "action", "first", "last"), NAMES)
def test_names_of_columns_are_kept(tmp_path: Path, suffix: str, obs, action, first: str, last: str) -> None:
    dataset = Dataset(**clean_fields(), next_known=~clean_fields()["terminal"], obs_names=obs, action_names=action)
    result = load_dataset(save_dataset(dataset, tmp_path / f"x{suffix}"))
    assert result.hash == dataset.hash
    if suffix in (".npz", ".hdf5"):
        assert (result.obs_names, result.action_names) == (obs, action)
    else:
        assert (result.obs_names[0], result.action_names[-1]) == (first, last)
    lost = [sentence for sentence in lost_in(dataset, f"x{suffix}") if "names of the columns" in sentence]
    assert len(lost) == (first == "obs_0" and suffix in (".csv", ".parquet"))
    if first != "obs_0":  # the file can be given for a run on the dataset
        brought = in_order_of(result, obs, action)
        assert (brought.hash, brought.obs_names, brought.action_names) == (dataset.hash, obs, action)


def test_losses_of_a_csv_are_reported() -> None:
    fields = clean_fields()
    assert lost_in(Dataset(**fields), "x.csv") == []
    wide = Dataset(**{**fields, "action_high": np.full(2, 3.0)}, task="hopper")
    task, bounds = lost_in(wide, "x.csv")
    assert "--task hopper" in task
    assert "they are -1 and 1" in bounds
    assert lost_in(wide, "x.parquet") == []
    (beyond,) = lost_in(Dataset(**{**fields, "action": fields["action"] * 2, "action_high": np.full(2, 3.0)}), "x.csv")
    assert "smallest and largest action" in beyond
    (constant,) = lost_in(
        Dataset(**{**fields, "action": np.full((60, 2), 2.0), "action_high": np.full(2, 3.0)}), "x.csv"
    )
    assert "cannot be read" in constant


def write_arrays_to(path: Path, arrays: dict) -> Path:
    if path.suffix == ".npz":
        np.savez(path, **arrays)
    else:
        with h5py.File(path, "w") as file:
            for name, array in arrays.items():
                file[name] = array
    return path


TIMES = {
    "days": np.datetime64("2024-01-01") + np.arange(60),
    "hours": (np.datetime64("2024-01-01T00:00:00.000001") + np.arange(60) * np.timedelta64(1, "h")),
    "counts": 10**17 + np.arange(60),  # more digits than a float has
    "numbers": np.arange(60) / 3,
}


@pytest.mark.parametrize("suffix", KEEP_ALL)
@pytest.mark.parametrize("times", TIMES.values(), ids=TIMES)
def test_times_and_the_rewards_of_dropped_rows_are_kept(tmp_path: Path, suffix: str, times: np.ndarray) -> None:
    last = np.where(clean_fields()["timeout"], np.float32(2.5), np.float32(np.nan))
    last[-1] = 1.5
    dataset = Dataset(**clean_fields(), row_times=times, time_name="when", last_reward=last)
    assert lost_in(dataset, f"x{suffix}") == []
    result = load_dataset(save_dataset(dataset, tmp_path / f"x{suffix}"))
    assert result.hash == dataset.hash
    assert result.notes == dataset.notes
    assert result.time_name == "when"
    assert result.row_times is not None
    assert result.row_times.dtype == times.dtype
    np.testing.assert_array_equal(result.row_times, times)
    assert result.last_reward is not None
    np.testing.assert_array_equal(result.last_reward, last)


def test_a_folder_of_parquet_files_keeps_both_too(tmp_path: Path) -> None:
    last = np.where(clean_fields()["timeout"], np.float32(2.5), np.float32(np.nan))
    (tmp_path / "parts").mkdir()
    for number in range(2):
        times = np.datetime64("2024-01-01") + 60 * number + np.arange(60)
        dataset = Dataset(**clean_fields(), row_times=times, time_name="when", last_reward=last)
        save_dataset(dataset, tmp_path / "parts" / f"part-{number}.parquet")
    result = load_dataset(tmp_path / "parts")
    assert result.last_reward is not None
    np.testing.assert_array_equal(result.last_reward, np.tile(last, 2))
    np.testing.assert_array_equal(result.row_times, np.datetime64("2024-01-01") + np.arange(120))
    assert not any("row_times" in note or "last_reward" in note for note in result.notes)  # as not used


def test_a_csv_says_that_it_keeps_neither() -> None:
    last = np.full(60, np.float32(np.nan))
    last[[10, 59]] = 1.5
    lost = lost_in(Dataset(**clean_fields(), row_times=np.arange(60), last_reward=last), "x.csv")
    assert lost[0] == "a CSV keeps no times of the transitions: of the new file, only episodes can be held out."
    assert "no rewards of last rows without a next state (2 in all)" in lost[1]


def test_a_converted_table_has_the_same_returns(tmp_path: Path) -> None:
    """Episodes that are cut, without next states: their last rows are dropped, and still belong to the returns."""
    random = np.random.default_rng(0)
    frame = pd.DataFrame({"x": random.normal(size=60), "u": random.uniform(-1, 1, 60), "r": np.arange(60.0)})
    frame = frame.assign(id=np.repeat(np.arange(6), 10), t=np.arange(60))
    columns = {"obs": "x", "action": "u", "reward": "r", "episode": "id", "time": "t"}
    dataset = load_dataset(frame, columns=columns)
    for suffix in KEEP_ALL:
        result = load_dataset(save_dataset(dataset, tmp_path / f"x{suffix}"))
        np.testing.assert_array_equal(result.logged_rewards()[0], np.arange(60.0))
        np.testing.assert_array_equal(result.row_times, dataset.row_times)


@pytest.mark.parametrize("change", [{"time_unit": "fortnights"}, {"row_times": np.array(["a"] * 60)}])
def test_times_that_pspo_did_not_write_are_refused(tmp_path: Path, change: dict) -> None:
    path = save_dataset(Dataset(**clean_fields(), row_times=TIMES["days"]), tmp_path / "x.npz")
    with np.load(path) as stored:
        np.savez(path, **{**stored, **change})
    with pytest.raises(UserError, match="row_times"):
        load_dataset(path)


@pytest.mark.parametrize("suffix", [".npz", ".hdf5"])
@pytest.mark.parametrize("name", ["row_times", "last_reward"])
def test_arrays_of_another_length_are_refused(tmp_path: Path, name: str, suffix: str) -> None:
    """Also where rows are dropped for the lack of a next state."""
    arrays = clean_d4rl() | {name: np.full(5, np.nan)}
    del arrays["next_observations"]
    path = write_arrays_to(tmp_path / f"x{suffix}", arrays)
    message_of(load_dataset, path, naming=f"array '{name}' has shape (5,)")


def test_an_array_of_the_rewards_before_each_row_is_not_that_of_dropped_rows(tmp_path: Path) -> None:
    """It would be added to the returns of the episodes."""
    path = write_arrays_to(tmp_path / "x.npz", clean_d4rl() | {"last_reward": np.arange(60.0)})
    message_of(load_dataset, path, naming="'last_reward' is 0 at row 0, where no episode is cut")


def test_an_array_that_is_in_a_file_twice_is_refused(tmp_path: Path) -> None:
    path = write_arrays_to(tmp_path / "x.npz", clean_d4rl())
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("rewards.npy", archive.read("actions.npy"))
    message_of(load_dataset, path, naming="an array is in it twice")


ROLES = {"obs": "observations", "action": "actions", "reward": "rewards", "terminal": "terminals"}


@pytest.mark.parametrize("suffix", [".npz", ".hdf5"])
def test_arrays_with_names_of_our_own_have_a_role_where_they_are_named(tmp_path: Path, suffix: str) -> None:
    arrays = clean_d4rl() | {"row_times": np.array([0, 2, 1, *range(3, 60)]), "last_reward": np.arange(60.0)}
    del arrays["next_observations"]
    path = write_arrays_to(tmp_path / f"x{suffix}", arrays)
    dataset = load_dataset(path, columns=ROLES | {"obs": ["observations", "last_reward"], "time": "row_times"})
    assert dataset.time_name == "row_times"
    assert dataset.obs_dim == 4
    assert any("sorted by 'row_times'" in note for note in dataset.notes)
    np.testing.assert_array_equal(dataset.obs[1, :3], arrays["observations"][2])
    assert dataset.obs[1, 3] == 2
    without = load_dataset(path, columns=ROLES | {"ignore": ["row_times", "last_reward"]})
    assert not any("row_times" in note for note in without.notes)
    plain = load_dataset(path, columns=ROLES)
    assert sum("'row_times'" in note and "'last_reward'" in note for note in plain.notes) == 1


def test_a_flipped_bit_in_a_parquet_file_is_noticed(tmp_path: Path) -> None:
    path = save_dataset(Dataset(**clean_fields(600)), tmp_path / "x.parquet")
    whole = path.read_bytes()
    group = pyarrow.parquet.ParquetFile(path).metadata.row_group(0)
    place = group.column(0).data_page_offset + group.column(0).total_compressed_size // 2
    path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
    with pytest.raises(UserError, match="damaged"):
        load_dataset(path)


@pytest.mark.parametrize("suffix", [*KEEP_ALL, ".csv"])
def test_a_full_disk_leaves_the_old_file_and_no_other(tmp_path: Path, suffix: str) -> None:
    path = save_dataset(Dataset(**clean_fields()), tmp_path / f"x{suffix}")
    before = path.read_bytes()
    code = "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
    code += "import pspo; from pspo.data import save_dataset\nlog = pspo.load_dataset('liquidation', size=20_000)\n"
    code += "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
    code += "try: save_dataset(log, sys.argv[1])\nexcept pspo.UserError as error: print(error)"
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, timeout=60)
    assert "cannot write" in done.stdout, done.stderr
    assert "too large" in done.stdout
    assert done.stdout.count("\n") == 1
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_an_unknown_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"ends in \.npz, \.hdf5, \.h5, \.parquet, \.csv"):
        save_dataset(Dataset(**clean_fields()), tmp_path / "x.xls")
    with pytest.raises(UserError, match="cannot write"):
        save_dataset(Dataset(**clean_fields()), tmp_path / "nowhere" / "x.csv")
