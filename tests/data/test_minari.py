"""Minari datasets, as minari itself writes them: true next states, terminations apart from truncations, bounds."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pspo.data import load_dataset
from tests.refusals import message_of

minari = pytest.importorskip("minari")

from gymnasium import spaces  # noqa: E402
from minari.data_collector import EpisodeBuffer  # noqa: E402

OBS = spaces.Box(-np.inf, np.inf, (3,), np.float64)
ACTION = spaces.Box(np.array([-2.0, 0.0]), np.array([2.0, 5.0]), (2,), np.float64)
ENDS = ["terminated", "truncated", "neither", "both"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    return tmp_path


def episodes(observe: Any = lambda obs: obs) -> tuple[list[EpisodeBuffer], list[np.ndarray]]:
    """Episodes of two, three, ... steps that end in each of the ways there are; and their plain observations."""
    rng = np.random.default_rng(0)
    buffers, plain = [], []
    for number, end in enumerate(ENDS):
        steps = number + 2
        obs = rng.normal(size=(steps + 1, 3))
        last = np.arange(steps) == steps - 1
        plain.append(obs)
        buffers.append(
            EpisodeBuffer(
                id=number,
                observations=observe(obs),
                actions=rng.uniform([-2, 0], [2, 5], size=(steps, 2)),
                rewards=list(rng.normal(size=steps)),
                terminations=list(last & (end in ("terminated", "both"))),
                truncations=list(last & (end in ("truncated", "both"))),
            )
        )
    return buffers, plain


def create(
    name: str, buffers: list[EpisodeBuffer], obs_space: Any = OBS, action_space: Any = ACTION, **more: Any
) -> None:
    minari.create_dataset_from_buffers(
        name, buffers, observation_space=obs_space, action_space=action_space, algorithm_name="test", **more
    )


def refusal(source: str) -> str:
    return message_of(load_dataset, source)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("data_format", ["hdf5", "arrow"])
def test_episodes_come_out_as_they_went_in(folder: Path, data_format: str) -> None:
    buffers, plain = episodes()
    create("toy/walk/medium-v0", buffers, data_format=data_format)
    result = load_dataset("minari:toy/walk/medium-v0")
    assert result.episode_lengths().tolist() == [2, 3, 4, 5]
    np.testing.assert_array_equal(result.obs, np.concatenate([obs[:-1] for obs in plain]).astype(np.float32))
    np.testing.assert_array_equal(result.next_obs, np.concatenate([obs[1:] for obs in plain]).astype(np.float32))
    np.testing.assert_allclose(result.action, np.concatenate([b.actions for b in buffers]), rtol=1e-6)
    np.testing.assert_allclose(result.reward, np.concatenate([b.rewards for b in buffers]), rtol=1e-6)
    assert np.flatnonzero(result.terminal).tolist() == [1, 13]  # one that is both is terminal
    assert np.flatnonzero(result.timeout).tolist() == [4, 8]  # an episode that just stops was cut
    assert (result.action_low.tolist(), result.action_high.tolist()) == ([-2, 0], [2, 5])
    assert (result.name, result.task, result.notes) == ("toy-walk-medium-v0", None, ())
    assert load_dataset("minari:toy/walk/medium-v0", task="hopper").task == "hopper"


@pytest.mark.filterwarnings("ignore")
def test_parts_of_an_observation_are_put_together_in_the_order_of_their_keys(folder: Path) -> None:
    buffers, plain = episodes(lambda obs: {"speed": obs[:, 2:], "place": obs[:, :2]})
    box = lambda width: spaces.Box(-np.inf, np.inf, (width,), np.float64)  # noqa: E731
    create("toy/parts-v0", buffers, spaces.Dict({"speed": box(1), "place": box(2)}))
    result = load_dataset("minari:toy/parts-v0")
    np.testing.assert_array_equal(result.obs, np.concatenate([obs[:-1] for obs in plain]).astype(np.float32))


@pytest.mark.filterwarnings("ignore")
def test_actions_without_bounds_get_those_of_the_data(folder: Path) -> None:
    create("toy/free-v0", episodes()[0], action_space=spaces.Box(-np.inf, np.inf, (2,), np.float64))
    result = load_dataset("minari:toy/free-v0")
    np.testing.assert_array_equal(result.action_high, result.action.max(axis=0))
    assert "bounds were not given" in result.notes[0]


@pytest.mark.filterwarnings("ignore")
def test_what_is_not_flat_is_refused(folder: Path) -> None:
    buffers, _ = episodes()
    buffers = [dataclasses.replace(b, actions=np.zeros(len(b.rewards), np.int64)) for b in buffers]
    create("toy/choices-v0", buffers, action_space=spaces.Discrete(3, start=1))
    assert "is not among the labels 1, 2, 3" in refusal("minari:toy/choices-v0")
    buffers = [dataclasses.replace(b, actions=np.zeros((len(b.rewards), 2), np.int64)) for b in buffers]
    create("toy/several-v0", buffers, action_space=spaces.MultiDiscrete([3, 2]))
    assert "actions of 'toy/several-v0' are MultiDiscrete" in refusal("minari:toy/several-v0")
    buffers, _ = episodes(lambda obs: {"deep": {"place": obs}})
    create("toy/deep-v0", buffers, spaces.Dict({"deep": spaces.Dict({"place": OBS})}))
    assert "the part 'deep' of the observations" in refusal("minari:toy/deep-v0")


@pytest.mark.filterwarnings("ignore")
def test_what_is_not_there_or_damaged(folder: Path) -> None:
    assert "run `minari download toy/none-v0`" in refusal("minari:toy/none-v0")
    assert "Minari dataset ''" in refusal("minari:")
    create("toy/walk-v0", episodes()[0])
    file = folder / "toy" / "walk-v0" / "data" / "main_data.hdf5"
    whole = file.read_bytes()
    for kept in (0, 100, len(whole) // 2):
        file.write_bytes(whole[:kept])
        assert "'toy/walk-v0' cannot be read" in refusal("minari:toy/walk-v0")
    file.write_bytes(whole)
    (folder / "toy" / "walk-v0" / "data" / "metadata.json").write_text("{")
    assert "'toy/walk-v0' cannot be read" in refusal("minari:toy/walk-v0")


def test_without_minari_one_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "minari", None)
    assert "pip install 'pspo[minari]'" in refusal("minari:toy/walk-v0")
