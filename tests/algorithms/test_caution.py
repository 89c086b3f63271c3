"""One dial for caution: the settings it stands for, and that more of it keeps the policy closer to the dataset."""

from __future__ import annotations

from pathlib import Path

import pytest

import pspo
from pspo.algorithms import ALGORITHMS, get_algorithm, preset
from pspo.algorithms.caution import LEVELS, caution_settings
from pspo.core.config import build
from pspo.core.errors import UserError
from pspo.experiments.seeds import train_seeds
from pspo.training import train as training
from pspo.training.monitor import SILENT, Monitor

WITH_CAUTION = [name for name, info in ALGORITHMS.items() if info.caution]


def settings(algo: str, level: str, task: str | None = None) -> dict[str, float]:
    return caution_settings(algo, build(get_algorithm(algo).Config, preset(algo, "laptop", task)), level)


@pytest.mark.parametrize("algo", WITH_CAUTION)
def test_high_is_as_far_from_normal_as_low(algo: str) -> None:
    config = build(get_algorithm(algo).Config, preset(algo, "laptop", None))
    low, high = settings(algo, "low"), settings(algo, "high")
    assert low.keys() == high.keys() != set()
    for name in low:
        assert low[name] * high[name] == pytest.approx(getattr(config, name) ** 2)
    assert settings(algo, "normal") == {}


def test_pspo_on_locomotion_pulls_harder_and_allows_less() -> None:
    normal = preset("pspo", "laptop", "hopper")
    alpha, limit = normal["alpha"], normal["kl_limit"]
    assert settings("pspo", "high", "hopper") == pytest.approx({"alpha": 3 * alpha, "kl_limit": limit / 3})
    assert settings("pspo", "low", "hopper") == pytest.approx({"alpha": alpha / 3, "kl_limit": 3 * limit})
    assert settings("pspo", "high", "liquidation") == pytest.approx({"alpha": 0.03})  # kl_limit is off


def test_values_stay_within_their_bounds() -> None:
    config = build(get_algorithm("pspo").Config, {"alpha": 5e5, "kl_limit": 1.0})
    assert caution_settings("pspo", config, "high")["alpha"] == 1e6


def test_unknown_levels_and_algorithms_without_a_dial_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="unknown caution 'hihg': did you mean 'high'"):
        settings("pspo", "hihg")
    for algo in ALGORITHMS.keys() - set(WITH_CAUTION):
        with pytest.raises(UserError, match=f"'{algo}' has no setting for caution=low"):
            settings(algo, "low")
    request = pspo.TrainRequest("liquidation", "bc", "smoke", caution="high")
    with pytest.raises(UserError, match="'bc' has no setting"):
        train_seeds(request, seeds=2, out=tmp_path / "runs", monitor=SILENT)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("level", LEVELS)
def test_a_run_stores_and_prints_what_the_level_stands_for(level: str, tmp_path: Path, monkeypatch) -> None:
    messages: list[str] = []
    monkeypatch.setattr(training, "_work", lambda run, *_: run)
    monitor = Monitor(message=messages.append)
    options = {"preset": "smoke", "caution": level, "out": tmp_path / "run", "settings": {"steps": 20}}
    run = pspo.train("liquidation", "pspo", **options, monitor=monitor)
    alpha = run.read("config")["settings"]["alpha"]
    assert alpha == pytest.approx({"low": 0.01 / 3, "normal": 0.01, "high": 0.03}[level])
    assert messages == ([] if level == "normal" else [f"caution {level}: alpha={alpha:.3g} (normal 0.01)"])


def test_a_setting_wins_over_the_dial(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(training, "_work", lambda run, *_: run)
    options = {"preset": "smoke", "caution": "high", "out": tmp_path / "run", "settings": {"alpha": 0.5}}
    run = pspo.train("liquidation", "pspo", **options, monitor=SILENT)
    assert run.read("config")["settings"]["alpha"] == 0.5


def test_a_request_keeps_the_level(tmp_path: Path) -> None:
    request = pspo.TrainRequest("liquidation", caution="high")
    assert pspo.TrainRequest.from_dict(request.as_dict()) == request
    assert "caution" not in pspo.TrainRequest("liquidation").as_dict()  # as version 0.1 wrote it
