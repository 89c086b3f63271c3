"""`train` and `resume`: from a dataset and settings to a finished run directory.

load and check the dataset -> create the run -> prepare (cached) -> loop -> final evaluation -> report
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pspo.algorithms import ALGORITHMS, external, get_algorithm, get_algorithm_for
from pspo.algorithms import preset as load_preset
from pspo.algorithms.contract import Algorithm
from pspo.algorithms.sharing import about_pool
from pspo.core import checkpoint
from pspo.core.compute import keep_compiled_programs
from pspo.core.config import build, flatten
from pspo.core.errors import UserError, not_empty
from pspo.core.progress import NO_REPORT, Progress, Reporter
from pspo.data.batches import device_dataset
from pspo.data.check import require_trainable
from pspo.data.columns import Columns
from pspo.data.dataset import Dataset
from pspo.data.discrete import NOTE as ABOUT_ACTIONS
from pspo.data.file_batches import FileBatches
from pspo.data.holdout import Holdout, hold_out
from pspo.data.load import columns_with_map, load_dataset, source_text
from pspo.envs.task import get_task, require_episodes
from pspo.evaluation.run_comparison import FILE_NAME as COMPARISON
from pspo.evaluation.run_comparison import compare_run
from pspo.report.run.page import FILE_NAME as REPORT_FILE
from pspo.report.run.page import write_report
from pspo.runs.dataset import own_dataset
from pspo.runs.directory import Run, create, discard, free_path, open_run, writing
from pspo.runs.manifest import describe_machine
from pspo.training.configure import configure, refuse_unused
from pspo.training.loop import Clock, Session, run_loop
from pspo.training.monitor import Monitor
from pspo.training.request import require_seed
from pspo.training.result import final_evaluation
from pspo.training.trackers import Tracker, check_tracker

COMPARISON_FILE = f"{COMPARISON}.json"
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
    caution: str = "normal",
    holdout: float | None = None,
    holdout_by: str | None = None,
    monitor: Monitor = Monitor(),  # noqa: B008
) -> Run:
    """Learn a policy from a dataset; returns the finished run. Everything is checked before anything is written.

    `dataset` is whatever `load_dataset` takes, which also gets `columns` and `task`. `algo` and `preset` are names that
    `pspo list` shows; `settings` change single keys of the preset, as in {"alpha": 0.01}. `out` is the run directory,
    by default a new one under runs/. `caution` is "low", "normal" or "high" and stands for settings of the algorithm,
    see docs/choosing.md; `settings` win over it. A fraction `holdout` of the data is kept apart for `estimate_return`
    and `select`: the latest rows if `holdout_by` is "time" (the default with a time column), random episodes if it is
    "episode". `episodes` of the final evaluation default to the task's own number. `monitor` receives progress,
    messages and metrics. Raises `UserError` for bad input, and `Diverged` where a number is not finite.
    """
    _refuse_before_reading(algo, seed, episodes, out, monitor)
    columns, _ = columns_with_map(dataset, columns)
    whole = load_dataset(dataset, columns, task, monitor.progress)
    data, held_out, kept = hold_out(whole, holdout, holdout_by)
    algorithm = get_algorithm_for(data, algo)
    of_preset = load_preset(algo, preset, data.task, data.name, data.discrete)
    config, about = configure(algorithm, algo, of_preset, settings, caution)
    refuse_unused(algorithm, settings or {}, data)
    require_trainable(whole)
    for line in filter(None, [*_about(whole, kept), about]):
        monitor.message(line)
    source = source_text(dataset) or data.name
    if data.task:
        get_task(data.task).require_fit(f"the dataset '{source}'", data)
        get_task(data.task).require()
    path = out or free_path(f"{data.name}-{algo}-{preset}-seed{seed}")
    description = {
        "algo": algo,
        **_describe_data(source, data, columns, kept),
        "preset": preset,
        "seed": seed,
        "episodes": episodes or (get_task(data.task).default_episodes if data.task else 0),
        "settings": flatten(config),
    }
    manifest = _describe_origin(algo, seed, data, held_out, kept and kept.difference(whole))
    run = create(path, {"config": description, "manifest": manifest})
    with writing(run):
        try:
            return _work(run, algorithm, config, data, lambda: held_out, monitor)
        except UserError:
            if not run.metrics():
                discard(run)  # refused before the first step: there is nothing to resume
            raise


def _refuse_before_reading(
    algo: str, seed: int, episodes: int | None, out: str | Path | None, monitor: Monitor
) -> None:
    """What can be known to be wrong before the data are read, which may take long."""
    not_empty(out)
    check_tracker(monitor.tracker)
    get_algorithm(algo)
    require_seed(seed)
    if episodes is not None:
        require_episodes(episodes)


def _describe_data(source: str, data: Dataset, columns: Columns | None, kept: Holdout | None) -> dict[str, Any]:
    """What config.json says of the data: enough to read them again in the same way."""
    return {
        "dataset": source,
        "name": data.name,
        "columns": columns and columns.given(),
        **({"holdout": kept.as_dict()} if kept else {}),
        "names": {"obs": [*data.obs_names], "action": [*data.action_names]},
        "encoder": data.encoder and data.encoder.as_json(),
        **({"action_labels": [*data.action_labels]} if data.discrete else {}),
        "task": data.task,
    }


def _describe_origin(
    algo: str, seed: int, data: Dataset, held_out: Dataset | None, difference: str | None
) -> dict[str, Any]:
    """manifest.json: the machine, the data, and where the algorithm came from."""
    manifest = describe_machine() | {"data_hash": data.hash, "seed": seed, "timings": {}}
    if held_out is not None:
        manifest["holdout_hash"] = held_out.hash
    if difference:
        manifest["holdout_difference"] = difference  # estimates repeat it, and read only one of the parts
    if origin := external().get(algo):
        manifest["algorithm"] = origin  # to be read by people: what it names is never imported
    return manifest


def _about(data: Dataset, kept: Holdout | None) -> list[str]:
    """What was decided about the data: the hold-out, encoded columns, the kind of the actions."""
    held_out = [] if kept is None else [kept.describe(data), *filter(None, [kept.difference(data)])]
    encoded = [f"{line}." for line in data.encoder.describe()] if data.encoder else []
    in_file = []
    if (file := data.mapped_file) is not None:
        in_file = [f"the transitions do not fit into memory: they stay in {file.path}, and batches are read from it."]
    return [*held_out, *encoded, *in_file, *(note for note in data.notes if note.startswith(ABOUT_ACTIONS))]


def resume(path: str | Path, dataset: Any = None, *, monitor: Monitor = Monitor()) -> Run:  # noqa: B008
    """Continue a run that was stopped, bit for bit. Of one that is finished, files that are missing are written again.

    `dataset` is needed only where the data came from memory. Data that have changed since are refused.
    """
    run = open_run(path)
    if run.complete:
        write_missing(run, dataset, Reporter(monitor.progress, monitor.message))
        return run
    check_tracker(monitor.tracker)
    description, manifest = run.read("config", *RESUME_NEEDS), run.read("manifest", "data_hash", "timings")
    checkpoint.require_inside(run.checkpoints)
    get_algorithm(description["algo"], manifest.get("algorithm"))  # a changed one is refused before the data are read
    data = own_dataset(run, source=dataset, progress=monitor.progress)
    algorithm = get_algorithm_for(data, description["algo"], manifest.get("algorithm"))
    config = build(algorithm.Config, description["settings"], algo=description["algo"])
    with writing(run):
        return _work(run, algorithm, config, data, lambda: _held_out(run, dataset, monitor.progress), monitor)


def _held_out(run: Run, dataset: Any, progress: Progress) -> Dataset | None:
    return own_dataset(run, "holdout", dataset, progress) if run.holdout else None


def _work(
    run: Run,
    algorithm: Algorithm,
    config: Any,
    data: Dataset,
    held_out: Callable[[], Dataset | None],
    monitor: Monitor,
) -> Run:
    keep_compiled_programs()
    with monitor.tracker(run.path) as tracker:  # first of all: what it may ask of an account or a server takes seconds
        _fit_and_train(run, algorithm, config, data, monitor, tracker)
        tracker.finish(run.result)
    compare_run(run, data, held_out(), Reporter(monitor.progress, monitor.message))
    monitor.message(f"report: {write_report(run.path)}")
    return run


def _fit_and_train(
    run: Run, algorithm: Algorithm, config: Any, data: Dataset, monitor: Monitor, tracker: Tracker
) -> None:
    description = run.read("config")
    clock = Clock(run)
    with clock("prepare"):
        setup, models = algorithm.prepare(config, data, description["seed"], monitor.progress)
        run.write("models", models)
        if "pool" in models:
            monitor.message(about_pool(description["algo"], config, description["preset"], data, models["pool"]))
        _require_same_models(run, models)
    in_memory = data.mapped_file is None
    batches = device_dataset(data, setup.norm, config.gamma) if in_memory else FileBatches(data, setup.norm)
    session = Session(run, algorithm, config, setup, data, batches)
    with clock("train"):
        state = run_loop(session, clock, monitor, tracker)
    with clock("evaluate"):
        final_evaluation(session, state, clock)


def write_missing(run: Run, dataset: Any = None, reporter: Reporter = NO_REPORT) -> list[str]:
    """Write what a finished run lacks, because it was killed or the disk was full at its end; returns the names.

    The verdict needs the data, as `dataset` where they came from memory; without them the rest is written.
    """
    _require_readable(run)
    missing = [name for name in ("metrics.csv", COMPARISON_FILE, REPORT_FILE) if not (run.path / name).exists()]
    if "metrics.csv" in missing:
        run.write_metrics_table()
    if COMPARISON_FILE in missing:
        try:
            data = own_dataset(run, source=dataset, progress=reporter.progress)
            compare_run(run, data, _held_out(run, dataset, reporter.progress), reporter)
        except UserError as problem:
            reporter.message(f"there is no verdict on {run.path}: {problem}")
            missing.remove(COMPARISON_FILE)
    if REPORT_FILE in missing or COMPARISON_FILE in missing:
        write_report(run.path)
    return missing


def _require_readable(run: Run) -> None:
    """A damaged file of a finished run is named, although nothing of it may be needed now."""
    for name, needed in (("config", RESUME_NEEDS), ("manifest", ("data_hash", "timings")), ("result", ())):
        run.read(name, *needed)
    description = run.read("config")
    if description["algo"] in ALGORITHMS:  # those of other packages may not be installed any more
        build(get_algorithm(description["algo"]).Config, description["settings"], algo=description["algo"])
    try:
        _ = run.policy
    except UserError as problem:
        what = str(problem).rstrip(".")
        raise UserError(f"{what}; once it is removed, `pspo resume` writes it from the last checkpoint.") from None


def _require_same_models(run: Run, models: dict[str, Any]) -> None:
    """A resumed run must use the very models it was started with, also when the cache was emptied."""
    manifest = run.read("manifest")
    digest = {name: info["digest"] for name, info in models.items() if isinstance(info, dict)}
    if manifest.setdefault("models", digest) != digest:
        raise UserError(f"the models of {run.path} cannot be rebuilt exactly on this machine: train again.")
    run.write("manifest", manifest)
