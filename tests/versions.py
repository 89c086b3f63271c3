"""A fast part of the tests, and every algorithm once, in fresh environments: with the newest versions that
pyproject.toml allows on every Python that is installed here, and with the lowest on the oldest of them.

    python tests/versions.py UV [--pythons 3.11 3.13] [--keep FOLDER]          (`make test-versions`)

The package is installed as a wheel, so that a file missing from it shows. Pythons are looked for on the PATH and among
those of pyenv; nothing is downloaded but packages.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = ("export", "mujoco", "tables", "tensorboard")
FOR_TESTS = ("pytest", "hypothesis", "pandas")  # with the bounds of the extra `dev`
TESTS = (
    "tests/core",
    "tests/nets",
    "tests/runs",
    "tests/envs",
    "tests/data/test_hdf5.py",
    "tests/data/test_tables.py",
    "tests/data/test_normalise.py",
    "tests/policies/test_policy_file.py",
    "tests/policies/onnx/test_export.py",
    "tests/report/test_report_pieces.py",
    "tests/cli/test_listing.py",
)
SHOWN = ("jax", "equinox", "optax", "numpy", "scipy", "gymnasium", "pyarrow", "onnx", "matplotlib", "rich", "h5py")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("uv", help="path of uv")
    parser.add_argument("--pythons", nargs="+", metavar="3.X", help="default: those of the classifiers, and newer")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="where environments are made and kept")
    options = parser.parse_args(arguments)
    pythons = dict(find_pythons(options.pythons or [f"3.{minor}" for minor in range(oldest(), oldest() + 5)]))
    if not pythons:
        parser.error("none of these Pythons is installed.")
    folder = options.keep or Path(tempfile.mkdtemp(prefix="pspo-versions-"))
    folder.mkdir(parents=True, exist_ok=True)
    try:
        run([options.uv, "build", "--quiet", "--wheel", "--out-dir", folder, ROOT])
        (wheel,) = folder.glob("*.whl")
        cases = [("lowest-direct", next(iter(pythons))), *(("highest", name) for name in pythons)]
        failed = [case for case in cases if not passes(options.uv, folder, wheel, *case, pythons[case[1]])]
    finally:
        if not options.keep:
            shutil.rmtree(folder, ignore_errors=True)
    for resolution, name in cases:
        print(f"{'FAILED' if (resolution, name) in failed else 'passed'}: Python {name}, {resolution} versions")
    return 1 if failed else 0


def oldest() -> int:
    return int(PROJECT["requires-python"].removeprefix(">=3."))


def find_pythons(wanted: Sequence[str]) -> Iterator[tuple[str, str]]:
    """(3.X, interpreter) of those that work."""
    for name in wanted:
        pyenv = sorted((Path.home() / ".pyenv" / "versions").glob(f"{name}.*/bin/python"))
        for candidate in filter(None, (shutil.which(f"python{name}"), *map(str, pyenv))):
            found = subprocess.run([candidate, "--version"], capture_output=True, text=True, check=False)
            if found.returncode == 0 and found.stdout.startswith(f"Python {name}."):
                yield name, candidate
                break
        else:
            print(f"Python {name} is not installed here: skipped.")


def passes(uv: str, folder: Path, wheel: Path, resolution: str, name: str, interpreter: str) -> bool:
    """Make the environment and run everything in it; all output is shown."""
    print(f"== Python {name}, {resolution} versions", flush=True)
    begun, place = time.monotonic(), folder / f"{name}-{resolution}"
    run([uv, "venv", "--quiet", "--clear", "--python", interpreter, place])
    python = place / "bin" / "python"
    bounds = [word for word in PROJECT["optional-dependencies"]["dev"] if re.split(r"[<>=\[]", word)[0] in FOR_TESTS]
    install = [uv, "pip", "install", "--quiet", "--python", python]
    extras = [word for extra in EXTRAS for word in ("--extra", extra)]
    # Not through the wheel: its dependencies would not count as direct ones, and get the newest versions.
    run([*install, "--resolution", resolution, "--requirement", ROOT / "pyproject.toml", *extras, *bounds])
    run([*install, "--no-deps", wheel])
    frozen = subprocess.run(
        [uv, "pip", "freeze", "--python", python], capture_output=True, text=True, check=True
    ).stdout
    print(", ".join(line for line in frozen.splitlines() if line.split("==")[0] in SHOWN), flush=True)
    environment = os.environ | {"PSPO_CACHE": str(place / "cache"), "NPROC": "1", "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    environment.pop("PYTHONPATH", None)  # the wheel is tested, not the sources
    commands = [[python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *TESTS]]
    data = place / "liquidation.npz"
    commands.append([place / "bin" / "pspo", "data", "make", "liquidation", "--size", "2000", "--out", data])
    for algo in list_algorithms(place, environment):
        out = place / "runs" / algo
        words = ["train", data, "--task", "liquidation", "--algo", algo, "--preset", "smoke", "--episodes", "100"]
        commands.append([place / "bin" / "pspo", *words, "--out", out, "--quiet"])
    good = True
    for command in commands:
        code = subprocess.run([*map(str, command)], cwd=ROOT, env=environment, check=False).returncode
        if code:
            good = False
            print(f"exit code {code}: {' '.join(map(str, command))}", flush=True)
    print(f"{time.monotonic() - begun:.0f} s", flush=True)
    return good


def list_algorithms(place: Path, environment: dict[str, str]) -> list[str]:
    ask = "from pspo.algorithms import ALGORITHMS; print(*ALGORITHMS)"
    words = [str(place / "bin" / "python"), "-c", ask]
    return subprocess.run(words, env=environment, capture_output=True, text=True, check=True).stdout.split()


def run(words: Sequence[object]) -> None:
    subprocess.run([*map(str, words)], check=True)


if __name__ == "__main__":
    sys.exit(main())
