"""A hold-out: the latest or random episodes, apart from the rest, the same for the same data."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pspo.cli.main import main
from pspo.core.errors import UserError
from pspo.data import Dataset, check_source, save_dataset
from pspo.data.holdout import Holdout
from tests.data.made_up_data import clean_fields, datasets


def episodes(count: int = 40, steps: int = 6) -> Dataset:
    return Dataset(**clean_fields(count * steps), propensity=np.arange(1, count * steps + 1), source_rows=None)


@pytest.mark.parametrize("by", ["time", "episode"])
def test_both_parts_are_whole_episodes_and_together_everything(by: str) -> None:
    dataset = episodes()
    training, held_out = Holdout(0.25, by).split(dataset)
    assert (training.size, held_out.size) == (180, 60)
    assert training.source_rows is not None
    assert held_out.source_rows is not None
    rows = np.concatenate([training.source_rows, held_out.source_rows])
    assert sorted(rows.tolist()) == list(range(240))
    for part in (training, held_out):
        assert part.source_rows is not None
        assert part.propensity is not None
        np.testing.assert_array_equal(part.obs, dataset.obs[part.source_rows])
        np.testing.assert_array_equal(part.propensity, part.source_rows + 1)
        assert (part.episode_lengths() == 6).all()
    assert (held_out.source_rows.min() == 180) == (by == "time")
    assert Holdout(0.25, by).split(dataset)[1].hash == held_out.hash


@given(datasets(gaps=True), st.floats(0.1, 0.9), st.sampled_from(["time", "episode"]))
def test_no_transition_is_lost_or_changed(dataset: Dataset, fraction: float, by: str) -> None:
    try:
        training, held_out = Holdout(fraction, by).split(dataset)
    except UserError:
        return  # too small, or one episode
    assert training.size + held_out.size == dataset.size
    assert training.terminal.sum() + held_out.terminal.sum() == dataset.terminal.sum()


def test_one_long_episode_is_cut_by_time() -> None:
    fields = clean_fields(60)
    fields["terminal"][:] = fields["timeout"][:] = False
    training, held_out = Holdout(0.2, "time").split(Dataset(**fields))
    assert (training.size, held_out.size) == (48, 12)
    assert training.timeout[-1]
    with pytest.raises(UserError, match="use --holdout-by time"):
        Holdout(0.2, "episode").split(Dataset(**fields))


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.1, float("nan")])
def test_impossible_fractions_are_refused(fraction: float) -> None:
    with pytest.raises(UserError, match="give a number between 0 and 1"):
        Holdout(fraction)


def test_check_compares_the_parts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fields = clean_fields(600)
    path = save_dataset(Dataset(**fields), tmp_path / "log.npz")
    assert main(["check", str(path), "--holdout", "0.2"]) == 0
    assert "held" not in capsys.readouterr().out
    fields["obs"][:, 1] = np.arange(600)
    path = save_dataset(Dataset(**fields), tmp_path / "rising.npz")
    _, findings = check_source(path, holdout=0.1, holdout_by="time")
    assert any("obs column 1 is outside the training part's range (0 to 539) in 100%" in f.message for f in findings)
    _, findings = check_source(path, holdout=0.01)
    assert any("only 1 episodes are held out" in finding.message for finding in findings)
    assert main(["check", str(path), "--holdout", "2"]) == 2
