"""Data or a policy meet a task's simulator: what cannot go together is one sentence, before anything is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from core_cases import lively_network, small_dataset, small_norm

import pspo
from pspo.cli import main
from pspo.policy import FILE_NAME, Policy, from_network


def policy(**facts: Any) -> Policy:
    """For two numbers of state and two of action."""
    return from_network(lively_network(small_norm()), small_norm(), facts)


@pytest.mark.parametrize("episodes", [0, -1, 2.5, True])
def test_a_judgement_needs_episodes(episodes: Any, tmp_path: Path) -> None:
    with pytest.raises(pspo.UserError, match=f"episodes={episodes} is out of range"):
        pspo.train(small_dataset(), preset="smoke", out=tmp_path / "run", episodes=episodes)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(pspo.UserError, match=f"episodes={episodes} is out of range"):
        pspo.evaluate(policy(task="liquidation"), episodes)


def test_a_judgement_needs_episodes_on_the_command_line(tmp_path: Path, capsys) -> None:
    policy(task="liquidation").save(tmp_path / FILE_NAME)
    assert main(["evaluate", str(tmp_path), "--episodes", "0"]) == 2
    assert capsys.readouterr().err.startswith("pspo: episodes=0 is out of range")
