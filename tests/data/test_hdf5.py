"""HDF5 in D4RL's layout: read in place, never outside of the file, and one sentence where something is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given, settings

from pspo.core.errors import UserError
from pspo.data import Dataset, load_dataset
from pspo.data.readers import hdf5 as hdf5_module
from pspo.data.readers.hdf5 import load_hdf5, save_hdf5
from tests.data.made_up_data import clean_d4rl, clean_fields, datasets
from tests.refusals import message_of


def written(path: Path, arrays: dict[str, Any], **options: Any) -> Path:
    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            file.create_dataset(name, data=array, **options)
    return path


def refusal(path: Path, **options: Any) -> str:
    return message_of(load_dataset, path, naming=path.name, **options)


@given(datasets(gaps=True))
@settings(max_examples=30, deadline=None)
def test_a_round_trip_keeps_everything(tmp_path_factory, dataset: Dataset) -> None:
    loaded = load_hdf5(save_hdf5(dataset, tmp_path_factory.mktemp("hdf5") / "data.hdf5"))
    assert loaded.hash == dataset.hash
    assert (loaded.name, loaded.task) == (dataset.name, dataset.task)
    # Reading may add one note: whole numbers could be labels, which a Dataset in memory is not asked about.
    assert [note for note in loaded.notes if "not as labels" not in note] == list(dataset.notes)


def test_texts_of_any_script_survive(tmp_path: Path) -> None:
    dataset = Dataset(**clean_fields(), name="Protokoll für März — 温度", notes=("größer als 1.", "x"))
    loaded = load_hdf5(save_hdf5(dataset, tmp_path / "data.h5"))
    assert (loaded.name, loaded.notes) == (dataset.name, dataset.notes)


def test_names_in_plain_attributes_are_read_too(tmp_path: Path) -> None:
    arrays = clean_d4rl()
    low, high = arrays.pop("action_low") * 2, arrays.pop("action_high") * 2
    path = written(tmp_path / "data.hdf5", arrays)
    with h5py.File(path, "a") as file:
        file.attrs.update(
            {"name": "logs", "task": "hopper", "notes": ["a", "b"], "action_low": low, "action_high": high}
        )
    result = load_hdf5(path)
    assert (result.name, result.task, result.notes) == ("logs", "hopper", ("a", "b"))
    assert result.action_low.tolist() == [-2, -2]
    with h5py.File(save_hdf5(result, path)) as file:
        assert (file.attrs["name"], file.attrs["task"]) == ("logs", "hopper")


@pytest.mark.parametrize("options", [{}, {"compression": "gzip", "shuffle": True, "chunks": True}])
def test_files_of_other_programs_are_read_in_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict
) -> None:
    monkeypatch.setattr(hdf5_module, "BLOCK_BYTES", 100)  # several rows of some arrays, part of a row of none
    arrays = clean_d4rl()
    doubles = {name: a.astype(np.float64) if a.dtype == np.float32 else a for name, a in arrays.items()}
    result = load_dataset(written(tmp_path / "logs.hdf5", doubles, **options))
    assert result.hash == Dataset(**clean_fields()).hash
    assert (result.name, result.notes) == ("logs", ())


def test_without_next_observations_they_are_derived(tmp_path: Path) -> None:
    arrays = clean_d4rl()
    del arrays["next_observations"]
    result = load_dataset(written(tmp_path / "logs.hdf5", arrays))
    assert result.hash == Dataset.from_arrays(arrays).hash
    assert (~result.next_known).sum() == arrays["terminals"].sum()


def test_groups_of_d4rl_are_ignored_and_others_noted(tmp_path: Path) -> None:
    path = written(tmp_path / "a.hdf5", clean_d4rl() | {"infos/qpos": np.zeros(60), "metadata/version": np.zeros(1)})
    assert load_dataset(path).notes == ()
    written(path, clean_d4rl() | {"comments": np.zeros(60)})
    assert "'comments'" in load_dataset(path).notes[0]


def test_roles_can_be_given_to_arrays(tmp_path: Path) -> None:
    arrays = clean_d4rl()
    other = {"x": arrays["observations"][:, 0], "y": arrays["observations"][:, 1:], "u": arrays["actions"]}
    other |= {"reward": arrays["rewards"], "done": arrays["terminals"], "trajectory": np.arange(60) // 6}
    roles = {"obs": "x,y", "action": "u"}
    np.savez(tmp_path / "a.npz", **other)
    expected = Dataset.from_arrays({key: value for key, value in arrays.items() if key != "next_observations"}).hash
    for source in (written(tmp_path / "a.hdf5", other), tmp_path / "a.npz", other):
        result = load_dataset(source, columns=roles)
        assert result.hash == expected
        assert "'done' is taken for terminals" in result.notes[0]


def test_links_are_never_followed(tmp_path: Path) -> None:
    """A file must not make the reader open others, or it could show a user's files to whoever gets the results."""
    arrays = clean_d4rl()
    rewards = arrays.pop("rewards")
    written(tmp_path / "other.hdf5", {"rewards": rewards, "here": rewards})
    for link in (h5py.ExternalLink("other.hdf5", "/rewards"), h5py.SoftLink("/here")):
        path = written(tmp_path / "a.hdf5", arrays | {"here": rewards})
        with h5py.File(path, "a") as file:
            file["rewards"] = link
        assert "links are not followed" in refusal(path)
    path = written(tmp_path / "a.hdf5", arrays)
    with h5py.File(path, "a") as file:
        layout = h5py.VirtualLayout(shape=(60,), dtype="f4")
        layout[:] = h5py.VirtualSource("other.hdf5", "rewards", shape=(60,))
        file.create_virtual_dataset("rewards", layout)
    assert "another file" in refusal(path)
    rewards.tofile(tmp_path / "raw")
    path = written(tmp_path / "a.hdf5", arrays)
    with h5py.File(path, "a") as file:
        file.create_dataset("rewards", (60,), "f4", external=[(str(tmp_path / "raw"), 0, 240)])
    assert "another file" in refusal(path)


