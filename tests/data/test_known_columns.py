"""Data whose parts are known (by name, or a Dataset): what their actions are can be chosen, and nothing else."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

import pspo
from pspo.core.errors import UserError
from pspo.data import Dataset, load_dataset
from pspo.runs.dataset import own_dataset
from pspo.training import train as training
from pspo.training.monitor import SILENT
from tests.data import test_minari
from tests.data.test_minari import folder
from tests.discrete import wear

__all__ = ["folder"]
WEAR = wear.dataset(episodes=5)


def toy_choices() -> None:
    spaces = pytest.importorskip("gymnasium").spaces
    buffers, _ = test_minari.episodes()
    buffers = [dataclasses.replace(buffer, actions=np.arange(len(buffer.rewards)) % 3) for buffer in buffers]
    test_minari.create("toy/choices-v0", buffers, action_space=spaces.Discrete(3))


def test_minari_data_take_masks_and_kinds(folder: Path) -> None:
    toy_choices()
    plain = load_dataset("minari:toy/choices-v0")
    assert plain.action_labels == (0, 1, 2)
    masked = load_dataset("minari:toy/choices-v0", columns={"mask": "2: 1 > -9"})
    assert [(rule.action, rule.column) for rule in masked.action_mask] == [(2, 1)]
    assert load_dataset("minari:toy/choices-v0", columns={"discrete": True}).hash == plain.hash
    quantity = load_dataset("minari:toy/choices-v0", columns={"discrete": False})
    assert not quantity.discrete
    np.testing.assert_array_equal(quantity.action[:, 0], plain.action_codes)
    assert (quantity.action_low, quantity.action_high) == (0, 2)


def test_numbers_of_a_dataset_become_labels() -> None:
    quantity = load_dataset(wear.dataset(episodes=5, action_labels=(0, 1, 2), action=WEAR.action_codes))
    numbers = load_dataset(quantity, columns={"discrete": False})
    again = load_dataset(numbers, columns={"discrete": True, "mask": "2: wear <= 8"})
    assert again.action_labels == (0, 1, 2)
    np.testing.assert_array_equal(again.action, WEAR.action)
    assert len(again.action_mask) == 1


@pytest.mark.parametrize(
    ("source", "columns", "words"),
    [
        ("liquidation", {"mask": "can_*"}, "only discrete actions can be masked, and these are quantities"),
        ("liquidation", {"discrete": True}, "the action takes .* values, and at most 256 can be labels"),
        (
            "liquidation",
            {"obs": "x", "time": "t"},
            "'liquidation' has known columns, so obs, time cannot",
        ),
        (WEAR, {"discrete": False}, "the actions of 'wear' are texts .* and no quantity: leave --continuous out"),
        (WEAR, {"mask": "fly: wear >= 1"}, "the mask names the action 'fly'"),
    ],
)
def test_what_makes_no_sense_is_refused_with_the_reason(source: str | Dataset, columns: dict, words: str) -> None:
    with pytest.raises(UserError, match=words):
        load_dataset(source, columns=columns)


def test_a_run_remembers_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "_work", lambda run, *_: run)
    columns = {"mask": "replace: wear >= 0", "discrete": True}
    run = pspo.train(WEAR, "bc", columns=columns, out=tmp_path / "run", monitor=SILENT)
    assert own_dataset(run, source=WEAR).hash == run.read("manifest")["data_hash"] != WEAR.hash
