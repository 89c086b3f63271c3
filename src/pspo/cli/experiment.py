"""`pspo experiment`: one of the paper's results, at the scale that the user chooses."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

from pspo.cli import common
from pspo.core.errors import PROBLEM, UserError, not_empty
from pspo.core.terminal import show
from pspo.experiments.declarations import EXPERIMENTS


def add_experiment(commands: Any) -> None:
    help = "Reproduce one of the paper's tables or figures; repeat the command to continue one that was stopped."
    parser = common.add_command(commands, "experiment", _experiment, help, common.REPEAT)
    parser.add_argument("name", choices=EXPERIMENTS, metavar="NAME", help=", ".join(EXPERIMENTS))
    parser.add_argument("--preset", default="", help="laptop, paper or smoke (default: laptop, and paper for overhead)")
    parser.add_argument("--seeds", type=int, default=4, metavar="N", help="runs per method (default: %(default)s)")
    parser.add_argument("--first-seed", type=int, default=0, metavar="S", help="first seed (default: %(default)s)")
    parser.add_argument(
        "--datasets", nargs="+", metavar="DATA", help="only these datasets: names, or files TASK-LEVEL.hdf5"
    )
    parser.add_argument("--methods", nargs="+", metavar="METHOD", help="only these methods: algorithms and ablations")
    parser.add_argument(
        "--data", type=Path, metavar="FOLDER", help="read hopper-medium.hdf5 and so on from this folder, not from D4RL"
    )
    parser.add_argument(
        "--out",
        type=not_empty,
        default="experiments",
        metavar="DIR",
        help="folder of runs and results (default: %(default)s)",
    )
    parser.add_argument(
        "--episodes", type=int, metavar="N", help="episodes of each final evaluation (default: depends on the task)"
    )
    parser.add_argument(
        "--minutes",
        type=float,
        metavar="M",
        help="train every run for the iterations that M minutes of one core buy, beyond the models that runs share; "
        "measured once, and kept in DIR/iteration_seconds.json (default: the preset's iterations)",
    )
    common.add_settings(parser, "change a setting of every method")
    parser.add_argument("--threads", type=int, default=1, metavar="N", help="XLA threads per run (default: 1)")
    parser.add_argument("--at-once", type=int, metavar="N", help="runs in parallel (default: as many as cores allow)")
    parser.add_argument("--dry-run", action="store_true", help="list the runs and their state, and run nothing")
    parser.add_argument(
        "--time", action="store_true", help="with --dry-run: time a few steps of each method, which takes minutes"
    )
    common.add_quiet(parser)
    where = parser.add_argument_group("where the runs go")
    where.add_argument(
        "--backend",
        choices=("local", "ray"),
        default="local",
        help="processes on this machine, or Ray (default: %(default)s)",
    )
    where.add_argument("--address", help="Ray cluster, such as auto or HOST:6379 (default: start one here)")
    where.add_argument("--gpus", type=float, default=0.0, metavar="N", help="GPUs per run, for Ray")
    where.add_argument("--memory", type=float, default=0.0, metavar="GIB", help="memory per run, for Ray")


def _experiment(arguments: argparse.Namespace) -> int:
    _check(arguments)
    from pspo.experiments import RunsFailed, run_experiment

    request = experiment_request(arguments)
    if arguments.dry_run:
        return _dry_run(arguments, request)
    failures: dict[str, str] = {}
    try:
        with common.monitor(arguments.quiet) as monitor:
            if request.name == "overhead":  # its messages are its progress
                monitor = replace(monitor, message=common.message_unless(arguments.quiet))
            run_experiment(request, backend=_backend(arguments), monitor=monitor)
    except RunsFailed as problem:
        failures = problem.failures
    show((request.folder / "table.md").read_text())
    for name in ("report.html", "table.md", "table.tex"):
        show(f"{Path(name).suffix.lstrip('.') + ':':<8}{request.folder / name}")
    common.print_failures(failures)
    return PROBLEM if failures else 0


def _check(arguments: argparse.Namespace) -> None:
    """Of options that only the command line has."""
    if arguments.at_once is not None and arguments.at_once < 1:
        raise UserError(f"--at-once {arguments.at_once} is out of range: at least one is needed.")
    if arguments.backend != "ray" and (arguments.address or arguments.gpus or arguments.memory):
        raise UserError("--address, --gpus and --memory are options of Ray: add --backend ray.")
    if arguments.time and not arguments.dry_run:
        raise UserError("--time measures for a dry run: add --dry-run.")
    if arguments.time and arguments.minutes is not None:
        raise UserError("--minutes says how long a run takes: leave --time out.")
    if arguments.name == "overhead" and arguments.backend == "ray":
        raise UserError("overhead is timed in one process on this machine: leave --backend ray out.")
    if arguments.name == "overhead" and arguments.at_once is not None:
        raise UserError("overhead is timed on random data in one process: leave --at-once out.")


def experiment_request(arguments: argparse.Namespace) -> Any:
    """What the options ask for."""
    from pspo.core.config import parse_settings
    from pspo.experiments import ExperimentRequest

    names = ("name", "preset", "seeds", "first_seed", "datasets", "methods", "data", "out", "episodes", "minutes")
    options = {name: getattr(arguments, name) for name in (*names, "threads")}
    return ExperimentRequest(**options, settings=parse_settings(arguments.settings))


def _backend(arguments: argparse.Namespace) -> Any:
    from pspo.experiments import ProcessBackend, RayBackend, Resources

    if arguments.name == "overhead":
        return None
    if arguments.backend == "local":
        return ProcessBackend(arguments.threads, arguments.at_once)
    resources = Resources(arguments.threads, arguments.gpus, arguments.memory)
    return RayBackend(arguments.address, resources, arguments.at_once)


def _dry_run(arguments: argparse.Namespace, request: Any) -> int:
    common.set_threads(arguments.threads)
    from pspo.experiments.experiment import require_overhead, runs_at_once

    if request.name == "overhead":
        require_overhead(request)
        methods = request.methods or EXPERIMENTS["overhead"].methods
        show(f"would time {', '.join(methods)}: about a minute each")
        return 0
    from pspo.experiments.plan import describe, plan_budget, plan_cells, time_cells

    if request.minutes is not None:
        rows = plan_budget(request.out, request.grid(), request.minutes)
    else:
        rows = plan_cells(request.out, request.cells())
    if arguments.time:
        rows = time_cells(rows, common.message_unless(arguments.quiet))
    show("\n".join(describe(rows, arguments.at_once or runs_at_once(request))))
    return 0
