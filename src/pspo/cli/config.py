"""`pspo config`."""

from __future__ import annotations

import argparse
from typing import Any

from pspo.cli import common
from pspo.core.terminal import show


def add_config(commands: Any) -> None:
    help = "List every setting of an algorithm: its value in a preset, and what it means."
    parser = common.add_command(commands, "config", _config, help)
    parser.add_argument("--algo", default="pspo", help="algorithm (default: %(default)s)")
    parser.add_argument("--preset", default="laptop", help="laptop, paper or smoke (default: %(default)s)")
    parser.add_argument("--task", default=None, help="values for this task, such as liquidation")
    parser.add_argument("--dataset", default="", help="values for this dataset, such as hopper-medium-v2")


def _config(arguments: argparse.Namespace) -> None:
    from pspo.algorithms import get_algorithm, preset
    from pspo.core.config import build, flatten, keys

    cls = get_algorithm(arguments.algo).Config
    task = arguments.task or arguments.dataset.split("-")[0] or None
    values = flatten(build(cls, preset(arguments.algo, arguments.preset, task, arguments.dataset)))
    for key in keys(cls).values():
        show(f"{key.name}={values[key.name]}\n    {key.help}")
