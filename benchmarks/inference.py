"""What one action costs: a single state through onnxruntime, NumPy and JAX, and beside it what the paper reports.

    NPROC=1 python -m benchmarks.inference [--out FILE] [--quick]

All ways are timed in turns, round after round, so that other load on the machine hits them alike. A round is many
calls; numbers are medians over the rounds, with quartiles. Weights are random: speed does not depend on them.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
import numpy as np

from benchmarks import cases
from benchmarks.cases import Case
from pspo.experiments.timing import summary
from pspo.nets.actors import act
from pspo.policies.onnx.runtime import INPUT, OUTPUT, OnnxPolicy
from pspo.policies.policy import from_network
from pspo.report.published import published
from pspo.runs.export import export_policy
from pspo.runs.manifest import describe_machine

DEFAULT_OUT = Path("benchmarks/results/inference.json")
ROUNDS, CALLS = 200, 200
QUICK_ROUNDS, QUICK_CALLS = 3, 5
WAYS = {
    "onnxruntime": "the exported graph in a session of one thread, called directly",
    "OnnxPolicy": "the same through pspo.OnnxPolicy, which checks shapes",
    "numpy": "the policy file through pspo.load_policy",
    "jax": "the network under jax.jit, from a NumPy state to a NumPy action",
}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT, help="JSON file to write (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="a tiny size: shows that it runs, measures nothing")
    options = parser.parse_args(arguments)
    made = [cases.smoke()] if options.quick else [cases.liquidation(), cases.hopper()]
    rounds, calls = (QUICK_ROUNDS, QUICK_CALLS) if options.quick else (ROUNDS, CALLS)
    paper = published()["overhead"]["pspo"]["inference"][0]
    result = {
        "command": f"python -m benchmarks.inference --out {options.out}{' --quick' if options.quick else ''}",
        "machine": describe_machine(),
        "libraries": {name: metadata.version(name) for name in ("onnx", "onnxruntime")},
        "ways": WAYS,
        "rounds": rounds,
        "calls_per_round": calls,
        "paper_milliseconds": paper,
        "cases": {case.name: measure(case, rounds, calls, paper) for case in made},
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=1) + "\n")
    print(table(result))


def measure(case: Case, rounds: int, calls: int, paper: float) -> dict[str, Any]:
    """PSPO's policy has the networks of its reference policy."""
    network, norm = case.setup.arrays.reference, case.setup.norm
    policy, state = from_network(network, norm, {}), np.array(case.dataset.obs[0])
    with tempfile.TemporaryDirectory() as folder:
        exported = OnnxPolicy.load(export_policy(policy, Path(folder) / "policy.onnx"))
    session, row, compiled = exported.session, state[None], jax.jit(lambda network, obs: act(network, norm, obs))
    works = {
        "onnxruntime": lambda: session.run((OUTPUT,), {INPUT: row})[0],
        "OnnxPolicy": lambda: exported(state),
        "numpy": lambda: policy(state),
        "jax": lambda: np.asarray(compiled(network, state)),
    }
    seconds = time_in_turns(works, rounds, calls)
    layers = [list(weight.shape) for weight in policy.nets["net"].weights]
    ways = {
        way: {
            "microseconds": summary(each * 1e6),
            "times_under_the_paper": paper * 1e-3 / float(np.median(each)),
        }
        for way, each in seconds.items()
    }
    return {"obs": policy.obs_dim, "actions": policy.action_dim, "kind": policy.kind, "layers": layers, "ways": ways}


def time_in_turns(works: dict[str, Callable[[], Any]], rounds: int, calls: int) -> dict[str, np.ndarray]:
    """Seconds per call of each round."""
    for work in works.values():
        for _ in range(calls):  # compiles, and warms the caches
            work()
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            begun = time.perf_counter()
            for _ in range(calls):
                work()
            seconds[name].append((time.perf_counter() - begun) / calls)
    return {name: np.array(each) for name, each in seconds.items()}


def table(result: dict[str, Any]) -> str:
    lines = [
        f"| size | way | microseconds per state | times under the paper's {result['paper_milliseconds']} ms |",
        "|---|---|---|---|",
    ]
    for name, case in result["cases"].items():
        for way, cost in case["ways"].items():
            each = cost["microseconds"]
            range_text = f"{each['median']:.1f} ({each['low']:.1f}-{each['high']:.1f})"
            lines.append(f"| {name} | {way} | {range_text} | {cost['times_under_the_paper']:.0f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
