"""The example scripts with the smoke preset: what they print, and that it is true."""

from __future__ import annotations

import ast
import json
import re
import runpy
import sys
import threading
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import numpy as np
import pytest

import pspo
from pspo.cli.main import main
from pspo.data import load_dataset, save_dataset
from pspo.report.statistics import average, bootstrap_interval, mean_and_std, probability_of_improvement
from pspo.runs.directory import Run
from pspo.training.monitor import SILENT
from tests.examples.example_cases import ROOT

SCRIPTS = ("compare_two", "export_and_serve", "own_csv")


def run_script(name: str, *words: str) -> dict[str, Any]:
    """As `python examples/NAME.py WORDS` in the current folder; returns its global names."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [f"{name}.py", *words])
        return runpy.run_path(str(ROOT / "examples" / f"{name}.py"), run_name="__main__")


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_is_short_and_documented(name: str) -> None:
    text = (ROOT / "examples" / f"{name}.py").read_text()
    assert len(text.splitlines()) < 60
    assert f"examples/{name}.py" in (ast.get_docstring(ast.parse(text)) or "")
    assert "--preset" in text


# compare_two


def test_compare_two_prints_what_the_statistics_module_computes(capsys) -> None:
    left = run_script("compare_two", "bc", "td3bc", "--preset", "smoke", "--seeds", "2")
    out = capsys.readouterr().out
    scores = {a: [float(v) for v in re.findall(rf"^{a} seed \d: (\S+)$", out, re.MULTILINE)] for a in ("bc", "td3bc")}
    assert [len(values) for values in scores.values()] == [2, 2]
    assert len(list(Path("runs").glob("*/result.json"))) == 4
    for algo, exact in left["scores"].items():
        np.testing.assert_allclose(scores[algo], exact, atol=0.051)
        (mean, spread), ends = mean_and_std(exact), bootstrap_interval(average, [exact])
        assert ends is not None
        row = next(line for line in out.splitlines() if line.startswith(f"│ {algo} "))
        cells = [cell.strip() for cell in row.split("│")[2:-1]]
        assert cells == [f"{mean:.1f}", f"{spread:.1f}", f"{ends.low:.1f} to {ends.high:.1f}", "2"]
    found = probability_of_improvement(*([left["scores"][algo]] for algo in ("bc", "td3bc")))
    assert f"A run of bc is better than a run of td3bc with probability {found.probability:.2f} (95 %" in out


def test_comparing_a_single_algorithm_is_refused(capsys) -> None:
    with pytest.raises(SystemExit) as stop:
        run_script("compare_two", "bc", "--preset", "smoke")
    assert stop.value.code == 2
    assert "this compares two algorithms, not 1." in capsys.readouterr().err


# export_and_serve


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """BC on a small dataset."""
    folder = tmp_path_factory.mktemp("served")
    save_dataset(load_dataset("liquidation", size=3000), folder / "log.npz")
    return pspo.train(folder / "log.npz", "bc", preset="smoke", out=folder / "run", episodes=500, monitor=SILENT).path


def test_the_served_policy_answers_with_its_actions(run: Path, capsys) -> None:
    run_script("export_and_serve", "--run", str(run))
    out = capsys.readouterr().out
    answers = re.findall(r"^ *(\[.*?\]) -> (\{.*?\}) +[\d,]+ µs$", out, re.MULTILINE)
    assert len(answers) == 3
    policy = pspo.load_policy(run)
    for state, answer in answers:
        np.testing.assert_allclose(json.loads(answer)["action"], policy(json.loads(state)), atol=2e-5)
    refused = re.findall(r'-> 400 (\{"error": ".*"\}) +[\d,]+ µs$', out, re.MULTILINE)
    assert [json.loads(answer)["error"] for answer in refused] == ['send {"state": [...]} with 3 finite numbers.'] * 2
    assert re.search(r"Without HTTP the same takes [\d,]+ µs\.", out)


BAD = {
    "no JSON": b"hello",
    "nothing": b"",
    "no state": b'{"obs": [0, 100, 1]}',
    "a list": b"[0, 100, 1]",
    "words": b'{"state": ["a", "b", "c"]}',
    "infinite": b'{"state": [0, 1e999, 1]}',
    "a batch": b'{"state": [[0, 100, 1]]}',
    "nested": b"[" * 50_000,
}


def test_bad_requests_get_status_400_and_a_sentence(run: Path, capsys) -> None:
    handler = run_script("export_and_serve", "--run", str(run))["Handler"]
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        for what, body in BAD.items():
            with pytest.raises(HTTPError) as refused:
                urlopen(Request(f"http://127.0.0.1:{server.server_port}", body, method="POST"))
            assert refused.value.code == 400, what
            assert "finite numbers." in json.loads(refused.value.read())["error"], what
    finally:
        server.shutdown()
    assert capsys.readouterr().err == ""  # no traceback from the server


# own_csv


def test_own_csv_checks_trains_and_estimates(capsys) -> None:
    left = run_script("own_csv", "--preset", "smoke")
    out = " ".join(capsys.readouterr().out.split())
    assert "1,200 rows in tank.csv - action bounds were not given and are 0 and 1" in out
    assert "Mean sum of rewards until the episode ends, on tank" in out
    for method in ("posterior models", "fitted Q"):
        assert re.search(rf"{method} │ -?[\d.]+ │ -?[\d.]+ to -?[\d.]+", out), method
    printed = re.search(r"the policy returns (-?[\d.]+), the dataset (-?[\d.]+)\.", out)
    assert printed
    data = load_dataset("tank.csv")
    assert float(printed[2]) == pytest.approx(data.episode_returns().mean(), abs=0.006)
    again = left["play"](lambda obs, rng: left["policy"](obs), days=2000, seed=1)
    assert float(printed[1]) == pytest.approx(left["mean_return"](again), abs=0.006)
    (run,) = map(Run, Path("runs").iterdir())
    assert "score" not in run.result  # unknown without a simulator
    assert "model_return" in run.result
    assert (run.result["termination"], run.result["reward"]) == ("learned", "learned")
    assert main(["evaluate", str(run.path)]) == 2
    assert "simulator" in capsys.readouterr().err
