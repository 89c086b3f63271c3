"""SIGTERM handled like Ctrl-C: as an exception, so that files are cleaned up and the command ends with one sentence."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any, NoReturn

RETRY_SECONDS = 0.05


class Terminated(KeyboardInterrupt):
    """The process was asked to end by SIGTERM, not by Ctrl-C."""


@contextlib.contextmanager
def handle_signals() -> Iterator[None]:
    """Inside, SIGTERM raises `Terminated` in the main thread, and neither it nor Ctrl-C gets lost.

    A process that was started with SIGTERM ignored continues to ignore it.
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
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second signal must not interrupt the cleaning up
    raise Terminated


def _raise_again(lost: Any) -> None:
    """Python drops exceptions raised inside callbacks of its garbage collector, and JAX has one that runs often."""
    stop = lost.exc_value
    if not isinstance(stop, KeyboardInterrupt):
        sys.__unraisablehook__(lost)
        return

    def again(*_: Any) -> NoReturn:
        raise type(stop)

    signal.signal(signal.SIGALRM, again)
    signal.setitimer(signal.ITIMER_REAL, RETRY_SECONDS)


def exit_now(code: int) -> NoReturn:
    """End at once, when all files are cleaned up.

    JAX may still be computing, and Python's usual exit from such a process can end in a segmentation fault.
    """
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # a closed one (`>&-`) is None
            stream.flush()
    os._exit(code)
