"""`pspo experiment ...`: one of the paper's results, at the scale the user has."""

from __future__ import annotations

import argparse
import contextlib
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pspo.cli.parsing import add_command
from pspo.core.errors import UserError
from pspo.experiments.declarations import EXPERIMENTS

PROBLEM = 2


def add_experiment(commands: Any) -> None:
    parser = add_command(
        commands, "experiment", _experiment, "Make one of the paper's tables or figures; goes on where it was stopped."
    )
    parser.add_argument("name", choices=EXPERIMENTS, metavar="NAME", help=", ".join(EXPERIMENTS))
    parser.add_argument("--preset", help="laptop, paper or smoke (default: laptop, and paper for overhead)")
    parser.add_argument("--seeds", type=int, default=4, metavar="N", help="of every method (default: %(default)s)")
    parser.add_argument("--first-seed", type=int, default=0, metavar="S", help="default: %(default)s")
    parser.add_argument("--datasets", nargs="+", metavar="DATA", help="these: names, or files TASK-LEVEL.hdf5")
    parser.add_argument("--methods", nargs="+", metavar="METHOD", help="these: algorithms and ablations")
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="its hopper-medium.hdf5 and so on, not D4RL's")
    parser.add_argument("--out", type=Path, default=Path("experiments"), metavar="DIR", help="default: %(default)s")
    parser.add_argument("--episodes", type=int, help="of each final judgement (default: the task's own number)")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", dest="settings", help="for every method"
    )
    parser.add_argument("--threads", type=int, default=1, metavar="N", help="XLA threads of a run (default: 1)")
    parser.add_argument("--at-once", type=int, metavar="N", help="runs at a time (default: as many as cores allow)")
    parser.add_argument("--dry-run", action="store_true", help="list cells, minutes and memory, and run nothing")
    parser.add_argument("--quiet", action="store_true", help="no progress display")
    where = parser.add_argument_group("where it runs")
    where.add_argument("--backend", choices=("local", "ray"), default="local", help="default: %(default)s")
    where.add_argument("--address", help="of a Ray cluster, such as auto or HOST:6379 (default: one started here)")
    where.add_argument("--gpus", type=float, default=0.0, metavar="N", help="per run, for Ray's placement")
    where.add_argument("--memory", type=float, default=0.0, metavar="GIB", help="per run, for Ray's placement")


def _experiment(arguments: argparse.Namespace) -> int:
    arguments.preset = arguments.preset or ("paper" if arguments.name == "overhead" else "laptop")
    _check(arguments)
    if arguments.name == "overhead":
        return _overhead(arguments)
    cells = _cells(arguments)
    from pspo.experiments.grid import check

    check(cells)
    if arguments.dry_run:
        return _dry_run(arguments, cells)
    return _run(arguments, cells)


def _check(arguments: argparse.Namespace) -> None:
    from pspo.envs.task import require_episodes

    for option in ("seeds", "threads", "at_once"):
        value = getattr(arguments, option)
        if value is not None and value < 1:
            raise UserError(f"--{option.replace('_', '-')} {value} is out of range: at least one is needed.")
    if arguments.episodes is not None:
        require_episodes(arguments.episodes)
    if arguments.backend != "ray" and (arguments.address or arguments.gpus or arguments.memory):
        raise UserError("--address, --gpus and --memory are Ray's: add --backend ray.")
    if arguments.data is not None and not arguments.data.is_dir():
        raise UserError(f"--data {arguments.data} is not a folder: name the one that holds the .hdf5 files.")


def _cells(arguments: argparse.Namespace) -> list[Any]:
    from pspo.core.config import parse_settings
    from pspo.experiments.cells import expand, resolve
    from pspo.experiments.declarations import get_experiment

    experiment = get_experiment(arguments.name)
    sources = [resolve(named, arguments.data) for named in arguments.datasets or experiment.datasets]
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.seeds)
    root = arguments.out
    if arguments.backend == "ray":
        root, sources = root.resolve(), [source.absolute() for source in sources]
    settings = parse_settings(arguments.settings)
    methods = list(dict.fromkeys(arguments.methods or experiment.methods))
    return expand(root, sources, methods, seeds, arguments.preset, settings, arguments.episodes, arguments.threads)


