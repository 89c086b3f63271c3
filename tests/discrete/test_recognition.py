"""Which actions are labels: the rule, the options, every reader and writer, and what `pspo check` says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pspo.core.errors import UserError
from pspo.data import Columns, Dataset, check, load_dataset, save_dataset
from pspo.data.discrete import one_hot_actions, with_labels

HEADER = "episode,obs_x,action,reward,terminal\n"


def table(actions: list[Any]) -> str:
    rows = [f"{i // 4},{0.5 * i},{action},{i},{int(i % 4 == 3)}" for i, action in enumerate(actions)]
    return HEADER + "\n".join(rows) + "\n"


def read(tmp_path: Path, actions: list[Any], **columns: Any) -> Dataset:
    path = tmp_path / "log.csv"
    path.write_text(table(actions))
    return load_dataset(path, columns=columns or None)


def about_actions(dataset: Dataset) -> list[str]:
    return [note for note in dataset.notes if note.startswith("the actions are ")]


@pytest.mark.parametrize(
    ("actions", "labels"),
    [
        (["hold", "buy", "sell", "hold"] * 2, ("buy", "hold", "sell")),
        ([0, 1, 2, 1] * 2, (0, 1, 2)),
        ([3, 1, 2, 1] * 2, (1, 2, 3)),
        ([-1, 0, 1, 1] * 2, (-1, 0, 1)),
        (["true", "false", "true", "true"] * 2, (0, 1)),
    ],
)
def test_a_column_of_labels_is_recognised_with_a_note(
    tmp_path: Path, actions: list[Any], labels: tuple[Any, ...]
) -> None:
    dataset = read(tmp_path, actions)
    assert dataset.action_labels == labels
    values = [{"true": 1, "false": 0}.get(action, action) for action in actions]
    assert [dataset.action_labels[code] for code in dataset.action_codes] == values
    np.testing.assert_array_equal(dataset.action.sum(1), 1.0)
    assert len(about_actions(dataset)) == 1
    assert about_actions(dataset)[0] in [finding.message for finding in check(dataset)]


@pytest.mark.parametrize(
    ("actions", "why"),
    [
        ([0, 10, 25, 10] * 2, "not consecutive"),
        (list(range(24)), "more than 20"),
        (["0.0", "1.0", "2.0", "1.0"] * 2, "stored as decimals"),
    ],
)
def test_other_whole_numbers_are_quantities_with_a_note(tmp_path: Path, actions: list[Any], why: str) -> None:
    dataset = read(tmp_path, actions)
    assert not dataset.discrete
    np.testing.assert_array_equal(dataset.action[:, 0], [float(a) for a in actions][: dataset.size])
    assert why in about_actions(dataset)[0]


def test_decimals_are_quantities_without_a_word(tmp_path: Path) -> None:
    dataset = read(tmp_path, [0.25, 1.5, 0.75, 1.0] * 2)
    assert not dataset.discrete
    assert not about_actions(dataset)


def test_the_user_has_the_last_word(tmp_path: Path) -> None:
    labels = read(tmp_path, [0, 10, 25, 10] * 2, discrete=True)
    assert labels.action_labels == (0, 10, 25)
    assert not about_actions(labels)
    assert read(tmp_path, [0.1, 0.5, 0.1, 0.5], discrete=True).action_labels == (0.1, 0.5)
    quantities = read(tmp_path, [0, 1, 2, 1] * 2, discrete=False)
    assert not quantities.discrete
    assert quantities.action[:4, 0].tolist() == [0, 1, 2, 1]
    large = [123456789, 123456790, 123456789, 123456790]  # the same in float32
    assert read(tmp_path, large, discrete=True).action_labels == (123456789, 123456790)


@pytest.mark.parametrize(
    ("actions", "columns", "words"),
    [
        (["hold", "buy"] * 2, {"discrete": False}, "not a number"),
        ([0.5] * 4, {"discrete": True}, "at least two labels"),
        (list(range(300)), {"discrete": True}, "at most 256"),
        (["hold", "", "buy", "hold"], {}, "is empty at row 1"),
        ([0, 1] * 2, {"discrete": "perhaps"}, "give True, False or None"),
        ([0.5, 1.5] * 2, {"mask": "0.5: obs_x > 1"}, "only discrete actions can be masked"),
    ],
)
def test_bad_labels_are_refused_in_one_sentence(
    tmp_path: Path, actions: list[Any], columns: dict[str, Any], words: str
) -> None:
    with pytest.raises(UserError, match=words):
        read(tmp_path, actions, **columns)


def test_several_columns_cannot_be_discrete() -> None:
    arrays = {"x": np.zeros(4), "a": np.arange(4), "b": np.arange(4), "r": np.zeros(4), "done": np.ones(4)}
    columns = {"obs": "x", "action": "a,b", "reward": "r", "terminal": "done", "discrete": True}
    with pytest.raises(UserError, match="join them into one"):
        load_dataset(arrays, columns=columns)


@pytest.mark.parametrize("labels", [("buy", "hold", "sell", "wait"), (0, 1, 2, 3), (5, 10, 20, 40), (0.1, 0.2, 0.5, 1)])
@pytest.mark.parametrize("suffix", [".npz", ".hdf5", ".parquet"])
def test_files_keep_labels_and_masks(tmp_path: Path, labels: tuple[Any, ...], suffix: str) -> None:
    """The last label never occurs."""
    rng = np.random.default_rng(0)
    obs = rng.uniform(size=(12, 2)).astype(np.float32)
    dataset = Dataset(
        obs=obs,
        action=np.array(labels)[np.arange(12) % 3],
        reward=np.arange(12.0),
        next_obs=obs + 1.0,
        terminal=np.arange(12) % 4 == 3,
        timeout=np.zeros(12, bool),
        action_labels=labels,
        action_mask=((3, 1, 0.5, 2.0),),  # pyright: ignore[reportArgumentType]
        obs_names=("a", "b"),
    )
    again = load_dataset(save_dataset(dataset, tmp_path / f"file{suffix}"))
    assert again.hash == dataset.hash
    assert again.action_labels == labels
    assert again.action_mask == dataset.action_mask


def test_a_csv_keeps_labels_and_says_what_it_loses(tmp_path: Path) -> None:
    from pspo.data import lost_in

    dataset = read(tmp_path, ["hold", "buy", "sell", "hold"] * 2, mask="sell: obs_x >= 0")
    again = load_dataset(save_dataset(dataset, tmp_path / "copy.csv"))
    assert again.action_labels == dataset.action_labels
    np.testing.assert_array_equal(again.action, dataset.action)
    assert any("--mask" in sentence for sentence in lost_in(dataset, "copy.csv"))
    numbers = read(tmp_path, [0, 10, 25, 10] * 2, discrete=True)
    assert any("--discrete" in sentence for sentence in lost_in(numbers, "copy.csv"))


def test_data_frames_and_categories(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    columns: dict[str, Any] = {"obs_x": [0.0, 1.0, 2.0, 3.0], "reward": [0.0] * 4, "terminal": [0, 0, 0, 1]}
    frame = pa.table(columns | {"action": pa.array(["b", "a", "b", "a"]).dictionary_encode()})
    assert load_dataset(frame).action_labels == ("a", "b")


def test_the_order_of_rows_does_not_change_the_labels(tmp_path: Path) -> None:
    assert read(tmp_path, ["b", "a", "c", "a"]).action_labels == read(tmp_path, ["c", "b", "a", "a"]).action_labels


@given(st.lists(st.integers(-5, 5), min_size=2, max_size=40).filter(lambda values: len(set(values)) > 1))
def test_codes_and_labels_are_inverse(values: list[int]) -> None:
    coded, _ = one_hot_actions(np.array(values), discrete=True)
    assert coded is not None
    assert [coded.labels[code] for code in coded.codes] == values
    again = with_labels(np.array(values), (*coded.labels, 99))
    assert [again.labels[code] for code in again.codes] == values
    assert (coded.one_hot().argmax(1) == coded.codes).all()


def test_columns_say_it_in_python_and_in_a_file() -> None:
    assert Columns(discrete=True).is_discrete is True
    assert Columns(discrete=("no",)).is_discrete is False
    assert Columns().is_discrete is None
    assert Columns(**Columns(discrete=False, mask="a: b > 1").given()).given() == {
        "discrete": ("no",),
        "mask": ("a: b > 1",),
    }
