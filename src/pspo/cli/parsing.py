"""What every command's parser has in common."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

WHOLE = "nothing is left half-written"
AGAIN = "the same command goes on where it stopped"


def add_command(
    commands: Any,
    name: str,
    function: Callable[..., Any] | None,
    help: str,
    stopped: str = WHOLE,
) -> argparse.ArgumentParser:
    """A parser under those of `add_subparsers`; `function` is what runs, None where there are further commands.

    `stopped` is what a user should know when the command is interrupted.
    """
    parser = commands.add_parser(name, help=help, description=help)
    parser.set_defaults(command=function, stopped=stopped)
    return parser
