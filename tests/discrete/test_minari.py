"""Minari datasets with discrete actions: all labels of the space, also one that never occurs; training and serving."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pspo
from pspo.training.monitor import SILENT

minari = pytest.importorskip("minari")

from gymnasium import spaces  # noqa: E402
from minari.data_collector import EpisodeBuffer  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
STEPS, LABELS, TAKEN = 12, (1, 2, 3), (1, 3)


@pytest.fixture
def logged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[EpisodeBuffer]:
    """Installs `toy/labels-v0`: 1 where the first column is negative, else 3, and never 2."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    rng, buffers = np.random.default_rng(0), []
    for number in range(20):
        obs: Any = rng.normal(size=(STEPS + 1, 2)).astype(np.float32)
        actions: Any = np.where(obs[:-1, 0] < 0, *TAKEN).astype(np.int64)
        last = np.arange(STEPS) == STEPS - 1
        buffers.append(
            EpisodeBuffer(
                id=number,
                observations=obs,
                actions=actions,
                rewards=[*rng.normal(size=STEPS)],
                terminations=[*(last & (number % 2 == 0))],
                truncations=[*(last & (number % 2 == 1))],
            )
        )
    minari.create_dataset_from_buffers(
        "toy/labels-v0",
        buffers,
        observation_space=spaces.Box(-np.inf, np.inf, (2,), np.float32),
        action_space=spaces.Discrete(3, start=1),
        algorithm_name="test",
    )
    return buffers


def test_labels_come_out_as_they_went_in(logged: list[EpisodeBuffer]) -> None:
    dataset = pspo.load_dataset("minari:toy/labels-v0")
    assert dataset.action_labels == LABELS
    assert dataset.action.shape == (dataset.size, 3)
    went_in = np.concatenate([np.asarray(buffer.actions) for buffer in logged])
    assert [LABELS[code] for code in dataset.action_codes] == went_in.tolist()
    assert set(went_in.tolist()) == set(TAKEN)
    np.testing.assert_array_equal(
        dataset.obs, np.concatenate([np.asarray(buffer.observations)[:-1] for buffer in logged])
    )
    assert dataset.terminal.sum() == dataset.timeout.sum() == 10


@pytest.mark.parametrize("algo", ["bc", pytest.param("pspo", marks=pytest.mark.slow)])
def test_a_policy_gives_labels_that_the_environment_takes(
    algo: str, logged: list[EpisodeBuffer], tmp_path: Path
) -> None:
    settings = {"steps": 400, "chunk": 200} if algo == "bc" else {}
    run = pspo.train(
        "minari:toy/labels-v0", algo, preset="smoke", settings=settings, out=tmp_path / "run", monitor=SILENT
    )
    policy, dataset = run.policy, pspo.load_dataset("minari:toy/labels-v0")
    assert policy.action_labels == LABELS
    assert all(spaces.Discrete(3, start=1).contains(label) for label in policy(dataset.obs))
    probability = policy.probabilities(dataset.obs)
    assert probability.shape == (dataset.size, 3)
    assert (probability > 0).all()
    if algo == "bc":
        assert (policy(dataset.obs) == np.where(dataset.obs[:, 0] < 0, *TAKEN)).mean() > 0.95
        assert probability[:, 1].mean() < 0.1
