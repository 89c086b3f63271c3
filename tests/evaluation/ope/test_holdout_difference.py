"""A hold-out that returns less than the rest shifts every estimate on it: training, `ope` and its JSON say so."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from pspo.cli.main import main
from pspo.data import Dataset, save_dataset
from tests.data.made_up_data import clean_fields


@pytest.mark.parametrize("shift", [0.0, -3.0])
def test_estimates_on_an_unlike_hold_out_say_so(shift: float, tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    fields = clean_fields(600)
    fields["reward"] = np.random.default_rng(0).normal(size=600)
    fields["reward"][480:] += shift / 6.0
    save_dataset(Dataset(**fields), "log.npz")
    words = ["--algo", "bc", "--preset", "smoke", "--holdout", "0.2", "--holdout-by", "time", "--out", "run", "--quiet"]
    assert main(["train", "log.npz", *words]) == 0
    trained = capsys.readouterr().err
    assert main(["ope", "run", "--methods", "fitted-q", "--quiet"]) == 0
    evaluated = capsys.readouterr().err
    found = json.loads(Path("run/ope.json").read_text())["holdout_difference"]
    for text in (trained, evaluated, found):
        assert ("the episodes that are held out return" in text) == bool(shift)
    assert main(["ope", "run", "--methods", "fitted-q", "--quiet", "--data", "log.npz"]) == 0
    assert "the episodes that are held out" not in capsys.readouterr().err  # those are others
