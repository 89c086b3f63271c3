"""The command line as a separate process."""

from __future__ import annotations

import subprocess
import sys

PSPO = [sys.executable, "-m", "pspo"]

TINY = ["--preset", "smoke", "--quiet", "--episodes", "500"]


def pspo(*words: object, **options) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*PSPO, *map(str, words)], capture_output=True, text=True, timeout=300, **options)


def settings(**values: object) -> list[str]:
    return [word for key, value in values.items() for word in ("--set", f"{key.replace('__', '.')}={value}")]
