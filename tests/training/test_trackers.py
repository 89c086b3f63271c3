"""Trackers: checked before a run begins, opened before models are fitted, and never the end of a run."""

from __future__ import annotations

import importlib.util
import time
from pathlib import Path
from typing import Any

import pytest

from pspo.cli.main import main
from pspo.core.errors import UserError
from pspo.core.files import write_json
from pspo.experiments.seeds import train_seeds
from pspo.training import trackers
from pspo.training import train as training
from pspo.training.monitor import SILENT, Monitor
from pspo.training.request import TrainRequest
from pspo.training.trackers import TRACKERS, NamedTrackers, Tracker, TrackerInfo, named_trackers

ROW = {"step": 20, "score": 1.5, "kl": 0.25}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run directory as trackers find it."""
    path = tmp_path / "run-7"
    path.mkdir()
    write_json(path / "config.json", {"algo": "bc", "dataset": "log.csv", "seed": 7, "settings": {"steps": 40}})
    return path


@pytest.fixture
def not_installed(monkeypatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)


class Recorder(Tracker):
    """Keeps what it gets; raises at the call that is to fail."""

    def __init__(self, fails_at: str = "") -> None:
        self.calls: list[Any] = []
        self.fails_at = fails_at

    def _note(self, name: str, value: Any) -> None:
        if name == self.fails_at:
            raise ConnectionError("no route\nto host")
        self.calls.append((name, value))

    def __exit__(self, kind: object = None, *_: object) -> None:
        self._note("close", kind)

    def log(self, row: dict[str, Any]) -> None:
        self._note("log", row)

    def finish(self, result: dict[str, Any]) -> None:
        self._note("finish", result)


@pytest.fixture
def registered(monkeypatch) -> dict[str, Recorder]:
    """Two trackers by name; the package `json` stands for theirs."""
    made = {"one": Recorder(), "two": Recorder()}
    for name, recorder in made.items():
        monkeypatch.setitem(TRACKERS, name, TrackerInfo(name.title(), "json", lambda path, made=recorder: made))
    return made


@pytest.mark.parametrize("name", ["tensorboard", "wandb", "mlflow"])
def test_a_missing_package_is_named_before_anything_is_read(name: str, tmp_path: Path, capsys, not_installed) -> None:
    # The dataset does not exist: whoever read it first would complain about that.
    for words in (["nothing.csv"], ["nothing.csv", "--seeds", "2"]):
        assert main(["train", *words, "--track", name, "--out", str(tmp_path / "run")]) == 2
        assert f"pip install 'pspo[{name}]'." in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_the_old_option_still_means_tensorboard(capsys, tmp_path: Path, not_installed) -> None:
    assert main(["train", "nothing.csv", "--tensorboard", "--out", str(tmp_path / "run")]) == 2
    assert "TensorBoard needs the extra 'tensorboard'" in capsys.readouterr().err


def test_wandb_needs_an_account_or_offline_mode(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    for name in ("WANDB_MODE", "WANDB_API_KEY", "WANDB_IDENTITY_TOKEN_FILE", "WANDB_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    login = tmp_path / "netrc"
    monkeypatch.setenv("NETRC", str(login))
    monkeypatch.setenv("HOME", str(tmp_path))
    check = NamedTrackers(("wandb",)).check
    with pytest.raises(UserError, match="no API key: run `wandb login` first, or set WANDB_MODE=offline"):
        check()
    login.write_text("machine example.org login user password x\n")
    with pytest.raises(UserError, match="no API key"):
        check()
    login.write_text("machine api.wandb.ai login user password x\n")
    check()
    monkeypatch.setenv("WANDB_BASE_URL", "https://wandb.example.org")
    with pytest.raises(UserError, match="no API key"):
        check()
    monkeypatch.setenv("WANDB_MODE", "offline")
    check()


def test_a_tracker_that_cannot_be_opened_ends_the_run_before_models_are_fitted(
    registered, monkeypatch, tmp_path: Path
) -> None:
    def refuse(path: Path) -> Tracker:
        raise ConnectionError("no route to host")

    monkeypatch.setitem(TRACKERS, "two", TrackerInfo("Two", "json", refuse))
    monkeypatch.setattr(training, "_fit_and_train", lambda *_: pytest.fail("work has begun"))
    monitor = Monitor(message=lambda text: None, tracker=named_trackers(["one", "two"]))
    with pytest.raises(UserError, match=r"Two cannot be used \(no route to host\): correct that, then `pspo resume"):
        training.train("liquidation", "bc", preset="smoke", out=tmp_path / "run", monitor=monitor)
    assert registered["one"].calls == [("close", ConnectionError)]


def test_a_tracker_that_fails_is_given_up_with_a_warning(registered, run: Path) -> None:
    registered["one"].fails_at = "log"
    with named_trackers(["one", "two", "one"])(run) as tracker:
        with pytest.warns(UserWarning, match=r"One failed \(no route to host\) and gets no more metrics"):
            tracker.log(ROW)
        tracker.log(ROW)
        tracker.finish({"score": 2.0})
    assert registered["one"].calls == []
    assert registered["two"].calls == [("log", ROW), ("log", ROW), ("finish", {"score": 2.0}), ("close", None)]


def test_a_run_ends_with_its_result_in_the_tracker(registered, tmp_path: Path) -> None:
    monitor = Monitor(message=lambda text: None, tracker=named_trackers(["one"]))
    run = training.train("liquidation", "bc", preset="smoke", episodes=50, out=tmp_path / "run", monitor=monitor)
    calls = registered["one"].calls
    assert [name for name, _ in calls] == ["log"] * len(run.metrics()) + ["finish", "close"]
    assert calls[0][1] == run.metrics()[0]
    assert calls[-2][1] == run.result


def test_seeds_refuse_a_tracker_without_a_name(tmp_path: Path) -> None:
    monitor = Monitor(message=SILENT.message, tracker=lambda path: Recorder())
    with pytest.raises(UserError, match="which only tensorboard, wandb, mlflow can follow"):
        train_seeds(TrainRequest("liquidation", "bc", "smoke"), seeds=2, out=tmp_path / "runs", monitor=monitor)


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(UserError, match="unknown tracker 'tensorbord': did you mean 'tensorboard'"):
        NamedTrackers(("tensorbord",)).check()


def test_wandb_gets_metrics_and_continues_the_same_run(run: Path, monkeypatch) -> None:
    pytest.importorskip("wandb", reason="needs the extra pspo[wandb]")
    monkeypatch.setenv("WANDB_MODE", "offline")
    ids = []
    for step in (20, 40):
        time.sleep(1.1)  # wandb names the folders of offline runs by the second
        with named_trackers(["wandb"])(run) as tracker:
            tracker.log({**ROW, "step": step})
            tracker.finish({"score": 2.0, "algo": "bc"})
        ids.append(trackers._known_id(run, "wandb"))
    assert ids[0] == ids[1]
    stored = sorted((run / "wandb").glob(f"offline-run-*-{ids[0]}/run-{ids[0]}.wandb"))
    assert len(stored) == 2
    wanted = ("kl", "0.25", "score", "1.5", "log.csv")
    until = time.monotonic() + 60
    while missing := [text for file in stored for text in wanted if text.encode() not in file.read_bytes()]:
        assert time.monotonic() < until, missing  # wandb's own process writes the file, on a busy machine later
        time.sleep(0.2)


def test_mlflow_gets_metrics_and_continues_the_same_run(run: Path, tmp_path: Path, monkeypatch) -> None:
    pytest.importorskip("mlflow", reason="needs the extra pspo[mlflow]")
    from mlflow.tracking import MlflowClient  # pyright: ignore[reportMissingImports]

    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "store").as_uri())
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    for step in (20, 40):
        with named_trackers(["mlflow"])(run) as tracker:
            tracker.log({**ROW, "step": step})
            tracker.finish({"score": 2.0, "algo": "bc", "steps": step})
    client, known = MlflowClient(), trackers._known_id(run, "mlflow")
    history = [(metric.step, metric.value) for metric in client.get_metric_history(known, "kl")]
    assert sorted(history) == [(20, 0.25), (40, 0.25)]
    stored = client.get_run(known)
    assert stored.data.params["steps"] == "40"
    assert stored.data.metrics["final_score"] == 2.0
    assert stored.info.status == "FINISHED"
