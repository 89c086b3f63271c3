"""`train` and `resume`: from a dataset and settings to a finished run directory.

load and check the dataset -> create the run -> prepare (cached) -> loop -> final evaluation -> report
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pspo.algorithms import external, get_algorithm
from pspo.algorithms import preset as load_preset
from pspo.algorithms.contract import Algorithm
from pspo.algorithms.sharing import about_pool
from pspo.core import checkpoint
from pspo.core.compute import keep_compiled_programs
from pspo.core.config import build, flatten
from pspo.core.errors import UserError
from pspo.data.batches import device_dataset
from pspo.data.check import require_trainable
from pspo.data.columns import Columns, as_columns
from pspo.data.dataset import Dataset
from pspo.data.load import load_dataset
from pspo.envs.task import get_task, require_episodes
from pspo.report.run.page import write_report
from pspo.runs.directory import Run, create, free_path, open_run, writing
from pspo.runs.manifest import describe_machine
from pspo.training.loop import Clock, Session, run_loop
from pspo.training.monitor import Monitor
from pspo.training.result import final_evaluation

RESUME_NEEDS = ("algo", "dataset", "task", "preset", "seed", "episodes", "settings")
"""Keys of config.json without which a run cannot be resumed."""


def train(
    dataset: Any,
    algo: str = "pspo",
    preset: str = "laptop",
    *,
    seed: int = 0,
    out: str | Path | None = None,
    settings: dict[str, Any] | None = None,
    episodes: int | None = None,
    columns: Columns | Mapping[str, Any] | None = None,
    task: str | None = None,
    monitor: Monitor = Monitor(),  # noqa: B008
) -> Run:
    """Learn a policy from a dataset; returns the finished run. Everything is checked before anything is written.

    `dataset` is whatever `load_dataset` takes, which also gets `columns` and `task`. `algo` and `preset` are names that
    `pspo list` shows; `settings` change single keys of the preset, as in {"alpha": 0.01}. `out` is the run directory,
    by default a new one under runs/. `episodes` of the final evaluation default to the task's own number. `monitor`
    receives progress, messages and metrics. Raises `UserError` for bad input, and `Diverged` where a number is not
    finite.
    """
    algorithm = get_algorithm(algo)
    if not 0 <= seed < 2**31:
        raise UserError(f"seed={seed} is out of range: it must be a whole number from 0 to {2**31 - 1}.")
    if episodes is not None:
        require_episodes(episodes)
    data = load_dataset(dataset, columns, task, monitor.progress)
    config = build(algorithm.Config, load_preset(algo, preset, data.task, data.name), settings or {})
    require_trainable(data)
    source = str(dataset) if isinstance(dataset, (str, Path)) else data.name
    if data.task:
        get_task(data.task).require_fit(f"the dataset '{source}'", data)
        get_task(data.task).require()
    description = {
        "algo": algo,
        "dataset": source,
        "name": data.name,
        "columns": columns and as_columns(columns).given(),
        "names": {"obs": [*data.obs_names], "action": [*data.action_names]},
        "task": data.task,
        "preset": preset,
        "seed": seed,
        "episodes": episodes or (get_task(data.task).default_episodes if data.task else 0),
    }
    manifest = describe_machine() | {"data_hash": data.hash, "seed": seed, "timings": {}}
    if origin := external().get(algo):
        manifest["algorithm"] = origin  # to be read by people: what it names is never imported
    path = out or free_path(f"{data.name}-{algo}-{preset}-seed{seed}")
    run = create(path, {"config": description | {"settings": flatten(config)}, "manifest": manifest})
    with writing(run):
        return _work(run, algorithm, config, data, monitor)


def resume(path: str | Path, dataset: Any = None, *, monitor: Monitor = Monitor()) -> Run:  # noqa: B008
    """Continue a run that was stopped, bit for bit; one that is finished is returned as it is.

    `dataset` is needed only where the data came from memory. Data that have changed since are refused.
    """
    run = open_run(path)
    if run.finished:
        return run
    description, manifest = run.read("config", *RESUME_NEEDS), run.read("manifest", "data_hash", "timings")
    checkpoint.require_inside(run.checkpoints)
    algorithm = get_algorithm(description["algo"], manifest.get("algorithm"))
    columns = None if isinstance(dataset, Dataset) else description.get("columns")
    source = dataset if dataset is not None else description["dataset"]
    data = load_dataset(source, columns, description.get("task"), monitor.progress)
    if data.hash != manifest["data_hash"]:
        raise UserError(f"the data of {run.path} have changed since it was started: restore them or train again.")
    with writing(run):
        return _work(run, algorithm, build(algorithm.Config, description["settings"]), data, monitor)


def _work(run: Run, algorithm: Algorithm, config: Any, data: Dataset, monitor: Monitor) -> Run:
    description = run.read("config")
    clock = Clock(run)
    keep_compiled_programs()
    with clock("prepare"):
        setup, models = algorithm.prepare(config, data, description["seed"], monitor.progress)
        run.write("models", models)
        if "pool" in models:
            monitor.message(about_pool(description["algo"], config, description["preset"], data, models["pool"]))
        _require_same_models(run, models)
    session = Session(run, algorithm, config, setup, data, device_dataset(data, setup.norm, config.gamma))
    with clock("train"), monitor.tracker(run.path) as tracker:
        state = run_loop(session, clock, monitor, tracker)
    with clock("evaluate"):
        final_evaluation(session, state, clock)
    monitor.message(f"report: {write_report(run.path)}")
    return run


def _require_same_models(run: Run, models: dict[str, Any]) -> None:
    """A resumed run must use the very models it was started with, also when the cache was emptied."""
    manifest = run.read("manifest")
    digest = {name: info["digest"] for name, info in models.items() if isinstance(info, dict)}
    if manifest.setdefault("models", digest) != digest:
        raise UserError(f"the models of {run.path} cannot be rebuilt exactly on this machine: train again.")
    run.write("manifest", manifest)
