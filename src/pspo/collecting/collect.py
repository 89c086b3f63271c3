"""`pspo collect`: a dataset made as D4RL's were, from behaviour policies or from a learner's experience.

random         a uniform policy
medium         a SAC policy, stopped at about a third of the expert's return
expert         the policy at the end of that learner
medium-expert  half and half
medium-replay  all that the learner had seen when its policy became medium
full-replay    all that it had seen at the end
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pspo.collecting.behaviour import Behaviour, Uniform, load_behaviour, save_behaviour
from pspo.collecting.episodes import collect_episodes, dimensions
from pspo.collecting.partial import partial_folder, progress_kept
from pspo.collecting.store import Summary, already_collected, rows_of, save_collection
from pspo.core.errors import UserError, unknown_name
from pspo.core.progress import Progress, silent
from pspo.data.readers.hdf5 import SUFFIXES
from pspo.envs.mujoco import LOCOMOTION

STEPS = 1_000_000  # of a learner that is not told otherwise


@dataclass(frozen=True)
class Recipe:
    """What a learner has to give: policies to collect with, or its experience (where there are none)."""

    until_medium: bool
    policies: tuple[str, ...] = ()


RECIPES = {
    "medium": Recipe(until_medium=True, policies=("medium",)),
    "expert": Recipe(until_medium=False, policies=("expert",)),
    "medium-expert": Recipe(until_medium=False, policies=("medium", "expert")),
    "medium-replay": Recipe(until_medium=True),
    "full-replay": Recipe(until_medium=False),
}


def collect(
    name: str,
    out: str | Path,
    transitions: int | None = None,
    seed: int = 0,
    policies: Sequence[str | Path] = (),
    steps: int | None = None,
    settings: dict[str, Any] | None = None,
    progress: Progress = silent,
    say: Callable[[str], None] = print,
) -> Summary:
    """`name` is TASK-LABEL. With policy files, or for `random`, the label is only a name; several files give equal
    shares, in their order. Otherwise a learner runs for at most `steps`, and the label says what becomes of it.
    """
    task, label = _task_and_label(name)
    out = _checked_output(out)
    _require_range("--seed", seed, 0, 2**31 - 1)
    if policies or label == "random":
        if steps is not None or settings:
            raise UserError("--steps and --set are for a learner, and none is needed here: leave them out.")
        return _from_policies(name, task, out, transitions, seed, policies, progress, say)
    if label not in RECIPES:
        raise UserError(f"without --policy, {unknown_name('label', label, (*RECIPES, 'random'))}")
    return _from_learner(name, task, RECIPES[label], out, transitions, seed, steps, settings or {}, progress, say)


def _from_policies(
    name: str,
    task: str,
    out: Path,
    transitions: int | None,
    seed: int,
    policies: Sequence[str | Path],
    progress: Progress,
    say: Callable[[str], None],
) -> Summary:
    transitions = _checked_transitions(transitions, max(len(policies), 1))
    obs_dim, action_dim = dimensions(task)
    loaded = [load_behaviour(Path(path), obs_dim, action_dim) for path in policies]
    behaviours: list[Behaviour] = [policy for policy, _ in loaded] or [Uniform(action_dim)]
    origin = [sha256 for _, sha256 in loaded] or ["uniform"]
    request = {"name": name, "policies": origin, "transitions": transitions, "seed": seed}
    if summary := _finished(out, request):
        return summary
    with progress_kept(out, request) as folder:
        parts = _play_parts(task, behaviours, transitions, seed, folder, progress, say)
        return save_collection(parts, out, name, task, request)


def _from_learner(
    name: str,
    task: str,
    recipe: Recipe,
    out: Path,
    transitions: int | None,
    seed: int,
    steps: int | None,
    settings: dict[str, Any],
    progress: Progress,
    say: Callable[[str], None],
) -> Summary:
    from pspo.collecting.learner import learn
    from pspo.collecting.sac import Config
    from pspo.core.config import build, flatten

    config = build(Config, settings)
    steps = STEPS if steps is None else steps
    _require_range("--steps", steps, config.start_steps + 1, 10**9)
    if recipe.policies:
        transitions = _checked_transitions(transitions, len(recipe.policies))
    elif transitions is not None:
        raise UserError(f"'{name}' is the learner's whole experience: leave --transitions out, or lower --steps.")
    request = {"name": name, "transitions": transitions, "seed": seed, "steps": steps, "learner": flatten(config)}
    if summary := _finished(out, request):
        return summary
    with progress_kept(out, request) as folder:
        learnt = learn(task, config, steps, seed, recipe.until_medium, folder, progress, say)
        if "medium" not in learnt.policies and (recipe.until_medium or "medium" in recipe.policies):
            raise UserError(
                f"{steps} steps were not enough to reach a normalised score of {config.medium_score:g}: "
                "give the same command with more --steps, and it goes on from here."
            )
        if recipe.policies:
            behaviours = [learnt.policies[level] for level in recipe.policies]
            parts = _play_parts(task, behaviours, transitions or 0, seed, folder, progress, say)
        else:
            parts = [learnt.experience.arrays()]
        for level in recipe.policies or (["medium"] if recipe.until_medium else list(learnt.policies)):
            save_behaviour(learnt.policies[level], out.with_name(f"{out.stem}.policy-{level}.npz"))
        return save_collection(parts, out, name, task, request)


def _play_parts(
    task: str,
    behaviours: Sequence[Behaviour],
    transitions: int,
    seed: int,
    folder: Path,
    progress: Progress,
    say: Callable[[str], None],
) -> list[dict[str, Any]]:
    """Equal shares of the transitions, one for each policy; the last takes what division leaves over."""
    share = transitions // len(behaviours)
    parts = []
    for part, policy in enumerate(behaviours):
        rows = share if part < len(behaviours) - 1 else transitions - share * part
        stage = "collecting" if len(behaviours) == 1 else f"collecting {part + 1}/{len(behaviours)}"

        def show(done: int, total: int, numbers: dict[str, float], stage: str = stage) -> None:
            progress(stage, done, total, numbers)

        parts.append(rows_of(collect_episodes(task, policy, rows, seed, part, folder, show, say), rows))
    return parts


def _finished(out: Path, request: dict[str, Any]) -> Summary | None:
    summary = already_collected(out, request)
    if summary:  # a kill may have come between the file and the tidying up
        shutil.rmtree(partial_folder(out), ignore_errors=True)
    return summary


def _task_and_label(name: str) -> tuple[str, str]:
    task, _, label = name.partition("-")
    if task not in LOCOMOTION:
        raise unknown_name("task to collect on", task, LOCOMOTION)
    if not label:
        raise UserError(f"'{name}' has no label: give the task, a dash and a label, such as {task}-medium.")
    return task, label


def _checked_output(out: str | Path) -> Path:
    out = Path(out)
    if out.suffix.lower() not in SUFFIXES:
        raise UserError(f"cannot collect into '{out}': give a path that ends in .hdf5.")
    if not out.parent.is_dir():
        raise UserError(f"cannot collect into '{out}': the folder '{out.parent}' does not exist.")
    return out


def _checked_transitions(transitions: int | None, least: int) -> int:
    if transitions is None:
        raise UserError("how many rows are wanted is not said: give --transitions N.")
    _require_range("--transitions", transitions, least, 10**9)
    return transitions


def _require_range(option: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise UserError(f"{option} {value} is out of range: it must be a whole number from {low} to {high}.")
