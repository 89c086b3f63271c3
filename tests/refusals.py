"""How bad input is refused, as tests check it: one sentence, and what it must name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pspo.core.errors import UserError


def message_of(call: Callable[..., Any], *arguments: Any, naming: object = "", **options: Any) -> str:
    """The message of the UserError that a call raises: one line, in which `naming` occurs."""
    with pytest.raises(UserError) as caught:
        call(*arguments, **options)
    message = str(caught.value)
    assert "\n" not in message
    assert str(naming) in message
    return message


def one_sentence(text: str, containing: str = "") -> str:
    """What a command wrote to stderr: one line from pspo, without a traceback."""
    lines = text.strip().splitlines()
    assert len(lines) == 1, text
    assert lines[0].startswith("pspo: error: ")
    assert containing in lines[0]
    return lines[0]
