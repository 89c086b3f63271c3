"""Optional copies of the metrics in TensorBoard, Weights & Biases or MLflow; JSONL and CSV are always written.

A tracker is checked before anything is read or fitted: its package is there, and it has somewhere to write to. It
must never cost a run: one that fails during training is closed with a warning.
"""

from __future__ import annotations

import importlib.util
import netrc
import os
import shlex
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pspo.core.errors import UserError, unknown_name
from pspo.core.files import one_line, read_json, write_json

PROJECT = "pspo"
IDS = "trackers.json"
"""In the run directory: under which id each tracker knows the run, so that a resumed run continues there."""
OFFLINE = ("offline", "disabled", "dryrun")  # values of WANDB_MODE that need no account


class Tracker:
    """Does nothing; the base class of trackers."""

    def __enter__(self) -> Tracker:
        return self

    def __exit__(self, kind: object = None, *_: object) -> None:
        """`kind` is the class of an exception that ends the run, or None."""

    def log(self, row: dict[str, Any]) -> None:
        """One row of metrics; "step" is the iteration."""

    def finish(self, result: dict[str, Any]) -> None:
        """The final result."""


def no_tracker(path: Path) -> Tracker:
    return Tracker()


class TensorBoard(Tracker):
    def __init__(self, path: Path) -> None:
        from tensorboardX import SummaryWriter

        self.writer = SummaryWriter(str(path / "tensorboard"))

    def __exit__(self, kind: object = None, *_: object) -> None:
        self.writer.close()

    def log(self, row: dict[str, Any]) -> None:
        for name, value in row.items():
            if name != "step":
                self.writer.add_scalar(name, value, row["step"])


class WandB(Tracker):
    """A run of the project `pspo`, or of WANDB_PROJECT; its files are in the run directory."""

    def __init__(self, path: Path) -> None:
        import wandb  # pyright: ignore[reportMissingImports]

        self.run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            name=path.name,
            dir=str(path),
            id=_known_id(path, "wandb"),
            resume="allow",
            config=read_json(path / "config.json"),
            settings=wandb.Settings(silent=True),
        )
        _keep_id(path, "wandb", self.run.id)

    def __exit__(self, kind: object = None, *_: object) -> None:
        self.run.finish(exit_code=0 if kind is None else 1)

    def log(self, row: dict[str, Any]) -> None:
        self.run.log({name: value for name, value in row.items() if name != "step"}, step=row["step"])

    def finish(self, result: dict[str, Any]) -> None:
        self.run.summary.update(result)


class MLflow(Tracker):
    """A run of the experiment `pspo`, or of MLFLOW_EXPERIMENT_NAME, where MLFLOW_TRACKING_URI says."""

    def __init__(self, path: Path) -> None:
        from mlflow.tracking import MlflowClient  # pyright: ignore[reportMissingImports]

        self.client, config = MlflowClient(), read_json(path / "config.json")
        known = _known_id(path, "mlflow")
        if known is None:
            name = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
            experiment = self.client.get_experiment_by_name(name)
            number = experiment.experiment_id if experiment else self.client.create_experiment(name)
            self.id: str = self.client.create_run(number, run_name=path.name).info.run_id
            _keep_id(path, "mlflow", self.id)
            origin = {name: config.get(name) for name in ("algo", "dataset", "preset", "seed")}
            for name, value in (origin | config.get("settings", {})).items():
                self.client.log_param(self.id, name, value)
        else:
            self.id = known
            self.client.set_terminated(known, "RUNNING")

    def __exit__(self, kind: object = None, *_: object) -> None:
        self.client.set_terminated(self.id, "FINISHED" if kind is None else "FAILED")

    def log(self, row: dict[str, Any]) -> None:
        self._log({name: value for name, value in row.items() if name != "step"}, row["step"])

    def finish(self, result: dict[str, Any]) -> None:
        numbers = {n: v for n, v in result.items() if isinstance(v, int | float) and n not in ("seed", "steps")}
        self._log({f"final_{name}": value for name, value in numbers.items()}, result.get("steps", 0))

    def _log(self, numbers: dict[str, float], step: int) -> None:
        for name, value in numbers.items():
            self.client.log_metric(self.id, name, float(value), step=step)  # MLflow adds the time of day itself


def _known_id(path: Path, tracker: str) -> str | None:
    ids = read_json(path / IDS) if (path / IDS).exists() else {}
    known = ids.get(tracker) if isinstance(ids, dict) else None
    return known if isinstance(known, str) else None


