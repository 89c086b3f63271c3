"""The command line: thin commands over the public API. Nothing heavy is imported before a command needs it."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pspo import __version__
from pspo.cli.collect import add_collect
from pspo.cli.data import add_check_and_data, add_source, source_options
from pspo.cli.experiment import add_experiment
from pspo.cli.export import add_export
from pspo.cli.inspect import add_inspect
from pspo.cli.ope import add_ope
from pspo.cli.parsing import AGAIN, add_command
from pspo.cli.signals import Terminated, heeding_signals, leave
from pspo.core.errors import Diverged, UserError

if TYPE_CHECKING:
    from pspo.training.monitor import Monitor

PROBLEM, DIVERGED, INTERRUPTED, TERMINATED = 2, 3, 130, 143
RESUME = "`pspo resume` goes on from the last checkpoint"


def main(argv: list[str] | None = None) -> int:
    """Run a command; returns the exit code. Only as the process's own command line does it take on signals."""
    arguments = _parser().parse_args(argv)
    try:
        with contextlib.nullcontext() if argv is not None else heeding_signals():
            return arguments.command(arguments) or 0
    except UserError as problem:
        print(f"pspo: {problem}", file=sys.stderr)
        return PROBLEM
    except Diverged as problem:
        print(f"pspo: {problem}", file=sys.stderr)
        return DIVERGED
    except OSError as problem:
        where = f" {problem.filename}" if problem.filename else ""
        print(f"pspo: cannot read or write{where}: {problem.strerror or problem}.", file=sys.stderr)
        return PROBLEM
    except MemoryError:
        print("pspo: there is not enough memory: take less data, or a larger machine.", file=sys.stderr)
        return PROBLEM
    except KeyboardInterrupt as stop:
        many = getattr(arguments, "seeds", None) is not None
        print(f"pspo: stopped; {AGAIN if many else arguments.stopped}.", file=sys.stderr)
        code = TERMINATED if isinstance(stop, Terminated) else INTERRUPTED
        if argv is None:
            leave(code)
        return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="pspo", description="Learn a policy from logged data.")
    parser.add_argument("--version", action="version", version=f"pspo {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    train = add_command(commands, "train", _train, "Learn a policy from a dataset: a file or a name.", RESUME)
    add_source(train)
    train.add_argument("--algo", default="pspo", help="algorithm (default: %(default)s)")
    train.add_argument("--preset", default="laptop", help="laptop, paper or smoke (default: %(default)s)")
    train.add_argument("--seed", type=int, default=0, help="random seed (default: %(default)s)")
    train.add_argument("--seeds", type=int, metavar="N", help="seeds SEED .. SEED+N-1 as processes, and their mean")
    train.add_argument("--out", metavar="DIR", help="run directory (default: a new one under runs/)")
    train.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", dest="settings", help="see `pspo config`"
    )
    train.add_argument("--dry-run", action="store_true", help="say what would run, for how long and in how much memory")
    train.add_argument("--episodes", type=int, help="of the final judgement (default: the task's own number)")
    _common(train)

    resume = add_command(commands, "resume", _resume, "Go on with a run that was stopped, to the same bits.", RESUME)
    resume.add_argument("run", metavar="DIR")
    _common(resume)

    evaluate = add_command(
        commands, "evaluate", _evaluate, "Judge a run's policy in its simulator, acting by its mode."
    )
    evaluate.add_argument("run", metavar="DIR", help="a run directory or a policy file")
    evaluate.add_argument("--episodes", type=int, help="default: the task's own number")
    evaluate.add_argument("--seed", type=int, default=0, help="of the simulated episodes (default: %(default)s)")
    evaluate.add_argument("--task", help="simulator, for a policy whose data named none, such as liquidation")
    evaluate.add_argument("--json", action="store_true", help="print JSON")

    listed = add_command(commands, "list", _list, "Show algorithms, datasets and presets.")
    listed.add_argument("--json", action="store_true", help="print JSON")

    add_check_and_data(commands)
    add_collect(commands)
    add_experiment(commands)
    add_export(commands)
    add_inspect(commands)
    add_ope(commands)

    report = add_command(
        commands, "report", _report, "Write the page of a run anew, or one page over experiments and many runs."
    )
    report.add_argument("folders", nargs="+", metavar="DIR", help="a run, an experiment, or folders with runs in them")
    report.add_argument("--out", metavar="DIR", help="where a page over many runs goes (default: the first folder)")

    config = add_command(
        commands, "config", _config, "Show every key of an algorithm, its value in a preset, and what it means."
    )
    config.add_argument("--algo", default="pspo")
    config.add_argument("--preset", default="laptop")
    config.add_argument("--task", default=None, help="show the preset for this task, such as liquidation")
    config.add_argument("--dataset", default="", help="show it for this dataset, such as hopper-medium-v2")
    return parser


