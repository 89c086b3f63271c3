"""The claims' commands: which runs they start and what they keep of them. Nothing is trained here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import pspo
from benchmarks import baselines, liquidation, locomotion
from pspo.collecting import collect

NUMBERS = {"mean": 90.0, "std": 1.0, "each": [89.0, 91.0]}
SUMMARY = {"dataset": "somewhere", "seeds": [20, 21], "score": NUMBERS, "seconds": {"mean": 120.0}}
SUMMARY |= {"score_by_regret": NUMBERS, "posterior_entropy": {"mean": 0.5}, "steps": {"mean": 20.0}}
ROWS = [
    {"step": 10, "loss": 1.0},
    {"step": 20, "score": 1.23456, "model_return": 2, "posterior_entropy": 1, "kl_mu": 0},
]


@pytest.fixture
def started(monkeypatch) -> list[list[str]]:
    """The command lines that would have been run; each leaves what a run over seeds leaves."""
    commands: list[list[str]] = []

    def run(command: list[str], check: bool, env: dict[str, str] | None = None) -> None:
        assert check
        commands.append(command)
        if "--out" not in command:
            return
        folder = Path(command[command.index("--out") + 1])
        for seed in SUMMARY["seeds"]:
            (folder / f"seed-{seed}").mkdir(parents=True)
            (folder / f"seed-{seed}" / "manifest.json").write_text(json.dumps({"seed": seed}))
            (folder / f"seed-{seed}" / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
        (folder / "summary.json").write_text(json.dumps(SUMMARY))

    monkeypatch.setattr(subprocess, "run", run)
    return commands


def kept(path: Path) -> dict:
    text = path.read_text()
    assert text.endswith("}\n")
    return json.loads(text)


def test_liquidation(started, tmp_path: Path, monkeypatch, capsys) -> None:
    places = ["--results", str(tmp_path / "a" / "results"), "--runs", str(tmp_path / "runs")]
    monkeypatch.setattr(sys, "argv", ["liquidation", "uniform-posterior", "--seeds", "2", *places])
    liquidation.main()
    words = ["train", "liquidation", "--preset", "laptop", "--seed", "20", "--seeds", "2", "--episodes", "100000"]
    words += ["--set", "posterior=uniform"]
    out = ["--out", str(tmp_path / "runs" / "uniform-posterior")]
    assert started == [[sys.executable, "-m", "pspo", *words, *out]]
    found = kept(tmp_path / "a" / "results" / "liquidation-uniform-posterior.json")
    assert list(found) == ["variant", "command", "runs", "manifest", "summary"]
    assert found["variant"] == "uniform-posterior"
    assert found["command"] == "python -m benchmarks.liquidation uniform-posterior"
    assert found["runs"] == " ".join(["pspo", *words])
    assert found["manifest"] == {"seed": 20}
    assert found["summary"] == SUMMARY
    monkeypatch.setattr(sys, "argv", ["liquidation", "--table", *places])
    with pytest.raises(SystemExit) as stop:
        liquidation.main()
    assert not stop.value.code
    assert "| uniform-posterior | 90.00 ± 1.00 | 90.00 ± 1.00 | 89.00, 91.00 | 0.500 |" in capsys.readouterr().out
    assert len(started) == 1


def test_a_corrupted_pool_has_its_own_cache(started, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(liquidation, "corrupted_mass", lambda run: float(run.name[-2:]))
    words = ["corrupted", "--results", str(tmp_path / "results"), "--runs", str(tmp_path / "runs")]
    monkeypatch.setattr(sys, "argv", ["liquidation", *words])
    caches = []
    run = subprocess.run
    monkeypatch.setattr(subprocess, "run", lambda *a, env, **k: (caches.append(env["PSPO_CACHE"]), run(*a, **k)))
    liquidation.main()
    assert "corrupt_pool('laptop')" in started[0][-1]
    assert caches == [str(tmp_path / "runs" / "corrupted-cache")] * 2
    mass = kept(tmp_path / "results" / "liquidation-corrupted.json")["summary"]["mass_on_corrupted_half"]
    assert mass == {"mean": 20.5, "each": [20.0, 21.0]}


def test_locomotion(started, tmp_path: Path, monkeypatch, capsys) -> None:
    beside = {"transitions": 1000, "behaviour": 40.0, "best_tenth": 60.0, "reference": 45.0}
    monkeypatch.setattr(locomotion, "compare", lambda *_: beside)
    places = ["--results", str(tmp_path / "a" / "results"), "--runs", str(tmp_path / "runs")]
    words = ["data", "hopper-medium", "--variant", "uniform-posterior", "--seeds", "2"]
    monkeypatch.setattr(sys, "argv", ["locomotion", *words, *places])
    locomotion.main()
    words = ["--task", "hopper", "--seed", "500", "--seeds", "2", "--episodes", "50", "--set", "posterior=uniform"]
    out = ["--out", str(tmp_path / "runs" / "hopper-medium-uniform-posterior")]
    assert started == [[sys.executable, "-m", "pspo", "train", "data/hopper-medium.hdf5", *words, *out]]
    found = kept(tmp_path / "a" / "results" / "mujoco" / "hopper-medium-uniform-posterior.json")
    assert list(found) == ["dataset", "variant", "command", "runs", "manifest", "beside", "summary", "curves"]
    command = "python -m benchmarks.locomotion DATA-FOLDER hopper-medium --variant uniform-posterior"
    command += " --first-seed 500 --seeds 2"
    assert (found["dataset"], found["variant"], found["command"]) == ("hopper-medium", "uniform-posterior", command)
    assert found["runs"] == " ".join(["pspo", "train", "hopper-medium.hdf5", *words])
    assert (found["manifest"], found["beside"]) == ({"seed": 20}, beside)
    assert found["summary"] == SUMMARY | {"dataset": "hopper-medium"}
    curve = [{"step": 20, "score": 1.235, "model_return": 2, "posterior_entropy": 1, "kl_mu": 0}]
    assert found["curves"] == {"seed-20": curve, "seed-21": curve}
    row = "| hopper-medium | 1,000 | uniform-posterior | 90.0 ± 1.0 | 89.0, 91.0 | 40.0 | 60.0 | 45.0 | 2 |"
    assert row in capsys.readouterr().out


@pytest.mark.slow
def test_what_stands_beside_a_score_on_mujoco(tmp_path: Path) -> None:
    pytest.importorskip("mujoco")
    file = tmp_path / "hopper-random.hdf5"
    collect("hopper-random", file, transitions=400)
    pspo.train(file, preset="smoke", task="hopper", out=tmp_path / "run", episodes=1)
    beside = locomotion.compare(file, "hopper", tmp_path / "run")
    returns = pspo.load_dataset(file, task="hopper").episode_returns()
    assert beside["transitions"] == 400
    assert beside["behaviour"] == pytest.approx(100 * (returns.mean() + 20.272305) / (3234.3 + 20.272305))  # D4RL's
    assert beside["best_tenth"] > beside["behaviour"]
    assert 0 < beside["reference"] < 100


def test_baselines(started, tmp_path: Path, monkeypatch, capsys) -> None:
    places = ["--results", str(tmp_path / "results"), "--runs", str(tmp_path / "runs")]
    words = ["data/hopper-medium.hdf5", "iql", "cql", "--first-seed", "70", "--seeds", "2"]
    monkeypatch.setattr(sys, "argv", ["baselines", *words, *places])
    baselines.main()
    for command, algo in zip(started, ("iql", "cql"), strict=True):
        words = ["data/hopper-medium.hdf5", "--task", "hopper", "--algo", algo, "--preset", "laptop"]
        words += [
            "--seed",
            "70",
            "--seeds",
            "2",
            "--episodes",
            "50",
            "--out",
            str(tmp_path / f"runs/hopper-medium-{algo}"),
        ]
        assert command == [sys.executable, "-m", "pspo", "train", *words]
    found = kept(tmp_path / "results" / "baselines-hopper-medium-cql.json")
    assert (
        found["command"]
        == "python -m benchmarks.baselines DATA-FOLDER/hopper-medium.hdf5 cql --first-seed 70 --seeds 2"
    )
    assert found["curves"]["seed-21"] == [{"step": 20, "score": 1.235}]
    assert "| cql | 90.0 ± 1.0 | 89.0, 91.0 |  |" in capsys.readouterr().out
    words = ["liquidation", "iql", "--set", "rewards=raw", "--variant", "raw-rewards", "--seeds", "2"]
    monkeypatch.setattr(sys, "argv", ["baselines", *words, *places])
    baselines.main()
    assert started[-1][-4:-2] == ["--set", "rewards=raw"]
    assert started[-1][started[-1].index("--episodes") + 1] == "100000"
    found = kept(tmp_path / "results" / "baselines-liquidation-iql-raw-rewards.json")
    assert found["command"].endswith("iql --first-seed 20 --seeds 2 --set rewards=raw --variant raw-rewards")
    (tmp_path / "results" / "liquidation-pspo.json").write_text(json.dumps({"summary": SUMMARY}))
    shown = baselines.table(tmp_path / "results")
    assert "| iql, raw-rewards | 90.0 ± 1.0 | 89.0, 91.0 |  | 20 | 2.0 | 101.83 |" in shown  # and its optimum
    assert "| pspo | 90.0 ± 1.0 | 89.0, 91.0 | 102.3 |" in shown
    assert "| cql | 90.0 ± 1.0 | 89.0, 91.0 |  | 20 | 2.0 |\n" in shown + "\n"  # hopper has no known optimum


@pytest.mark.parametrize("words", [[], ["liquidation", "--set", "gamma=1"], ["liquidation", "--variant", "mine"]])
def test_a_measurement_of_baselines_says_what_it_lacks(words: list[str], started, monkeypatch, capsys) -> None:
    monkeypatch.setattr(sys, "argv", ["baselines", *words])
    with pytest.raises(SystemExit) as stop:
        baselines.main()
    assert stop.value.code == 2
    assert "name a dataset" in (text := capsys.readouterr().err) or "go together" in text
    assert started == []


def test_the_table_of_locomotion_needs_no_data_and_a_measurement_does(started, tmp_path, monkeypatch, capsys) -> None:
    for words, code, text in ((["--table"], 0, "| data | transitions | variant |"), ([], 2, "name the folder")):
        monkeypatch.setattr(sys, "argv", ["locomotion", *words, "--results", str(tmp_path)])
        with pytest.raises(SystemExit) as stop:
            locomotion.main()
        assert (stop.value.code or 0) == code
        assert text in "".join(capsys.readouterr())
    assert started == []


@pytest.mark.parametrize(("claim", "words"), [(liquidation, ["pspoo"]), (locomotion, ["data", "--variant", "pspoo"])])
def test_an_unknown_variant_is_refused(claim, words, started, monkeypatch, capsys) -> None:
    monkeypatch.setattr(sys, "argv", ["claim", *words])
    with pytest.raises(SystemExit) as stop:
        claim.main()
    assert stop.value.code == 2
    assert "did you mean 'pspo'" in capsys.readouterr().err
    assert started == []
