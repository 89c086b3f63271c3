"""What the commands write and print, and the same from Python."""

from __future__ import annotations

import csv
import dataclasses
import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import pspo as library
from pspo.cli.main import main
from pspo.training.monitor import SILENT
from tests.cli.command_line import TINY, pspo


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "run"
    done = pspo("train", "liquidation", *TINY, "--out", out)
    assert done.returncode == 0, done.stderr
    assert str(out / "report.html") in done.stdout
    return out


def test_a_run_directory_is_complete(run: Path) -> None:
    result = json.loads((run / "result.json").read_text())
    wanted = {"algo", "dataset", "seed", "preset", "score", "return_mean", "return_std", "episodes", "seconds", "steps"}
    assert wanted <= set(result)
    assert (result["algo"], result["dataset"], result["seed"], result["episodes"]) == ("pspo", "liquidation", 0, 500)
    manifest = json.loads((run / "manifest.json").read_text())
    assert manifest["data_hash"] == library.load_dataset("liquidation").hash
    assert {"libraries", "threads", "device", "timings", "seed"} <= set(manifest)
    assert (run / "report.html").stat().st_size > 10_000
    assert json.loads((run / "config.json").read_text())["settings"]["gamma"] == 1.0


def test_every_chunk_logs_the_diagnostics_of_pspo(run: Path) -> None:
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    wanted = {"posterior_entropy", "effective_models", "f_mean", "kl_mu", "kl_target_policy", "alpha", "lambda"}
    wanted |= {"critic_loss", "q_min", "q_max"}
    assert [row["step"] for row in rows] == [20, 40, 60]
    assert all(wanted <= set(row) for row in rows)
    assert {"score", "target_policy_score", "model_return"} <= set(rows[-1])
    with open(run / "metrics.csv") as file:
        table = list(csv.DictReader(file))
    assert [float(row["critic_loss"]) for row in table] == [row["critic_loss"] for row in rows]


