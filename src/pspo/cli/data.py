"""`pspo check` and `pspo data ...`, and the options of all commands that read a dataset."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator
from typing import Any

from pspo.cli.common import add_command, allow_negative_lists
from pspo.core.errors import PROBLEM, not_empty
from pspo.core.progress import Progress
from pspo.core.terminal import in_one_line, show, show_note
from pspo.runs.command import option_name

# Role of a column, and the help of its option; options are named like the roles, with a dash for the underscore.
ROLES = {
    "obs": "columns of the observation: names or patterns such as 'x*', separated by commas",
    "action": "columns of the action",
    "reward": "column of the reward",
    "next_obs": "columns of the next observation (default: the observation of the following row)",
    "episode": "column that identifies an episode, or several such as store,week",
    "terminal": "column that marks where an episode ended by itself",
    "timeout": "column that marks where an episode was cut off",
    "time": "column of the time (dates, timestamps or numbers): rows are sorted by it within episodes",
    "propensity": "column with the density or probability of the logged action, for `pspo ope`",
    "categorical": "columns of the observation whose numbers are names of categories; texts always are",
    "cyclic": "turn dates and times of the observation into cycles: "
    "minute_of_hour, hour_of_day, day_of_week, day_of_year",
    "ignore": "columns to leave out",
    "action_low": "smallest action: a number, or one per column",
    "action_high": "largest action",
    "sql": "read the rows of a query (DuckDB) over the tables, which it calls `data`: 'select * from data limit 9'",
}


class _OneOrSeveral(argparse.Action):
    """One source as text, several as a list."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        setattr(namespace, self.dest, values[0] if len(values) == 1 else values)


def add_holdout(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--holdout",
        type=float,
        metavar="FRACTION",
        help="hold out this fraction of the data for `pspo ope` and `pspo select`",
    )
    parser.add_argument(
        "--holdout-by",
        choices=("time", "episode"),
        help="the latest rows, or random episodes (default: time with --time, else episode)",
    )


def add_dataset(parser: argparse.ArgumentParser) -> None:
    """The dataset, and how to read it."""
    parser.add_argument(
        "dataset",
        nargs="+",
        action=_OneOrSeveral,
        help="a file (.csv, .parquet, .arrow, .npz, .hdf5), a folder of tables or several tables, liquidation, a D4RL "
        "name such as hopper-medium-v2, or minari:ID",
    )
    allow_negative_lists(parser)  # --action-low -1,-2
    group = parser.add_argument_group("columns of your own file, where their names are not recognised")
    for role, text in ROLES.items():
        metavar = {"action_low": "NUMBER", "action_high": "NUMBER", "cyclic": "CYCLE", "sql": "QUERY"}.get(
            role, "COLUMN"
        )
        group.add_argument(option_name(role), metavar=metavar, dest=f"column_{role}", help=text)
    kind = group.add_mutually_exclusive_group()
    kind.add_argument("--discrete", action="store_const", const="yes", help="actions are labels (default: recognised)")
    kind.add_argument("--continuous", action="store_const", const="no", dest="discrete", help="actions are quantities")
    group.add_argument(
        "--mask",
        metavar="RULE",
        help="where discrete actions are available: 'sell: stock >= 1', or columns of 0 and 1 such as 'can_*'",
    )
    group.add_argument("--task", help="simulator that the data were recorded on, such as hopper")


def dataset_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """What `load_dataset` and `train` take beside the dataset."""
    given = {role: getattr(arguments, f"column_{role}") for role in ROLES}
    given |= {"discrete": arguments.discrete, "mask": arguments.mask}
    columns = {role: patterns for role, patterns in given.items() if patterns is not None}
    return {"columns": columns or None, "task": arguments.task}


def add_check_and_data(commands: Any) -> None:
    check = "Check a dataset for defects and report each in one sentence."
    _add_check(add_command(commands, "check", _check, check))
    data = add_command(commands, "data", None, "Create, describe, check or convert datasets.")
    subcommands = data.add_subparsers(required=True, metavar="COMMAND")

    make = add_command(subcommands, "make", _make, "Write a built-in dataset to a file.")
    make.add_argument("name", help="liquidation")
    make.add_argument("--size", type=int, default=100_000, help="number of transitions (default: %(default)s)")
    make.add_argument("--seed", type=int, default=0, help="random seed (default: %(default)s)")
    make.add_argument("--out", type=not_empty, metavar="FILE", help="default: NAME.npz")
    add_dataset(add_command(subcommands, "info", _info, "Show sizes, returns and hash of a dataset."))
    _add_check(add_command(subcommands, "check", _check, check))
    describe = (
        "Write a first column map (TOML) for a table, to keep beside it: `pspo data describe log.csv > log.toml`."
    )
    add_dataset(add_command(subcommands, "describe", _describe, describe))
    convert = add_command(subcommands, "convert", _convert, "Write a dataset in another format.")
    add_dataset(convert)
    convert.add_argument("out", metavar="OUT", help="a path that ends in .npz, .hdf5, .parquet or .csv")


def _add_check(parser: argparse.ArgumentParser) -> None:
    add_dataset(parser)
    add_holdout(parser)


def _describe(arguments: argparse.Namespace) -> None:
    from pspo.data.load import describe_source

    show(describe_source(arguments.dataset, dataset_options(arguments)["columns"]))


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
        dataset, findings = check_source(
            arguments.dataset,
            holdout=arguments.holdout,
            holdout_by=arguments.holdout_by,
            progress=progress,
            **dataset_options(arguments),
        )
    for finding in findings:
        show(in_one_line(f"{finding.level}: {finding.message}"))
    errors = sum(finding.level == "error" for finding in findings)
    if dataset is not None:
        show(f"{dataset.size} transitions: {errors} errors, {len(findings) - errors} warnings.")
    return PROBLEM if errors else 0


def _make(arguments: argparse.Namespace) -> None:
    from pspo.core.errors import unknown_name
    from pspo.data import BUILT_IN, load_dataset, save_dataset

    if arguments.name not in BUILT_IN:
        raise unknown_name("dataset", arguments.name, BUILT_IN)
    dataset = load_dataset(arguments.name, size=arguments.size, seed=arguments.seed)
    show(save_dataset(dataset, arguments.out or f"{arguments.name}.npz"))


def _info(arguments: argparse.Namespace) -> None:
    dataset = _load(arguments)
    for name, value in dataset.summary().items():
        show(f"{name:18} {value}")
    for line in dataset.encoder.describe() if dataset.encoder else ():
        show(f"encoded: {line}.")
    for note in dataset.notes:
        show(in_one_line(f"{'note':18} {note}"))


def _convert(arguments: argparse.Namespace) -> None:
    from pspo.data import lost_in, save_dataset
    from pspo.data.load import refuse_to_replace
    from pspo.data.save import require_writer

    require_writer(arguments.out)
    refuse_to_replace(arguments.dataset, arguments.out)
    dataset = _load(arguments)
    show(save_dataset(dataset, arguments.out))
    for note in (*dataset.notes, *lost_in(dataset, arguments.out)):
        show_note(note)
