"""`pspo check` and `pspo data ...`, and the options of all commands that read a dataset."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator
from typing import Any

from pspo.cli.common import add_command
from pspo.core.errors import PROBLEM
from pspo.core.progress import Progress
from pspo.runs.command import option_name

# Role of a column, and the help of its option; options are named like the roles, with a dash for the underscore.
ROLES = {
    "obs": "columns of the observation: names or patterns such as 'x*', separated by commas",
    "action": "columns of the action",
    "reward": "column of the reward",
    "next_obs": "columns of the next observation (default: the observation of the following row)",
    "episode": "column whose value changes when a new episode begins",
    "terminal": "column that marks where an episode ended by itself",
    "timeout": "column that marks where an episode was cut off",
}


def add_dataset(parser: argparse.ArgumentParser) -> None:
    """The dataset, and how to read it."""
    parser.add_argument(
        "dataset",
        help="a file (.csv, .parquet, .npz, .hdf5), liquidation, a D4RL name such as hopper-medium-v2, or minari:ID",
    )
    group = parser.add_argument_group("columns of your own file, where their names are not recognised")
    for role, text in ROLES.items():
        group.add_argument(option_name(role), metavar="COLUMN", dest=f"column_{role}", help=text)
    group.add_argument("--task", help="simulator that the data were recorded on, such as hopper")


def dataset_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """What `load_dataset` and `train` take beside the dataset."""
    given = {role: getattr(arguments, f"column_{role}") for role in ROLES}
    columns = {role: patterns for role, patterns in given.items() if patterns is not None}
    return {"columns": columns or None, "task": arguments.task}


def add_check_and_data(commands: Any) -> None:
    check = "Check a dataset for defects and report each in one sentence."
    add_dataset(add_command(commands, "check", _check, check))
    data = add_command(commands, "data", None, "Create, describe, check or convert datasets.")
    subcommands = data.add_subparsers(required=True, metavar="COMMAND")

    make = add_command(subcommands, "make", _make, "Write a built-in dataset to a file.")
    make.add_argument("name", help="liquidation")
    make.add_argument("--size", type=int, default=100_000, help="number of transitions (default: %(default)s)")
    make.add_argument("--seed", type=int, default=0, help="random seed (default: %(default)s)")
    make.add_argument("--out", metavar="FILE", help="default: NAME.npz")
    add_dataset(add_command(subcommands, "info", _info, "Show sizes, returns and hash of a dataset."))
    add_dataset(add_command(subcommands, "check", _check, check))
    convert = add_command(subcommands, "convert", _convert, "Write a dataset in another format.")
    add_dataset(convert)
    convert.add_argument("out", metavar="OUT", help="a path that ends in .npz, .hdf5, .parquet or .csv")


def _load(arguments: argparse.Namespace) -> Any:
    from pspo.data import load_dataset

    with _progress_of_reading() as progress:
        return load_dataset(arguments.dataset, progress=progress, **dataset_options(arguments))


@contextlib.contextmanager
def _progress_of_reading() -> Iterator[Progress]:
    """A display that only appears where reading takes long, such as for a download."""
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

    with _progress_of_reading() as progress:
        dataset, findings = check_source(arguments.dataset, progress=progress, **dataset_options(arguments))
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