def test_evaluate_prints_json_that_python_agrees_with(run: Path, capsys) -> None:
    assert main(["evaluate", str(run), "--episodes", "3000", "--seed", "4", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == library.evaluate(run, episodes=3000, seed=4).as_dict()
    assert printed["score"] == pytest.approx(printed["return_mean"] / 1.35)
    assert printed["optimal_score"] - printed["score_by_regret"] == pytest.approx(printed["regret"] / 1.35, abs=1e-6)


def test_the_policy_is_a_callable_on_one_state_or_many(run: Path) -> None:
    policy = library.load_policy(run)
    states = np.array([[0, 100, 1.0], [10, 50, 2.0], [19, 100, 1.5]], np.float32)
    batch = policy(states)
    assert batch.shape == (3, 1)
    assert np.all(np.abs(batch) <= 1)
    np.testing.assert_allclose(policy(states[1]), batch[1], rtol=1e-5, atol=1e-6)


def test_python_and_the_command_line_train_the_same_policy_bit_for_bit(run: Path, tmp_path: Path) -> None:
    trained = library.train("liquidation", preset="smoke", out=tmp_path / "run", episodes=500, monitor=SILENT)
    assert (tmp_path / "run" / "policy.safetensors").read_bytes() == (run / "policy.safetensors").read_bytes()
    assert trained.result["score"] == json.loads((run / "result.json").read_text())["score"]


@pytest.fixture(scope="module")
def bc_run(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "bc"
    tracked = ["--tensorboard"] if importlib.util.find_spec("tensorboardX") else []
    assert main(["train", "liquidation", "--algo", "bc", *TINY, *tracked, "--out", str(out)]) == 0
    return out


def test_several_seeds_in_one_call_equal_single_runs(bc_run: Path, tmp_path: Path, capsys) -> None:
    """Seeds are trained in processes, the single run was trained in this one."""
    words = ["train", "liquidation", *TINY, "--seeds", "2", "--out", str(tmp_path / "both")]
    assert main([*words, "--algo", "bc"]) == 0
    printed = capsys.readouterr().out
    both = json.loads((tmp_path / "both" / "summary.json").read_text())
    assert both["seeds"] == [0, 1]
    assert both["score"]["mean"] == pytest.approx(np.mean(both["score"]["each"]))
    assert both["score"]["std"] == pytest.approx(np.std(both["score"]["each"], ddof=1))
    numbers = [both["return_mean"]["mean"], both["return_mean"]["std"], *both["return_mean"]["each"]]
    assert f"mean return │ {' │ '.join(f'{number:.3f}' for number in numbers)}" in " ".join(printed.split())
    single = (bc_run / "policy.safetensors").read_bytes()
    assert (tmp_path / "both" / "seed-0" / "policy.safetensors").read_bytes() == single
    assert (tmp_path / "both" / "seed-1" / "policy.safetensors").read_bytes() != single
    # The same command again resumes, and all is finished; any other request is refused.
    assert main([*words, "--algo", "bc"]) == 0
    assert capsys.readouterr().out == printed
    assert main([*words, "--algo", "cql"]) == 2
    assert "belongs to another request" in capsys.readouterr().err


def test_train_seeds_from_python_resumes_a_folder_of_the_command_line(run: Path, tmp_path: Path) -> None:
    """The folder of version 0.1, whose command.json holds words, is resumed as well."""
    request = library.TrainRequest("liquidation", preset="smoke", episodes=500)
    runs = tmp_path / "seeds"
    shutil.copytree(run, runs / "seed-0")
    words = ["train", "liquidation", "--algo", "pspo", "--preset", "smoke", "--episodes", "500"]
    (runs / "command.json").write_text(json.dumps(words))
    for _ in range(2):
        summary = library.train_seeds(request, seeds=1, out=runs, monitor=SILENT)
        assert [done.path for done in summary.runs] == [runs / "seed-0"]
        assert summary.numbers["score"]["each"] == [json.loads((run / "result.json").read_text())["score"]]
        assert json.loads(summary.path.read_text()) == summary.numbers
    assert json.loads((runs / "command.json").read_text())["episodes"] == 500
    with pytest.raises(library.UserError, match="belongs to another request"):
        library.train_seeds(dataclasses.replace(request, episodes=600), seeds=1, out=runs, monitor=SILENT)


def test_train_seeds_raises_with_what_failed_and_leaves_nothing(tmp_path: Path) -> None:
    request = library.TrainRequest("liquidatoin", "bc", "smoke")
    with pytest.raises(library.RunsFailed, match=r"seed 3: .*did you mean 'liquidation'") as error:
        library.train_seeds(request, seeds=[3], out=tmp_path / "runs", monitor=SILENT)
    assert (list(error.value.failures), error.value.results) == (["seed 3"], None)
    assert list(tmp_path.iterdir()) == []


def test_the_public_names_are_listed_and_exist() -> None:
    assert dir(library) == sorted(library.__all__)
    for name in library.__all__:
        assert getattr(library, name) is not None


def test_data_make_check_and_info(tmp_path: Path, capsys) -> None:
    path = tmp_path / "small.npz"
    assert main(["data", "make", "liquidation", "--size", "3000", "--seed", "5", "--out", str(path)]) == 0
    made = library.load_dataset(path)
    assert made.size == 3000
    assert made.hash == library.load_dataset("liquidation", size=3000, seed=5).hash
    assert main(["check", str(path)]) == 0
    assert main(["data", "info", str(path)]) == 0
    assert "3000" in capsys.readouterr().out


def test_config_explains_every_key(capsys) -> None:
    assert main(["config", "--task", "liquidation"]) == 0
    text = capsys.readouterr().out
    assert "gamma=1.0" in text
    assert "model.width=" in text


def test_help_does_not_import_jax() -> None:
    code = "import sys; from pspo.cli.main import main\ntry: main(['--help'])\nexcept SystemExit: pass\n"
    code += "print('jax' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip().endswith("False")


def test_tensorboard_events_on_request(bc_run: Path) -> None:
    pytest.importorskip("tensorboardX")
    assert list((bc_run / "tensorboard").glob("events*"))
