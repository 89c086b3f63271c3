"""Data on the command line: `pspo check`, `pspo data ...`, and the options that say how to read a file."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator
from typing import Any

from pspo.cli.parsing import add_command
from pspo.core.progress import Progress
from pspo.runs.command import option_name

PROBLEM = 2
# Role, and what its option says; the options are called as the roles, with a dash for the underscore.
ROLES = {
    "obs": "columns of the state: names or patterns such as 'x*', with commas between",
    "action": "columns of the action",
    "reward": "column of the reward",
    "next_obs": "columns of the next state (default: the state of the following row)",
    "episode": "column that changes where an episode begins",
    "terminal": "column that marks where the task ended",
    "timeout": "column that marks where an episode was cut off",
}


def add_source(parser: argparse.ArgumentParser) -> None:
    """The dataset, and how to read it."""
    parser.add_argument(
        "dataset",
        help="a file (.csv, .parquet, .npz, .hdf5), liquidation, a D4RL name such as hopper-medium-v2, minari:ID",
    )
    group = parser.add_argument_group("columns of your own file, where their names do not say it")
    for role, text in ROLES.items():
        group.add_argument(option_name(role), metavar="COLUMN", dest=f"column_{role}", help=text)
    group.add_argument("--task", help="simulator that the data were recorded on, such as hopper")


def source_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """What `load_dataset` and `train` take beside the dataset."""
    given = {role: getattr(arguments, f"column_{role}") for role in ROLES}
    columns = {role: patterns for role, patterns in given.items() if patterns is not None}
    return {"columns": columns or None, "task": arguments.task}


def add_check_and_data(commands: Any) -> None:
    look = "Look for defects in a dataset and say each in one sentence."
    add_source(add_command(commands, "check", _check, look))
    data = add_command(commands, "data", None, "Make, describe, check or convert datasets.")
    what = data.add_subparsers(required=True, metavar="WHAT")

    make = add_command(what, "make", _make, "Write a built-in dataset to a file.")
    make.add_argument("name", help="liquidation")
    make.add_argument("--size", type=int, default=100_000, help="transitions (default: %(default)s)")
    make.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    make.add_argument("--out", metavar="FILE", help="default: NAME.npz")
    add_source(add_command(what, "info", _info, "Sizes, returns and hash of a dataset."))
    add_source(add_command(what, "check", _check, look))
    convert = add_command(what, "convert", _convert, "Write a dataset in another format.")
    add_source(convert)
    convert.add_argument("out", metavar="OUT", help="a path that ends in .npz, .hdf5, .parquet or .csv")


def _load(arguments: argparse.Namespace) -> Any:
    from pspo.data import load_dataset

    with _progress() as progress:
        return load_dataset(arguments.dataset, progress=progress, **source_options(arguments))


@contextlib.contextmanager
def _progress() -> Iterator[Progress]:
    """A display that appears when there is something to show, such as a download."""
    from pspo.core.progress import for_terminal

    with contextlib.ExitStack() as stack:
        opened: list[Progress] = []

        def show(stage: str, done: int, total: int, numbers: dict[str, float]) -> None:
            if not opened:
                opened.append(stack.enter_context(for_terminal()))
            opened[0](stage, done, total, numbers)

        yield show


def _check(arguments: argparse.Namespace) -> int:
    from pspo.data import check_source

    with _progress() as progress:
        dataset, findings = check_source(arguments.dataset, progress=progress, **source_options(arguments))
    for finding in findings:
        print(f"{finding.level}: {finding.message}")
    errors = sum(finding.level == "error" for finding in findings)
    if dataset is not None:
        print(f"{dataset.size} transitions: {errors} errors, {len(findings) - errors} warnings.")
    return PROBLEM if errors else 0


def _make(arguments: argparse.Namespace) -> None:
    from pspo.core.errors import unknown_name
    from pspo.data import BUILT_IN, load_dataset, save_dataset

    if arguments.name not in BUILT_IN:
        raise unknown_name("dataset", arguments.name, BUILT_IN)
    dataset = load_dataset(arguments.name, size=arguments.size, seed=arguments.seed)
    print(save_dataset(dataset, arguments.out or f"{arguments.name}.npz"))


def _info(arguments: argparse.Namespace) -> None:
    dataset = _load(arguments)
    for name, value in dataset.summary().items():
        print(f"{name:18} {value}")
    for note in dataset.notes:
        print(f"note: {note}")


def _convert(arguments: argparse.Namespace) -> None:
    from pspo.data import lost_in, save_dataset
    from pspo.data.save import require_writer

    require_writer(arguments.out)
    dataset = _load(arguments)
    print(save_dataset(dataset, arguments.out))
    for note in (*dataset.notes, *lost_in(dataset, arguments.out)):
        print(f"note: {note}")