def _keep_id(path: Path, tracker: str, value: str) -> None:
    ids = read_json(path / IDS) if (path / IDS).exists() else {}
    write_json(path / IDS, {**(ids if isinstance(ids, dict) else {}), tracker: value})


# Checks before a run begins


def _check_wandb() -> None:
    """It asks for an account in the middle of a command, or fails where there is no terminal."""
    has_account = os.environ.get("WANDB_API_KEY") or os.environ.get("WANDB_IDENTITY_TOKEN_FILE")
    if os.environ.get("WANDB_MODE", "").lower() not in OFFLINE and not has_account and not _wandb_login():
        raise UserError("Weights & Biases has no API key: run `wandb login` first, or set WANDB_MODE=offline.")


def _wandb_login() -> bool:
    """Whether `wandb login` has stored a key, which it does in the netrc file."""
    host = urlsplit(os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai")).netloc
    paths = [os.environ.get("NETRC"), "~/.netrc", "~/_netrc"]
    try:
        path = next(path for path in (Path(name).expanduser() for name in paths if name) if path.exists())
        return netrc.netrc(str(path)).authenticators(host) is not None
    except (StopIteration, OSError, netrc.NetrcParseError):
        return False


@dataclass(frozen=True)
class TrackerInfo:
    """A tracker that users choose by its name."""

    title: str
    package: str
    open: Callable[[Path], Tracker]
    check: Callable[[], None] = lambda: None
    """Whatever beside its package can be checked without a run."""


TRACKERS = {
    "tensorboard": TrackerInfo("TensorBoard", "tensorboardX", TensorBoard),
    "wandb": TrackerInfo("Weights & Biases", "wandb", WandB, _check_wandb),
    "mlflow": TrackerInfo("MLflow", "mlflow", MLflow),
}
"""By name, which is also that of the extra."""


@dataclass(frozen=True)
class NamedTrackers:
    """Trackers by name, as a `Monitor` takes them; `check` says what is missing before a run begins."""

    names: tuple[str, ...]

    def check(self) -> None:
        for name in self.names:
            if name not in TRACKERS:
                raise unknown_name("tracker", name, TRACKERS)
            info = TRACKERS[name]
            if importlib.util.find_spec(info.package) is None:
                raise UserError(f"{info.title} needs the extra '{name}': pip install 'pspo[{name}]'.")
            info.check()

    def __call__(self, path: Path) -> Tracker:
        self.check()
        opened: dict[str, Tracker] = {}
        for name in self.names:
            title = TRACKERS[name].title
            try:
                opened[title] = TRACKERS[name].open(path)
            except Exception as problem:  # a server, an account, a package of others: anything may be wrong
                _Guarded(opened).__exit__(type(problem))
                raise UserError(
                    f"{title} cannot be used ({one_line(problem)}): correct that, then `pspo resume "
                    f"{shlex.quote(str(path))}`, or leave the tracker out."
                ) from problem
        return _Guarded(opened)


class _Guarded(Tracker):
    """Several trackers; one that fails is given up with a warning, and the run continues without it."""

    def __init__(self, trackers: dict[str, Tracker]) -> None:
        self.trackers = trackers

    def __exit__(self, kind: object = None, *_: object) -> None:
        self._each(lambda tracker: tracker.__exit__(kind))

    def log(self, row: dict[str, Any]) -> None:
        self._each(lambda tracker: tracker.log(row))

    def finish(self, result: dict[str, Any]) -> None:
        self._each(lambda tracker: tracker.finish(result))

    def _each(self, call: Callable[[Tracker], None]) -> None:
        for title, tracker in [*self.trackers.items()]:
            try:
                call(tracker)
            except Exception as problem:  # as above
                del self.trackers[title]
                warnings.warn(
                    f"{title} failed ({one_line(problem)}) and gets no more metrics; metrics.jsonl has all of them.",
                    stacklevel=2,
                )


tensorboard = NamedTrackers(("tensorboard",))


def named_trackers(names: Sequence[str]) -> Callable[[Path], Tracker]:
    """For a `Monitor`: the trackers of these names, each once."""
    return NamedTrackers(tuple(dict.fromkeys(names))) if names else no_tracker


def check_tracker(tracker: Callable[[Path], Tracker]) -> None:
    """Raise UserError if the tracker cannot be used; those of other packages are not known."""
    if isinstance(tracker, NamedTrackers):
        tracker.check()
