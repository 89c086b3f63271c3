"""Equal minutes: how many iterations of each run the same time of one core buys.

The number is fixed before a run starts, from costs that are measured once and kept in a file beside the runs: results
do not depend on the clock, a stopped grid resumes with the same numbers, and with a copy of the file another machine
trains for the same numbers. The time covers what a run computes once the models that runs share are there, without its
evaluations.

python -m pspo.experiments.budget WORK      (one measurement; WORK is JSON, and so is the last line that it prints)
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pspo.core.config import flatten
from pspo.core.errors import EXPECTED, UserError, exit_code_and_message
from pspo.core.files import read_json, write_json
from pspo.experiments.cells import GridCell
from pspo.runs.schema import by_name, is_number, is_setting, is_text, list_of, with_all

FILE_NAME = "iteration_seconds.json"
WITHOUT_COST = ("steps", "evaluate_every", "evaluate_episodes")
"""Settings that do not change what an iteration costs."""
EVALUATIONS = 10  # during a run: as many points for every learning curve


@dataclass(frozen=True)
class MeasuredCost:
    """Seconds of one core, for all runs that compute the same."""

    algo: str
    task: str
    sizes: dict[str, Any]
    iteration_seconds: float
    start_seconds: float
    """Once, before the first iteration."""

    def iterations(self, minutes: float, chunk: int) -> int:
        """How many fit into the budget: whole chunks, where there is time for one."""
        count = math.floor((60.0 * minutes - self.start_seconds) / self.iteration_seconds)
        return count - count % chunk if count >= chunk else count


_ARE_COSTS = list_of(
    with_all(
        {
            **dict.fromkeys(("algo", "task"), is_text),
            "sizes": by_name(is_setting),
            "iteration_seconds": lambda value: is_number(value) and value > 0,
            "start_seconds": lambda value: is_number(value) and value >= 0,
        }
    )
)


def sizes_of(config: Any) -> dict[str, Any]:
    """The settings that decide what an iteration computes: a coefficient counts as zero or not."""
    settings = {name: value for name, value in flatten(config).items() if name not in WITHOUT_COST}
    return {name: value != 0.0 if isinstance(value, float) else value for name, value in settings.items()}


def read_costs(root: Path) -> list[MeasuredCost]:
    """What has been measured for the runs of a folder; empty where nothing has."""
    path = root / FILE_NAME
    if not path.exists():
        return []
    content = read_json(path)
    if not _ARE_COSTS(content):
        raise UserError(f"{path} does not hold what pspo writes there: restore it, or delete it to measure again.")
    return [MeasuredCost(**row) for row in content]


def cost_of(costs: Sequence[MeasuredCost], cell: GridCell) -> MeasuredCost | None:
    sizes = sizes_of(cell.config())
    matches = (c for c in costs if (c.algo, c.task, c.sizes) == (cell.algo, cell.source.task, sizes))
    return next(matches, None)


def require_budget(minutes: float, settings: dict[str, Any]) -> None:
    if not 0.0 < minutes < math.inf:
        raise UserError(f"--minutes {minutes:g} is out of range: it must be above 0.")
    if "steps" in settings:
        raise UserError("--minutes determines the iterations of every run: leave --set steps out.")


def with_iterations(cells: Sequence[GridCell], minutes: float, costs: Sequence[MeasuredCost]) -> list[GridCell]:
    """The cells with the iterations that the budget buys, and evaluations at equal distances."""
    return [_with_iterations(cell, minutes, cost_of(costs, cell)) for cell in cells]


def _with_iterations(cell: GridCell, minutes: float, cost: MeasuredCost | None) -> GridCell:
    if cost is None:
        raise UserError(f"the cost of {cell.method} on {cell.source.name} has not been measured: run the experiment.")
    chunk = cell.config().chunk
    steps = cost.iterations(minutes, chunk)
    if steps < 1:
        least = (cost.start_seconds + cost.iteration_seconds) / 60.0
        raise UserError(
            f"--minutes {minutes:g} is too short for {cell.method} on {cell.source.name}: "
            f"its first iteration ends after {least:.2g} minutes."
        )
    every = math.ceil(steps / EVALUATIONS / chunk) * chunk
    return replace(cell, settings={"evaluate_every": every} | cell.settings | {"steps": steps})


def measure_costs(root: Path, cells: Sequence[GridCell], threads: int, message: Callable[[str], None]) -> None:
    """Measure what is not known yet, each in a new process, and keep it beside the runs."""
    costs = read_costs(root)
    for cell in cells:
        if cost_of(costs, cell) is not None:
            continue
        message(f"timing {cell.method} on {cell.source.name}")
        costs.append(_measured(cell, threads))
        root.mkdir(parents=True, exist_ok=True)
        write_json(root / FILE_NAME, [asdict(cost) for cost in costs])


def _measured(cell: GridCell, threads: int) -> MeasuredCost:
    config = cell.config()
    source = {"dataset": cell.source.dataset, "task": cell.source.task_option}
    work = json.dumps({"algo": cell.algo, "settings": flatten(config), "threads": threads, **source})
    words = [sys.executable, "-m", "pspo.experiments.budget", work]
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=dict(os.environ))
    if done.returncode:
        why = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise UserError(f"{cell.method} on {cell.source.name} cannot be timed: {why}")
    return MeasuredCost(
        algo=cell.algo,
        task=cell.source.task,
        sizes=sizes_of(config),
        **json.loads(done.stdout.strip().splitlines()[-1]),
    )


def _measure_here(work: dict[str, Any]) -> dict[str, float]:
    from pspo.core.compute import use_threads

    use_threads(work["threads"])
    from pspo.algorithms import get_algorithm, get_algorithm_for
    from pspo.core.config import build
    from pspo.data.dataset import Dataset
    from pspo.training.cost import iteration_cost
    from pspo.training.dry_run import data_or_shape

    data = data_or_shape(work["dataset"], task=work["task"])
    algorithm = get_algorithm_for(data, work["algo"]) if isinstance(data, Dataset) else get_algorithm(work["algo"])
    return iteration_cost(algorithm, build(algorithm.Config, work["settings"]), data)._asdict()


def main(words: Sequence[str]) -> int:
    try:
        print(json.dumps(_measure_here(json.loads(words[0]))))
    except EXPECTED as problem:
        code, message = exit_code_and_message(problem)
        print(message, file=sys.stderr)
        return code
    return 0


def describe_budget(cells: Sequence[GridCell], minutes: float, costs: Sequence[MeasuredCost]) -> dict[str, Any]:
    """For results.json: the budget, and what it bought on each dataset."""
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for cell in cells:
        cost = cost_of(costs, cell)
        assert cost  # the cells have their iterations from it
        rows.setdefault(
            (cell.source.name, cell.method),
            {
                "dataset": cell.source.name,
                "method": cell.method,
                "steps": cell.config().steps,
                "iteration_seconds": cost.iteration_seconds,
                "start_seconds": cost.start_seconds,
            },
        )
    return {"minutes": minutes, "runs": list(rows.values())}


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