def _at_once(arguments: argparse.Namespace) -> int:
    from pspo.core.compute import cores

    return arguments.at_once or max(1, cores() // arguments.threads)


def _dry_run(arguments: argparse.Namespace, cells: list[Any]) -> int:
    from pspo.core.compute import use_threads

    use_threads(arguments.threads)
    from pspo.experiments.plan import describe

    say = (lambda text: None) if arguments.quiet else (lambda text: print(text, file=sys.stderr, flush=True))
    print("\n".join(describe(cells, _at_once(arguments), say)))
    return 0


def _run(arguments: argparse.Namespace, cells: list[Any]) -> int:
    from pspo.core.progress import for_terminal, silent
    from pspo.experiments.declarations import get_experiment
    from pspo.experiments.grid import observe, work_through
    from pspo.experiments.watching import watching
    from pspo.report.records import save

    folder = arguments.out / arguments.name
    experiment = get_experiment(arguments.name)
    failed: dict[str, str] = {}

    def keep(name: str = "", failure: str = "") -> Any:
        """Results as they come: a grid that is killed leaves those it has."""
        failed.update({name: failure} if failure else {})
        results = observe(arguments.name, experiment, cells, failed, folder, _command(arguments))
        save(results, folder)
        return results

    quiet = contextlib.nullcontext(silent)
    with quiet if arguments.quiet else for_terminal() as show, _backend(arguments) as backend:
        folder.mkdir(parents=True, exist_ok=True)  # only now: a cluster that does not answer leaves nothing behind
        failed |= work_through(cells, backend, watching(show, keep), show)
    _show_results(keep(), folder)
    for name, why in failed.items():
        print(f"pspo: {name} failed: {why}", file=sys.stderr)
    return PROBLEM if failed else 0


@contextlib.contextmanager
def _backend(arguments: argparse.Namespace) -> Iterator[Any]:
    if arguments.backend == "local":
        from pspo.experiments.backends.processes import Processes

        yield Processes(arguments.threads, arguments.at_once)
        return
    from pspo.experiments.backends.ray import Needs, OnRay

    needs = Needs(arguments.threads, arguments.gpus, arguments.memory)
    cluster = OnRay(arguments.address, needs, arguments.at_once)
    try:
        yield cluster
    finally:
        cluster.close()


def _overhead(arguments: argparse.Namespace) -> int:
    from pspo.core.compute import use_threads

    use_threads(arguments.threads)
    from pspo.experiments.overhead import overhead_results
    from pspo.report.records import save

    for option, usual in {"datasets": None, "data": None, "episodes": None, "settings": [], "at_once": None}.items():
        if getattr(arguments, option) != usual:
            name = {"settings": "set"}.get(option, option).replace("_", "-")
            raise UserError(f"overhead is timed on made-up data in one process, and --{name} means nothing there.")
    if arguments.backend == "ray":
        raise UserError("overhead is timed in one process on this machine: leave --backend ray out.")
    if arguments.dry_run:
        print(f"would time {', '.join(arguments.methods or EXPERIMENTS['overhead'].methods)}: about a minute each")
        return 0
    say = (lambda text: None) if arguments.quiet else (lambda text: print(text, file=sys.stderr, flush=True))
    results = overhead_results(arguments.methods, arguments.preset, _command(arguments), say)
    folder = arguments.out / arguments.name
    folder.mkdir(parents=True, exist_ok=True)
    save(results, folder)
    _show_results(results, folder)
    return 0


def _show_results(results: Any, folder: Path) -> None:
    from pspo.report.summary.page import write_summary

    paths = write_summary(results, folder)
    print((folder / "table.md").read_text())
    for path in paths:
        print(f"{path.suffix.lstrip('.') + ':':<8}{path}")


def _command(arguments: argparse.Namespace) -> str:
    """What makes the same again; where it runs does not change what comes out."""
    words = ["pspo", "experiment", arguments.name, "--preset", arguments.preset]
    if arguments.name != "overhead":
        words += ["--seeds", str(arguments.seeds), "--first-seed", str(arguments.first_seed)]
    for option in ("datasets", "methods"):
        words += [f"--{option}", *getattr(arguments, option)] if getattr(arguments, option) else []
    words += ["--data", str(arguments.data)] if arguments.data else []
    words += ["--episodes", str(arguments.episodes)] if arguments.episodes is not None else []
    words += [word for setting in arguments.settings for word in ("--set", setting)]
    words += ["--threads", str(arguments.threads)] if arguments.threads != 1 else []
    return shlex.join(words)
