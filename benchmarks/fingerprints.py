"""Digests of what the program computes, to show that a change of the code changed no number.

    python -m benchmarks.fingerprints record        # writes benchmarks/results/fingerprints.json
    python -m benchmarks.fingerprints check         # exit code 1 if anything differs from what was recorded

For all 15 algorithms the policy after `pspo train liquidation --preset smoke --seed 3`; then one `pspo ope --json`, one
`pspo select --json` and one exported ONNX graph. Digests hold on one kind of processor with one set of packages: record
them before a change, check them after it. Elsewhere, run both versions: `PYTHONPATH=OLD/src` takes the code of another
work tree.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.claims import RESULTS

FILE = RESULTS / "fingerprints.json"
MODEL_FREE = ["bc", "cql", "iql", "td3bc", "oraac", "dmg", "epq"]
MODEL_BASED = ["pspo", "mopo", "morel", "combo", "rambo", "pmdb", "adm", "1r2r"]
NUMBERS_ONLY = (int, float)


def pspo(*words: str) -> str:
    return subprocess.run([sys.executable, "-m", "pspo", *words], check=True, capture_output=True, text=True).stdout


def arrays_digest(path: Path) -> str:
    """Of the arrays of a policy file, whatever its metadata and the names of the arrays."""
    from safetensors.numpy import load_file

    parts = sorted(array.tobytes() + str(array.shape).encode() for array in load_file(path).values())
    return hashlib.sha256(b"".join(parts)).hexdigest()


def numbers(content: Any) -> list[float]:
    """All numbers of a JSON document in the order of the document, without times."""
    if isinstance(content, dict):
        return [n for name, part in content.items() if "seconds" not in name for n in numbers(part)]
    if isinstance(content, list):
        return [n for part in content for n in numbers(part)]
    return [float(content)] if isinstance(content, NUMBERS_ONLY) and not isinstance(content, bool) else []


def numbers_digest(text: str) -> str:
    return hashlib.sha256(repr(numbers(json.loads(text))).encode()).hexdigest()


def fingerprints(folder: Path) -> dict[str, str]:
    digests = {}
    for algo in MODEL_FREE + MODEL_BASED:
        run = folder / algo
        pspo("train", "liquidation", "--algo", algo, "--preset", "smoke", "--seed", "3", "--out", str(run), "--quiet")
        digests[f"policy {algo}"] = arrays_digest(next(run.glob("policy*.safetensors")))
        print(f"policy {algo}: {digests[f'policy {algo}'][:12]}", flush=True)
    digests["ope"] = numbers_digest(pspo("ope", str(folder / "pspo"), "--json", "--quiet"))
    runs = [str(folder / algo) for algo in ("pspo", "bc", "mopo")]
    digests["select"] = numbers_digest(pspo("select", *runs, "--json", "--quiet"))
    pspo("export", str(folder / "pspo"), str(folder / "policy.onnx"))
    digests["onnx"] = hashlib.sha256((folder / "policy.onnx").read_bytes()).hexdigest()
    return digests


def versions() -> dict[str, str]:
    """What digests depend on besides the code."""
    from importlib.metadata import version

    packages = {name: version(name) for name in ("jax", "jaxlib", "numpy", "equinox", "optax")}
    return packages | {"processor": processor()}


def processor() -> str:
    """Name, family and model; empty where the system does not tell."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().split("\n\n")[0].splitlines() if cpuinfo.exists() else []
    known = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return " ".join(known[name] for name in ("model name", "cpu family", "model") if name in known)


def differences(recorded: dict[str, str], digests: dict[str, str]) -> list[str]:
    """Names of what differs, or is on one side only."""
    return sorted(name for name in recorded | digests if recorded.get(name) != digests.get(name))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["record", "check"])
    what = parser.parse_args().what
    with tempfile.TemporaryDirectory() as folder:
        digests = fingerprints(Path(folder))
    if what == "record":
        FILE.write_text(json.dumps({"versions": versions(), "digests": digests}, indent=2) + "\n")
        return 0
    kept = json.loads(FILE.read_text())
    different = differences(kept["digests"], digests)
    if others := differences(kept["versions"], versions()):
        print(f"recorded with another {', '.join(others)}: some digests may differ for that alone", file=sys.stderr)
    print(
        f"{len(digests) - len(different)} of {len(digests)} equal"
        + "".join(f"\ndifferent: {name}" for name in different)
    )
    return bool(different)


if __name__ == "__main__":
    sys.exit(main())
