"""Learning on the real task, to a score that a broken method misses. Holding to the end scores 97.7."""

from __future__ import annotations

from pathlib import Path

import pytest

import pspo
from pspo.training import SILENT

FEW = {"steps": 3000, "model.pool": 4, "model.steps": 3000, "active": 4, "next_pairs": 1}


@pytest.mark.slow
def test_the_laptop_preset_comes_close_to_the_exact_optimum(tmp_path: Path) -> None:
    run = pspo.train("liquidation", seed=7, out=tmp_path / "run", episodes=100_000, monitor=SILENT)
    assert run.result["score_by_regret"] > 100.5


@pytest.mark.slow
def test_without_improvement_the_score_is_missed(tmp_path: Path, monkeypatch) -> None:
    """The same loop with the improvement weights taken out stays at the behaviour policy."""
    import jax.numpy as jnp

    from pspo.algorithms.pspo import improvement as pspo_improvement

    plain = lambda q, *_: jnp.full_like(q, -jnp.log(q.shape[0]))  # noqa: E731
    monkeypatch.setattr(pspo_improvement, "improvement_log_weights", plain)
    run = pspo.train("liquidation", seed=7, out=tmp_path / "run", settings=FEW, monitor=SILENT)
    assert run.result["score_by_regret"] < 98.5


@pytest.mark.slow
def test_a_short_run_already_beats_every_fixed_rule(tmp_path: Path) -> None:
    run = pspo.train("liquidation", seed=7, out=tmp_path / "run", settings=FEW, monitor=SILENT)
    assert run.result["score_by_regret"] > 98.5