def _common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--threads", type=int, metavar="N", help="XLA threads of a run (default: 1)")
    parser.add_argument("--tensorboard", action="store_true", help="also write TensorBoard events")
    parser.add_argument("--quiet", action="store_true", help="no progress display")


@contextlib.contextmanager
def _monitor(arguments: argparse.Namespace) -> Iterator[Monitor]:
    from pspo.core.progress import for_terminal, silent
    from pspo.training import trackers
    from pspo.training.monitor import Monitor

    tracker = trackers.tensorboard if arguments.tensorboard else trackers.no_tracker
    with contextlib.nullcontext(silent) if arguments.quiet else for_terminal() as progress:
        yield Monitor(progress, _say, tracker)


def _train(arguments: argparse.Namespace) -> int | None:
    from pspo.core.compute import use_threads
    from pspo.core.config import parse_settings
    from pspo.envs.task import require_episodes

    if arguments.episodes is not None:
        require_episodes(arguments.episodes)
    if arguments.dry_run:
        return _dry_run(arguments)
    if arguments.seeds is not None:
        from pspo.experiments.seeds import train_seeds

        return train_seeds(arguments)
    settings = parse_settings(arguments.settings)
    use_threads(_threads(arguments.threads))
    from pspo.training.train import train

    with _monitor(arguments) as monitor:
        run = train(
            arguments.dataset,
            arguments.algo,
            arguments.preset,
            seed=arguments.seed,
            out=arguments.out,
            settings=settings,
            episodes=arguments.episodes,
            monitor=monitor,
            **source_options(arguments),
        )
    _print_result(run.read("result"))
    print(f"run:    {run.path}")
    print(f"report: {run.path / 'report.html'}")


def _dry_run(arguments: argparse.Namespace) -> None:
    from pspo.core.compute import use_threads
    from pspo.core.config import parse_settings

    settings = parse_settings(arguments.settings)
    use_threads(_threads(arguments.threads))
    from pspo.training.dry_run import describe

    how = source_options(arguments)
    for line in describe(arguments.dataset, arguments.algo, arguments.preset, settings, **how):
        print(line)
    if (arguments.seeds or 1) > 1:
        print(f"{'seeds':<17}{arguments.seeds}, the same again for each but the pool, which they share")


def _resume(arguments: argparse.Namespace) -> None:
    from pspo.core.compute import use_threads
    from pspo.runs.directory import open_run

    run = open_run(arguments.run)
    if run.finished:
        print(f"{run.path} is finished already.")
        return
    use_threads(_threads(arguments.threads or run.read("manifest", "threads")["threads"]))
    from pspo.training.train import resume

    with _monitor(arguments) as monitor:
        run = resume(arguments.run, monitor=monitor)
    _print_result(run.read("result"))
    print(f"run:    {run.path}")
    print(f"report: {run.path / 'report.html'}")


def _threads(wanted: int | None) -> int:
    """One thread by default: the same bits alone and among other seeds, which fill the other cores."""
    from pspo.core.compute import require_threads

    return require_threads(wanted) if wanted is not None else int(os.environ.get("NPROC") or 1)


def _say(text: str) -> None:
    print(text, file=sys.stderr)


def _evaluate(arguments: argparse.Namespace) -> None:
    from pspo.policies.policy import load_policy

    policy = load_policy(arguments.run)
    from pspo.evaluation.simulator import evaluate

    found = evaluate(policy, arguments.episodes, arguments.seed, arguments.task).as_dict()
    if arguments.json:
        print(json.dumps(found, indent=2))
    else:
        _print_result(found)


def _print_result(result: dict[str, Any]) -> None:
    from pspo.report.terminal import result_table

    result_table(result)


def _list(arguments: argparse.Namespace) -> None:
    from pspo.algorithms import shadowed
    from pspo.cli.listing import as_lines, everything

    for clash in shadowed():
        print(f"pspo: {clash}", file=sys.stderr)
    print(json.dumps(everything(), indent=2) if arguments.json else "\n".join(as_lines(everything())))


def _report(arguments: argparse.Namespace) -> None:
    from pspo.report.write import write_reports

    for path in write_reports([Path(folder) for folder in arguments.folders], arguments.out and Path(arguments.out)):
        print(path)


def _config(arguments: argparse.Namespace) -> None:
    from pspo.algorithms import get_algorithm
    from pspo.algorithms.registry import preset
    from pspo.core.config import build, flatten, keys

    cls = get_algorithm(arguments.algo).Config
    task = arguments.task or arguments.dataset.split("-")[0] or None
    values = flatten(build(cls, preset(arguments.algo, arguments.preset, task, arguments.dataset)))
    for key in keys(cls).values():
        print(f"{key.name}={values[key.name]}\n    {key.help}")
