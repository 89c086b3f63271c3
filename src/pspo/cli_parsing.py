"""What every command's parser has in common."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any


def add_command(commands: Any, name: str, function: Callable[..., Any] | None, help: str) -> argparse.ArgumentParser:
    """A parser under those of `add_subparsers`; `function` is what runs, None where there are further commands."""
    parser = commands.add_parser(name, help=help, description=help)
    parser.set_defaults(command=function)
    return parser
