"""`python -m benchmarks.ope`: what it measures, what it saves, and that it continues after an interruption."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from benchmarks.ope_figure import covers, draw, failures

import pspo
from benchmarks import ope as study
from pspo.evaluation.ope import ESTIMATORS
from pspo.evaluation.ope.estimate_run import RunEstimates
from pspo.evaluation.ope.return_estimate import ReturnEstimate


def row(
    truth: float, low: float | None, high: float | None, dataset: int = 0, warnings: int = 0, value: Any = ...
) -> dict:
    value = 0.5 * (low + high) if value is ... and None not in (low, high) else None if value is ... else value
    found = {"method": "fitted Q", "dataset": dataset, "value": value, "low": low, "high": high, "warnings": warnings}
    return found | {"truth": truth, "contradicted": False, "policy": f"a/seed-{truth:g}", "actions": "mode"}


ROWS = [
    row(10.0, 8.0, 14.0),  # contains it
    row(20.0, 21.0, 23.0, warnings=2),  # too high
    row(30.0, 20.0, 28.0),  # too low
    row(40.0, None, None, warnings=1, value=41.0),  # no interval
    row(40.0, 39.0, 43.0, dataset=1),
    row(10.0, 9.0, 11.0, dataset=1),
    row(20.0, 31.0, 53.0, dataset=1),
]


def test_coverage_errors_and_ranks() -> None:
    found = study.measures(ROWS)
    assert (found["estimates"], found["without_interval"]) == (7, 1)
    assert found["coverage"] == pytest.approx(3 / 6)
    assert (found["trusted"], found["coverage_of_trusted"]) == (5, pytest.approx(3 / 5))
    assert (found["too_high"], found["too_low"]) == (2, 1)
    assert found["median_width"] == pytest.approx(np.median([6, 2, 8, 4, 2, 22]))
    errors = np.array([1.0, 2.0, -6.0, 1.0, 0.0, 22.0])
    assert (found["bias"], found["mean_error"]) == (pytest.approx(errors.mean()), pytest.approx(np.abs(errors).mean()))
    assert found["rank_correlation"] == pytest.approx((1.0 + 0.5) / 2)  # 11, 22, 24 and 41, 10, 42


def test_contradicted_estimates_are_not_trusted() -> None:
    rows = [row(10.0, 8.0, 14.0), row(10.0, 15.0, 16.0) | {"contradicted": True}]
    found = study.measures(rows)
    assert (found["contradicted"], found["trusted"], found["coverage_of_trusted"]) == (1, 1, 1.0)
    made = [("a", 0, "fitted Q", 1.0, 2.0), ("a", 0, "posterior models", 3.0, 4.0), ("a", 1, "fitted Q", 5.0, None)]
    made += [("a", 1, "posterior models", 1.0, 2.0), ("b", 0, "fitted Q", 9.0, 10.0)]
    names = ("policy", "dataset", "method", "low", "high")
    rows = [dict(zip(names, each, strict=True)) | {"value": 1.0, "actions": "mode", "warnings": 0} for each in made]
    both = ("fitted Q", "posterior models")
    assert study.contradicted(rows) == {("a", dataset, method) for dataset in (0, 1) for method in both}


def test_without_an_interval_nothing_is_measured() -> None:
    found = study.measures([row(1.0, None, None)])
    assert (found["coverage"], found["bias"], found["median_width"], found["rank_correlation"]) == (None,) * 4
    assert "of 0" in study.table([{"method": "fitted Q", "datasets": "new"} | found])


def test_the_figure_says_how_intervals_miss() -> None:
    assert [covers(r) for r in ROWS] == [True, False, False, True, True, True, False]
    assert failures(ROWS) == "misses: 2 too high, 1 too low; 1 of these 3 had a warning; no interval: 1"
    assert failures(ROWS[:1]) == ""
    assert draw(ROWS)[1:4] == b"PNG"


def made_run(folder: Path, name: str, dataset: str = "liquidation", finished: bool = True) -> Path:
    run = folder / name
    run.mkdir(parents=True)
    (run / "config.json").write_text(json.dumps({"dataset": dataset}))
    (run / "policy.safetensors").write_bytes(name.encode())
    if finished:
        (run / "result.json").write_text("{}")
    return run


def estimated(run: Path, data: Any, **_: Any) -> RunEstimates:
    """An estimate that identifies run and dataset."""
    value = 100.0 * data.obs[0, 2] + len(run.name)
    rest = [
        ReturnEstimate("importance sampling", np.nan, -np.inf, np.inf, "sampled", {"effective_episodes": 1.0}, ["no."])
    ]
    return RunEstimates(
        run,
        data.name,
        1.0,
        0.9,
        20,
        [ReturnEstimate("fitted Q", value, value - 1, value + 1, "mode"), *rest],
        {},
        1.0,
        1.0,
    )


@pytest.fixture
def command(tmp_path, monkeypatch):
    """The study with made-up returns and estimates; gives the runs that were evaluated."""
    for name in ("a/seed-1", "a/seed-22", "b/seed-333"):
        made_run(tmp_path / "runs", name)
    made_run(tmp_path / "runs", "hopper", dataset="hopper-medium-v2")
    made_run(tmp_path / "runs", "unfinished", finished=False)
    seen: list[str] = []
    asked = iter(range(1000))

    def noticed(run, data, **how):
        assert how["gamma"] == 1.0
        if next(asked) == stop[0]:
            raise KeyboardInterrupt
        seen.append(run.name)
        return estimated(run, data)

    stop = [-1]
    monkeypatch.setattr(study, "estimate_return", noticed)
    monkeypatch.setattr(study, "truth", lambda run, episodes: {"mode": 100.0 + len(run.name), "sampled": 50.0})
    words = [str(tmp_path / "runs"), "--datasets", "2", "--transitions", "50", "--results", str(tmp_path / "kept.json")]
    words += ["--figure", str(tmp_path / "figure.png")]
    return words, seen, stop


def test_an_interrupted_study_continues(command, tmp_path, capsys) -> None:
    words, seen, stop = command
    stop[0] = 4
    with pytest.raises(KeyboardInterrupt):
        study.main(words)
    assert len(seen) == 4
    study.main(words)
    assert sorted(seen) == sorted(3 * ["seed-1", "seed-22", "seed-333"])
    assert "only 3 policies" in capsys.readouterr().out
    kept = json.loads((tmp_path / "kept.json").read_text())
    assert list(kept["policies"]) == ["a/seed-1", "a/seed-22", "b/seed-333"]
    assert len(kept["estimates"]) == 2 * 9
    pairs = {(r["policy"], r["dataset"]) for r in kept["estimates"]}
    assert pairs == {(name, dataset) for name in kept["policies"] for dataset in (0, 1, 2)}
    summaries = {(s["method"], s["datasets"]): s for s in kept["summary"]}
    assert summaries["fitted Q", "new"]["estimates"] == 6
    assert summaries["importance sampling", "training"]["without_interval"] == 3
    assert (tmp_path / "figure.png").read_bytes()[1:4] == b"PNG"
    before = len(seen)
    study.main(words)  # nothing is left to do
    assert len(seen) == before


def test_a_changed_policy_is_evaluated_again_and_other_settings_refused(command, tmp_path) -> None:
    words, seen, _ = command
    study.main(words)
    (tmp_path / "runs" / "a" / "seed-1" / "policy.safetensors").write_bytes(b"another")
    study.main(words)
    assert seen[9:] == ["seed-1"] * 3
    assert len(json.loads((tmp_path / "kept.json").read_text())["estimates"]) == 2 * 9
    with pytest.raises(SystemExit, match="name another --results"):
        study.main([*words, "--transitions", "60"])


def test_results_of_version_0_1_are_read() -> None:
    path = Path(study.__file__).with_name("results") / "ope.json"
    kept = json.loads(path.read_text())
    settings = {study.OLD_KEYS.get(name, name): value for name, value in kept["settings"].items()}
    again = study.summary(study._kept(path, settings))
    assert [row["coverage"] for row in again] == [row["coverage"] for row in kept["summary"]]


def test_a_folder_without_runs_is_refused(tmp_path, capsys) -> None:
    with pytest.raises(SystemExit):
        study.main([str(tmp_path)])
    assert "no finished liquidation run" in capsys.readouterr().err


@pytest.mark.slow
def test_it_runs_from_end_to_end(tmp_path, monkeypatch) -> None:
    run = pspo.train("liquidation", algo="bc", preset="smoke", out=tmp_path / "runs" / "bc", episodes=100)
    monkeypatch.setattr(study, "mkdtemp", lambda **_: str(tmp_path))
    study.main([str(tmp_path / "runs"), "--quick"])
    assert (tmp_path / "ope.png").exists()
    kept = json.loads((tmp_path / "ope.json").read_text())
    assert {s["method"] for s in kept["summary"]} == {info.title for info in ESTIMATORS.values()}
    found, policy = kept["policies"]["bc"], pspo.load_policy(run.path)
    played = pspo.evaluate(policy, episodes=2000, seed=1)
    assert found["mode"] == pytest.approx(137.476 - played.regret, abs=1e-3)
    rng = np.random.default_rng(0)

    def act(obs):
        shape = jax.ShapeDtypeStruct((*obs.shape[:-1], 1), "float32")
        return jax.pure_callback(lambda o: policy.sample(np.asarray(o), rng).astype(np.float32), shape, obs)

    noisy = pspo.envs.task.get_task("liquidation").simulate(act, jax.random.PRNGKey(5), 2000)
    assert found["sampled"] == pytest.approx(noisy.returns.mean(), abs=4 * noisy.returns.std() / 2000**0.5)
