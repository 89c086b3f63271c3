"""SIGTERM as Ctrl-C has it: an exception, so that whoever is at work cleans up, and the command says one sentence."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any, NoReturn

AGAIN_AFTER = 0.05  # seconds


class Terminated(KeyboardInterrupt):
    """The process was asked to end, by whoever runs it and not by who sits before it."""


@contextlib.contextmanager
def heeding_signals() -> Iterator[None]:
    """Within it, SIGTERM raises `Terminated` in the main thread, and neither it nor Ctrl-C gets lost.

    A process that ignores SIGTERM goes on to.
    """
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) is signal.SIG_IGN:
        yield
        return
    hook, before = sys.unraisablehook, signal.signal(signal.SIGTERM, _terminate)
    sys.unraisablehook = _raise_again
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGTERM, before)
        sys.unraisablehook = hook


def _terminate(*_: Any) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # once is enough: a second one must not break the cleaning up
    raise Terminated


def _raise_again(lost: Any) -> None:
    """Python drops what is raised inside a callback of its garbage collector, and JAX has one that often runs."""
    stop = lost.exc_value
    if not isinstance(stop, KeyboardInterrupt):
        sys.__unraisablehook__(lost)
        return

    def again(*_: Any) -> NoReturn:
        raise type(stop)

    signal.signal(signal.SIGALRM, again)
    signal.setitimer(signal.ITIMER_REAL, AGAIN_AFTER)


def leave(code: int) -> NoReturn:
    """End at once: all of ours is cleaned up by now.

    JAX may still compute, and Python's own way out of such a process can end in a segmentation fault.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
