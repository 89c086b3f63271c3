"""Data or a policy that do not fit a task's simulator are refused in one sentence, before anything is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pspo
from pspo.cli.main import main
from pspo.policies.policy import FILE_NAME, Policy, from_network
from tests.core.core_cases import lively_network, small_dataset, small_norm


def policy(**info: Any) -> Policy:
    """For two numbers of state and two of action."""
    return from_network(lively_network(small_norm()), small_norm(), info)


@pytest.mark.parametrize("episodes", [0, -1, 2.5, True])
def test_an_evaluation_needs_episodes(episodes: Any, tmp_path: Path) -> None:
    with pytest.raises(pspo.UserError, match=f"episodes={episodes} is out of range"):
        pspo.train(small_dataset(), preset="smoke", out=tmp_path / "run", episodes=episodes)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(pspo.UserError, match=f"episodes={episodes} is out of range"):
        pspo.evaluate(policy(task="liquidation"), episodes)


def test_an_evaluation_needs_episodes_on_the_command_line(tmp_path: Path, capsys) -> None:
    policy(task="liquidation").save(tmp_path / FILE_NAME)
    assert main(["evaluate", str(tmp_path), "--episodes", "0"]) == 2
    assert capsys.readouterr().err.startswith("pspo: error: episodes=0 is out of range")


# Sizes

MISFIT = (
    "has 2 numbers per state and 2 per action, and the task 'hopper' has 11 and 3: name the task that fits, or none."
)


def test_data_of_other_sizes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(pspo.UserError, match=f"^the dataset 'dataset' {MISFIT}$"):
        pspo.train(small_dataset(), preset="smoke", out=tmp_path / "run", task="hopper")
    with pytest.raises(pspo.UserError, match="2 per action, and the task 'liquidation' has 3 and 1"):
        pspo.train(small_dataset(task="liquidation"), preset="smoke", out=tmp_path / "run")
    three = small_dataset(obs=np.zeros((200, 3), np.float32), next_obs=np.zeros((200, 3), np.float32))
    with pytest.raises(pspo.UserError, match="3 numbers per state and 2 per action"):
        pspo.train(three, preset="smoke", out=tmp_path / "run", task="liquidation")
    assert list(tmp_path.iterdir()) == []


def test_a_policy_of_other_sizes_is_refused() -> None:
    with pytest.raises(pspo.UserError, match=f"^this policy {MISFIT}$"):
        pspo.evaluate(policy(), task="hopper")
    with pytest.raises(pspo.UserError, match="the task 'liquidation' has 3 and 1"):
        pspo.evaluate(policy(task="liquidation"), 5)


@pytest.mark.parametrize(
    "words",
    [
        ["train", "log.npz", "--task", "hopper", "--quiet"],
        ["train", "log.npz", "--task", "hopper", "--dry-run"],
        ["evaluate", FILE_NAME, "--task", "hopper"],
    ],
)
def test_other_sizes_are_one_sentence_on_the_command_line(
    words: list[str], tmp_path: Path, monkeypatch, capsys
) -> None:
    monkeypatch.chdir(tmp_path)
    pspo.save_dataset(small_dataset(), "log.npz")
    policy().save(Path(FILE_NAME))
    before = sorted(tmp_path.iterdir())
    assert main(words) == 2
    who = "this policy" if words[0] == "evaluate" else "the dataset 'log.npz'"
    assert capsys.readouterr().err == f"pspo: error: {who} {MISFIT}\n"
    assert sorted(tmp_path.iterdir()) == before


def test_data_that_are_not_downloaded_have_the_sizes_of_their_task(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("PSPO_CACHE", str(tmp_path / "cache"))
    assert main(["train", "hopper-medium-v2", "--task", "walker2d", "--dry-run"]) == 2
    message = (
        "the dataset 'hopper-medium-v2' has 11 numbers per state and 3 per action, and the task 'walker2d' has 17 and 6"
    )
    assert message in capsys.readouterr().err
