"""Files that are read from a copy, under the name that they have elsewhere: for workers on other machines."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

_COPIES: ContextVar[tuple[str, str]] = ContextVar("copies", default=("", ""))


@contextlib.contextmanager
def reading_copy(path: str, copy: str) -> Iterator[None]:
    """Inside, a dataset with this path is read from the copy; the run that is trained on it stores the path."""
    token = _COPIES.set((path, copy))
    try:
        yield
    finally:
        _COPIES.reset(token)


def where_to_read(path: str) -> str:
    """The path itself, unless there is a copy of it."""
    original, copy = _COPIES.get()
    return copy if path == original else path
