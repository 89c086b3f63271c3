"""`pspo collect`: a dataset from behaviour policies, as D4RL's were made; stopped and repeated, it goes on."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pspo.collecting.behaviour import Behaviour, Uniform, load_behaviour
from pspo.collecting.episodes import collect_episodes
from pspo.collecting.partial import partial_folder, progress_kept
from pspo.collecting.store import Summary, already_collected, rows_of, save_collection
from pspo.data.hdf5 import SUFFIXES
from pspo.display import Progress, silent
from pspo.envs.mujoco import LOCOMOTION, borrow_env, return_env
from pspo.errors import UserError, unknown_name


def collect(
    name: str,
    out: str | Path,
    transitions: int,
    seed: int = 0,
    policies: Sequence[str | Path] = (),
    progress: Progress = silent,
    say: Callable[[str], None] = print,
) -> Summary:
    """`name` is TASK-LABEL. Several policies give equal shares, in their order; `random` needs none."""
    task, label = _task_and_label(name)
    out = _checked_output(out)
    _require_range("--transitions", transitions, max(len(policies), 1), 10**9)
    _require_range("--seed", seed, 0, 2**31 - 1)
    obs_dim, action_dim = _dimensions(task)
    behaviours: Sequence[Behaviour]
    if policies:
        loaded = [load_behaviour(Path(path), obs_dim, action_dim) for path in policies]
        behaviours, origin = [policy for policy, _ in loaded], [sha256 for _, sha256 in loaded]
    elif label == "random":
        behaviours, origin = [Uniform(action_dim)], ["uniform"]
    else:
        raise UserError(f"who acts in '{name}' is not said: give --policy FILE.npz.")
    request = {"name": name, "policies": origin, "transitions": transitions, "seed": seed}
    if summary := already_collected(out, request):
        shutil.rmtree(partial_folder(out), ignore_errors=True)  # a kill came between the file and the tidying up
        return summary
    with progress_kept(out, request) as folder:
        parts = play_parts(task, behaviours, transitions, seed, folder, progress, say)
        return save_collection(parts, out, name, task, request)


def play_parts(
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


def _require_range(option: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise UserError(f"{option} {value} is out of range: it must be a whole number from {low} to {high}.")


def _dimensions(task: str) -> tuple[int, int]:
    env = borrow_env(task)
    dimensions = env.observation_space.shape[0], env.action_space.shape[0]
    return_env(task, env)
    return dimensions
