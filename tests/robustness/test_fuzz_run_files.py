"""Damaged files of a run: it is resumed, shown and evaluated, or refused in one sentence."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pspo.cli.main import main
from pspo.data import load_dataset
from pspo.evaluation.ope import estimate_run
from pspo.evaluation.ope.estimate_run import estimate_return
from pspo.experiments.jobs import Job
from pspo.experiments.progress import progress_of
from pspo.report.records import from_run
from pspo.report.run.page import write_report
from pspo.runs.directory import Run
from pspo.training import train as training
from pspo.training.monitor import SILENT
from pspo.training.request import TrainRequest
from tests.refusals import one_sentence
from tests.report.made_up_run import config, metrics, models, result, write_run
from tests.robustness.damage import FEW_AND_MANY, bounded, damaged, edited_text, refused_or

MANIFEST = {
    "pspo": "0.1.0",
    "python": "3.11.7",
    "platform": "Linux",
    "libraries": {"jax": "0.9.0", "numpy": "2.3.0"},
    "device": "cpu:0",
    "cores": 2,
    "threads": 1,
    "data_hash": "c0ffee",
    "seed": 3,
    "timings": {"prepare": 1.5, "train": 11.1},
    "models": {"pool": "abc", "reference": "def"},
}
FILES: dict[str, Any] = {
    "config": config(name="liquidation", columns={"obs": ["a", "b*"], "action": "c"}),
    "manifest": MANIFEST,
    "result": result()
    | {"algo": "pspo", "dataset": "liquidation", "preset": "smoke", "seed": 3, "task": "liquidation"},
    "models": models(),
}


@pytest.mark.parametrize("times", FEW_AND_MANY)
@pytest.mark.parametrize("name", FILES)
def test_a_run_with_an_edited_file_is_resumed_or_refused(name: str, times: int, tmp_path: Path, monkeypatch) -> None:
    """Only reading is tested: training and estimating are replaced."""
    data = load_dataset("liquidation", size=500)
    files = FILES | {"manifest": MANIFEST | {"data_hash": data.hash}}
    run, reached = write_run(tmp_path / "run", **files), set()
    monkeypatch.setattr(training, "_work", lambda *_: reached.add("resumed"))
    monkeypatch.setattr(estimate_run, "estimate", lambda *_: reached.add("estimated") or ([], {}))

    @bounded(15 * times)
    @given(edited_text(files[name]))
    @example(json.dumps(files[name]))
    def check(text: str) -> None:
        (run / f"{name}.json").write_text(text, errors="surrogatepass")
        refused_or(lambda: from_run(run, tmp_path))
        refused_or(lambda: progress_of(Job("a", TrainRequest("liquidation"), run)))
        refused_or(lambda: estimate_return(run, data))
        kept = (run / "result.json").rename(tmp_path / "result.json")  # a finished run is not resumed
        refused_or(lambda: training.resume(run, data, monitor=SILENT))
        kept.rename(run / "result.json")

    check()
    assert reached == {"resumed", "estimated"}


@pytest.mark.parametrize("times", FEW_AND_MANY)
@pytest.mark.parametrize("name", FILES)
def test_the_page_of_an_edited_run_is_whole_or_refused(name: str, times: int, tmp_path: Path) -> None:
    """Few examples: figures take long."""
    run = write_run(tmp_path / "run", **FILES)

    @bounded(2 * times)
    @given(edited_text(FILES[name]))
    def check(text: str) -> None:
        (run / f"{name}.json").write_text(text, errors="surrogatepass")
        if page := refused_or(lambda: write_report(run)):
            html = page.read_text()
            assert html.endswith("</html>\n")
            assert "<script" not in html

    check()


@pytest.mark.parametrize("times", FEW_AND_MANY)
def test_damaged_metrics_are_rewound_or_refused(times: int, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", metrics=None)
    rows = metrics()
    whole = "".join(json.dumps(row) + "\n" for row in rows)
    lines = edited_text(rows[1]).map(lambda text: (json.dumps(rows[0]) + "\n" + text + "\n").encode(errors="replace"))

    @bounded(15 * times)
    @given(st.one_of(damaged(whole.encode()), lines))
    def check(content: bytes) -> None:
        (run / "metrics.jsonl").write_bytes(content)
        refused_or(Run(run).metrics)
        refused_or(lambda: from_run(run, tmp_path))
        refused_or(lambda: progress_of(Job("a", TrainRequest("liquidation"), run)))
        Run(run).rewind_metrics(500)
        assert all(row["step"] <= 500 for row in Run(run).metrics())
        Run(run).append_metrics({"step": 750})
        assert Run(run).metrics()[-1] == {"step": 750}

    check()


def test_a_damaged_setting_of_a_finished_run_is_named(whole: Path, tmp_path: Path, capsys) -> None:
    run = Path(shutil.copytree(whole, tmp_path / "run"))
    config = json.loads((run / "config.json").read_text())
    config["settings"]["gamma"] = "abc"
    (run / "config.json").write_text(json.dumps(config))
    assert main(["resume", str(run), "--quiet"]) == 2
    one_sentence(capsys.readouterr().err, "gamma=abc is not a number")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("config.json", b"{", "config.json cannot be read"),
        ("config.json", b"{}", "config.json lacks 'algo'"),
        ("manifest.json", b"[]", "manifest.json does not hold what a run writes there"),
        ("result.json", b'{"steps": "many"}', "'steps' in "),
        ("policy.safetensors", b"", "; once it is removed, `pspo resume` writes it from the last checkpoint"),
    ],
)
def test_a_damaged_file_of_a_finished_run_is_named(
    whole: Path, tmp_path: Path, capsys, name: str, content: bytes, message: str
) -> None:
    run = Path(shutil.copytree(whole, tmp_path / "run"))
    (run / name).write_bytes(content)
    assert main(["resume", str(run), "--quiet"]) == 2
    one_sentence(capsys.readouterr().err, message)
    assert (run / name).read_bytes() == content