@pytest.mark.parametrize(
    ("name", "value", "word"),
    [
        ("rewards", np.array([b"text"] * 60), "real numbers"),
        ("rewards", np.zeros(60, dtype=[("a", "f4")]), "real numbers"),
        ("rewards", np.zeros((60, 1), np.float32), "(60, 1)"),
        ("rewards", np.zeros(59, np.float32), "(59,)"),
        ("rewards", h5py.Empty("f4"), "empty"),
        ("observation", np.zeros((60, 3)), "rename 'observation'"),
    ],
)
def test_wrong_arrays_are_named(tmp_path: Path, name: str, value: Any, word: str) -> None:
    arrays = clean_d4rl()
    del arrays["observations" if name == "observation" else name]
    assert word in refusal(written(tmp_path / "a.hdf5", arrays | {name: value}))


def test_a_group_is_no_array(tmp_path: Path) -> None:
    arrays = clean_d4rl()
    arrays["rewards/first"] = arrays.pop("rewards")
    assert "'rewards' is a group" in refusal(written(tmp_path / "a.hdf5", arrays))


def test_a_file_cannot_declare_more_than_it_holds(tmp_path: Path) -> None:
    path = tmp_path / "a.hdf5"
    with h5py.File(path, "w") as file:
        file.create_dataset("observations", (10**12, 1000), "f4")  # nothing is stored
    assert "more than the file can hold" in refusal(path)


def test_what_is_no_hdf5(tmp_path: Path) -> None:
    (tmp_path / "a.hdf5").write_text("obs,action\n")
    assert "not an HDF5 file" in refusal(tmp_path / "a.hdf5")
    (tmp_path / "folder.hdf5").mkdir()
    assert "is a folder" in refusal(tmp_path / "folder.hdf5")


def test_a_failed_save_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = Dataset(**clean_fields())
    path = save_hdf5(dataset, tmp_path / "data.hdf5")
    monkeypatch.setattr(h5py.Group, "create_dataset", lambda *_, **__: (_ for _ in ()).throw(OSError(28, "No space")))
    with pytest.raises(UserError, match="No space"):
        save_hdf5(dataset, path)
    monkeypatch.undo()
    assert load_hdf5(path).hash == dataset.hash
    assert [file.name for file in tmp_path.iterdir()] == ["data.hdf5"]
    with pytest.raises(UserError, match=r"ends in \.hdf5"):
        save_hdf5(dataset, tmp_path / "data.npz")


@pytest.mark.parametrize("kind", ["references", "lists", "compound"])
def test_arrays_of_neither_numbers_nor_texts_are_refused(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "log.hdf5"
    arrays = clean_d4rl()
    rows = len(arrays.pop("rewards"))
    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            file[name] = array
        if kind == "references":
            values = np.array([file["actions"].ref] * rows, dtype=object)
            file.create_dataset("rewards", data=values, dtype=h5py.ref_dtype)
        elif kind == "lists":
            file.create_dataset("rewards", (rows,), dtype=h5py.vlen_dtype(np.float64))
        else:
            file["rewards"] = np.zeros(rows, [("a", "f4"), ("b", "f4")])
    with pytest.raises(UserError, match=r"'rewards' holds (references or lists|values of type .*): give real numbers"):
        load_dataset(path)
