"""Edited datasets, behaviour policies and partial collections: read or refused, whatever they contain.

Damaged bytes of datasets are in tests/data/test_damaged_files.py, and here again with more examples.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pspo.collecting.behaviour import load_behaviour
from pspo.collecting.experience import Experience
from pspo.collecting.partial import resumable_folder
from pspo.collecting.store import already_collected
from pspo.core.files import write_arrays
from pspo.data import Dataset, load_dataset, save_dataset
from pspo.data.columns import Columns
from tests.data.made_up_data import clean_d4rl, clean_fields
from tests.robustness.damage import FEW_AND_MANY, ODD, bounded, damaged, edited, edited_text, refused_or

LABELS = {"name": "log", "task": None, "notes": ["a note"], "action_low": [-1.0, -1.0], "action_high": [1.0, 1.0]}


def made(kind: str, shape: tuple[int, ...], value: float) -> np.ndarray:
    with np.errstate(all="ignore"):
        return np.full(shape, value).astype(kind)


odd_arrays = st.one_of(
    st.builds(
        made,
        st.sampled_from(["<f8", "<f4", "?", "<c8", "S3", "<U3"]),
        st.sampled_from([(), (0,), (1,), (60,), (60, 3), (60, 2), (3, 60), (60, 0), (60, 1, 3), (61,)]),
        st.sampled_from([0.0, 1.0, -1.0, np.nan, np.inf, 1e300, 0.5]),
    ),
    st.sampled_from([np.array("x"), np.array("../../x"), np.array(["a", "b"]), np.array(10**15), np.zeros(60, "V4")]),
)


@pytest.mark.parametrize("times", FEW_AND_MANY)
@pytest.mark.parametrize("ending", ["npz", "hdf5"])
def test_arrays_of_any_kind_are_read_or_refused(ending: str, times: int, tmp_path: Path) -> None:
    path = tmp_path / f"log.{ending}"
    names = st.sampled_from([*clean_d4rl(), "name", "task", "notes", "next_known", "infos", "extra"])

    @bounded(60 * times)
    @given(st.dictionaries(names, odd_arrays, min_size=1, max_size=3), st.sampled_from([None, "rewards", "actions"]))
    @example({"observations": np.array(0.0)}, None)
    @example({"notes": np.array("one")}, None)
    @example({"notes": np.array(5.0)}, None)
    def check(changed: dict[str, np.ndarray], lost: str | None) -> None:
        arrays = {name: array for name, array in (clean_d4rl() | changed).items() if name != lost}
        if ending == "npz":
            np.savez(path, **arrays)
        else:
            with h5py.File(path, "w") as file:
                for name, array in arrays.items():
                    file[name] = array.astype("S") if array.dtype.kind == "U" else array
        data = refused_or(lambda: load_dataset(path))
        assert data is None or (data.size == len(data.obs) and isinstance(data.hash, str))
        by_columns = Columns(obs=["observations"], action=["actions"], reward="rewards", terminal="terminals")
        refused_or(lambda: load_dataset(path, by_columns))

    check()


@pytest.mark.parametrize("times", FEW_AND_MANY)
@pytest.mark.parametrize("ending", ["hdf5", "parquet"])
def test_metadata_of_any_kind_is_read_or_refused(ending: str, times: int, tmp_path: Path) -> None:
    path = save_dataset(Dataset(**clean_fields()), tmp_path / f"log.{ending}")
    table = pa.parquet.read_table(path) if ending == "parquet" else None

    @bounded(40 * times)
    @given(edited_text(LABELS).map(lambda text: text[:60_000]))
    @example("[1]")
    @example('{"notes": 5}')
    @example('{"name": "\\ud800"}')
    def check(text: str) -> None:
        if table is not None:
            pa.parquet.write_table(table.replace_schema_metadata({"pspo": text.encode()}), path)
        else:
            with h5py.File(path, "r+") as file:
                file.attrs["pspo"] = np.bytes_(text.encode() or b" ")
        data = refused_or(lambda: load_dataset(path))
        assert data is None or (isinstance(data.name, str) and all(isinstance(note, str) for note in data.notes))

    check()


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["npz", "hdf5", "parquet", "csv"])
def test_damaged_bytes_are_read_or_refused(ending: str, tmp_path: Path) -> None:
    path = save_dataset(Dataset(**clean_fields(120), notes=("a note",)), tmp_path / f"log.{ending}")

    @bounded(3000)
    @given(damaged(path.read_bytes()))
    def check(content: bytes) -> None:
        path.write_bytes(content)
        refused_or(lambda: load_dataset(path))

    check()


def behaviour() -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    layers = {"w0": (3, 4), "b0": (4,), "mean_w": (4, 2), "mean_b": (2,), "log_std": (2,)}
    arrays = {name: random.normal(size=shape) for name, shape in layers.items()}
    return arrays | {"activation": np.array("relu"), "squash": np.array("tanh")}


@pytest.mark.parametrize("times", FEW_AND_MANY)
def test_behaviour_policies_can_act_or_are_refused(times: int, tmp_path: Path) -> None:
    path = tmp_path / "policy.npz"
    np.savez(path, **behaviour())
    edits = st.dictionaries(st.sampled_from([*behaviour(), "w1", "obs_mean", "obs_std"]), odd_arrays, max_size=2)

    @bounded(60 * times)
    @given(st.one_of(damaged(path.read_bytes()), edits))
    def check(change: bytes | dict[str, np.ndarray]) -> None:
        if isinstance(change, bytes):
            path.write_bytes(change)
        else:
            np.savez(path, **behaviour() | change)
        if found := refused_or(lambda: load_behaviour(path, 3, 2)):
            assert found[0].mode(np.zeros((5, 3))).shape == (5, 2)

    check()


REQUEST = {"name": "hopper-medium", "transitions": 100, "seed": 0, "steps": 500, "learner": {"rate": 3e-4}}


@pytest.mark.parametrize("times", FEW_AND_MANY)
def test_an_edited_partial_collection_is_continued_or_refused(times: int, tmp_path: Path) -> None:
    out = tmp_path / "log.hdf5"
    folder = tmp_path / "log.hdf5.partial"

    @bounded(40 * times)
    @given(edited_text(REQUEST), edited(REQUEST), st.sampled_from(ODD))
    @example("[]", REQUEST, 0)
    @example('{"steps": "x"}', REQUEST, 0)
    def check(text: str, request: Any, odd: Any) -> None:
        folder.mkdir(exist_ok=True)
        (folder / "request.json").write_text(text, errors="surrogatepass")

        def begin() -> None:
            with resumable_folder(out, REQUEST):
                pass

        refused_or(begin)
        with h5py.File(out, "w") as file:
            attributes = {"collected": json.dumps(request), "rows": 3, "episodes": 1, "return_mean": 1.0, "score": 2.0}
            for name, value in attributes.items():
                file.attrs[name] = value
            if isinstance(odd, int | float | str) and "\0" not in str(odd) and str(odd).isascii():
                file.attrs["rows"] = str(odd)
        refused_or(lambda: already_collected(out, REQUEST))
        out.unlink()

    check()


@pytest.mark.parametrize("name", ["obs", "reward", "terminal"])
def test_experience_of_another_shape_is_refused(name: str, tmp_path: Path) -> None:
    kept = Experience(10, 3, 2)
    for _ in range(4):
        kept.add(np.zeros(3), np.zeros(2), 0.0, np.zeros(3), (False, False))
    kept.save(tmp_path)
    Experience(10, 3, 2).restore(tmp_path, 4)
    fields = ("obs", "action", "reward", "next_obs", "terminal", "timeout")
    rows = {field: getattr(kept, field)[:4] for field in fields}
    path = next(tmp_path.glob("experience-*"))
    for array in (np.zeros(()), np.zeros((2, 7)), None):
        other = {key: value for key, value in (rows | {name: array}).items() if value is not None}
        write_arrays(path, other, {"start": 0})
        assert refused_or(lambda: Experience(10, 3, 2).restore(tmp_path, 4) or "read") is None
