"""Speed of the library as fractions of what the machine can do, all in one process.

    python -m benchmarks.speed [--out FILE] [--quick]

Matrix products are timed between all other measurements, so that other load on the machine hits both sides
of every fraction. Numbers are medians over the rounds, with quartiles.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import jax
from rich.console import Console

from benchmarks import cases, sections, table
from benchmarks.flops import FORMULAS
from pspo.algorithms import ALGORITHMS
from pspo.experiments.overhead import TRANSITIONS, overhead
from pspo.experiments.timing import FULL, QUICK, Machine
from pspo.runs.manifest import describe_machine

DEFAULT_OUT = Path("benchmarks/results/speed.json")


def measure(quick: bool, report: Callable[[str], None]) -> dict[str, Any]:
    """Everything, as the JSON file holds it."""
    effort = QUICK if quick else FULL
    made = [cases.smoke()] if quick else [cases.liquidation(), cases.hopper()]
    report("matrix products")
    machine = Machine(effort)
    result: dict[str, Any] = {
        "machine": describe_machine(),
        "formulas": FORMULAS,
        "effort": effort._asdict() | {"steps_per_call": sections.CHUNK},
        "matrix_product": sections.machine_speed(machine),
        "cases": {},
    }
    for case in made:
        report(f"{case.name}: pool fit")
        fit = sections.pool_fit(machine, case)
        report(f"{case.name}: PSPO step and its parts")
        step = sections.pspo_step(machine, case, quick)
        result["cases"][case.name] = {**case.info(), "pool_fit_step": fit, "pspo_step": step}
    algorithms = ("bc", "mopo") if quick else tuple(ALGORITHMS)  # compiling all of them takes minutes
    result["overhead"] = overhead(
        machine, algorithms, "smoke" if quick else "paper", 500 if quick else TRANSITIONS, report
    )
    report("actions and simulator")
    result["action"] = sections.single_action(machine, made[0], batch=1000 if quick else 10_000)
    result["simulator"] = sections.simulator(machine, episodes=1000 if quick else 100_000)
    return result


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed", description="Measure speed as ratios.")
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT, help="JSON file to write (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: shows that everything runs, measures nothing")
    options = parser.parse_args(arguments)
    notes = Console(stderr=True)
    with _cheap_compilation() if options.quick else nullcontext():
        result = measure(options.quick, lambda text: notes.print(f"[dim]{text} ...[/]"))
    result = {"command": _command(options), **result}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=1) + "\n")
    table.show(result, Console())
    notes.print(f"written to {options.out}")


@contextmanager
def _cheap_compilation() -> Iterator[None]:
    """Programs that compile in a third of the time, and run slower."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    try:
        yield
    finally:
        jax.config.update("jax_disable_most_optimizations", before)


def _command(options: argparse.Namespace) -> str:
    quick = " --quick" if options.quick else ""
    return f"python -m benchmarks.speed --out {options.out}{quick}"


if __name__ == "__main__":
    main()
