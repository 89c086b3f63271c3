"""`pspo collect`: a dataset made like D4RL's, from behaviour policies or from the replay buffer of an online learner.

random         a uniform policy
medium         a SAC policy, stopped at about a third of the expert's return
expert         the final policy of that learner
medium-expert  half of each
medium-replay  the learner's replay buffer when its policy became medium
full-replay    its replay buffer at the end
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pspo.collecting.behaviour import Behaviour, Uniform, load_behaviour, save_behaviour
from pspo.collecting.episodes import collect_episodes, dimensions
from pspo.collecting.partial import partial_folder, resumable_folder
from pspo.collecting.store import Summary, already_collected, join_episodes, save_collection
from pspo.core.errors import UserError, unknown_name
from pspo.core.progress import Reporter
from pspo.data.readers.hdf5 import SUFFIXES
from pspo.envs.mujoco import LOCOMOTION

STEPS = 1_000_000  # of the learner by default


@dataclass(frozen=True)
class LearnerDataset:
    """A kind of dataset that a learner gives: episodes of its policies, or its replay buffer if there are none."""

    until_medium: bool
    policies: tuple[str, ...] = ()


LEARNER_DATASETS = {
    "medium": LearnerDataset(until_medium=True, policies=("medium",)),
    "expert": LearnerDataset(until_medium=False, policies=("expert",)),
    "medium-expert": LearnerDataset(until_medium=False, policies=("medium", "expert")),
    "medium-replay": LearnerDataset(until_medium=True),
    "full-replay": LearnerDataset(until_medium=False),
}


@dataclass(frozen=True)
class CollectionRequest:
    """What `collect` was asked for, checked."""

    name: str
    task: str
    out: Path
    transitions: int | None
    seed: int
    reporter: Reporter


def collect(
    name: str,
    out: str | Path,
    *,
    transitions: int | None = None,
    seed: int = 0,
    policies: Sequence[str | Path] = (),
    steps: int | None = None,
    settings: dict[str, Any] | None = None,
    reporter: Reporter = Reporter(),  # noqa: B008 (frozen)
) -> Summary:
    """Collect the dataset `name`, which is TASK-LABEL, into the file `out`.

    With policy files, or for `random`, the label is only a name; several policies give equal shares, in their order.
    Otherwise a learner runs for at most `steps`, and the label decides which of its data are saved.
    """
    task, label = _task_and_label(name)
    request = CollectionRequest(name, task, _checked_output(out), transitions, seed, reporter)
    _require_range("--seed", seed, 0, 2**31 - 1)
    if policies or label == "random":
        if steps is not None or settings:
            raise UserError("--steps and --set are for a learner, and none is needed here: leave them out.")
        return _from_policies(request, policies)
    if label not in LEARNER_DATASETS:
        raise UserError(f"without --policy, {unknown_name('label', label, (*LEARNER_DATASETS, 'random'))}")
    return _from_learner(request, LEARNER_DATASETS[label], STEPS if steps is None else steps, settings or {})


def _from_policies(request: CollectionRequest, policies: Sequence[str | Path]) -> Summary:
    transitions = _checked_transitions(request.transitions, max(len(policies), 1))
    obs_dim, action_dim = dimensions(request.task)
    loaded = [load_behaviour(Path(path), obs_dim, action_dim) for path in policies]
    behaviours: list[Behaviour] = [policy for policy, _ in loaded] or [Uniform(action_dim)]
    origin = [sha256 for _, sha256 in loaded] or ["uniform"]
    record = {"name": request.name, "policies": origin, "transitions": transitions, "seed": request.seed}
    if summary := _finished(request.out, record):
        return summary
    with resumable_folder(request.out, record) as folder:
        parts = _play_parts(request, behaviours, transitions, folder)
        return save_collection(parts, request.out, request.name, request.task, record)


def _from_learner(request: CollectionRequest, kind: LearnerDataset, steps: int, settings: dict[str, Any]) -> Summary:
    from pspo.collecting.learner import learn
    from pspo.collecting.sac import Config
    from pspo.core.config import build, flatten

    config, transitions, out = build(Config, settings), request.transitions, request.out
    _require_range("--steps", steps, config.start_steps + 1, 10**9)
    if kind.policies:
        transitions = _checked_transitions(transitions, len(kind.policies))
    elif transitions is not None:
        raise UserError(
            f"'{request.name}' is the learner's whole experience: leave --transitions out, or lower --steps."
        )
    record = {"name": request.name, "transitions": transitions, "seed": request.seed, "steps": steps}
    record["learner"] = flatten(config)
    if summary := _finished(out, record):
        return summary
    with resumable_folder(out, record) as folder:
        options = {"until_medium": kind.until_medium, "folder": folder, "reporter": request.reporter}
        result = learn(request.task, config, steps=steps, seed=request.seed, **options)
        if "medium" not in result.policies and (kind.until_medium or "medium" in kind.policies):
            raise UserError(
                f"{steps} steps were not enough to reach a normalised score of {config.medium_score:g}: "
                "give the same command with more --steps to continue."
            )
        if kind.policies:
            parts = _play_parts(request, [result.policies[level] for level in kind.policies], transitions or 0, folder)
        else:
            parts = [result.experience.arrays()]
        for level in kind.policies or (["medium"] if kind.until_medium else list(result.policies)):
            save_behaviour(result.policies[level], out.with_name(f"{out.stem}.policy-{level}.npz"))
        return save_collection(parts, out, request.name, request.task, record)


def _play_parts(
    request: CollectionRequest, behaviours: Sequence[Behaviour], transitions: int, folder: Path
) -> list[dict[str, Any]]:
    """Equal shares of the transitions, one for each policy; the last also takes the remainder."""
    share = transitions // len(behaviours)
    parts = []
    for part, policy in enumerate(behaviours):
        count = share if part < len(behaviours) - 1 else transitions - share * part
        episodes = collect_episodes(
            request.task,
            policy,
            transitions=count,
            seed=request.seed,
            part=part,
            folder=folder,
            reporter=request.reporter,
            stage="collecting" if len(behaviours) == 1 else f"collecting {part + 1}/{len(behaviours)}",
        )
        parts.append(join_episodes(episodes, count))
    return parts


def _finished(out: Path, record: dict[str, Any]) -> Summary | None:
    summary = already_collected(out, record)
    if summary:  # the process may have been killed between saving and cleaning up
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
        raise UserError("the number of transitions is missing: give --transitions N.")
    _require_range("--transitions", transitions, least, 10**9)
    return transitions


def _require_range(option: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise UserError(f"{option} {value} is out of range: it must be a whole number from {low} to {high}.")
