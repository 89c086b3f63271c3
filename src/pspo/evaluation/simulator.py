"""A policy in its task's simulator, acting by its mode: return, standard deviation, tail, score and regret."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.tree_util import Partial

from pspo.core.compute import keep_compiled_programs
from pspo.core.errors import UserError
from pspo.data.normalise import Normaliser
from pspo.envs.task import Simulation, Task, get_task, require_episodes
from pspo.nets.actors import act
from pspo.policies.policy import Policy, load_policy, to_network


@dataclass(frozen=True)
class Evaluation:
    """Returns of a policy in a simulator. Fields that need a known optimum are None where there is none."""

    episodes: int
    return_mean: float
    return_std: float
    return_stderr: float
    cvar10: float  # mean of the worst 10 % of the episodes
    score: float  # normalised: random 0, expert 100
    score_stderr: float
    regret: float | None = None
    """Optimal return minus the policy's, summed from the exact loss of each step: low variance."""
    regret_stderr: float | None = None
    score_by_regret: float | None = None  # score of the optimal policy minus the normalised regret
    optimal_score: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """Fields that are known, by name."""
        return {name: value for name, value in dataclasses.asdict(self).items() if value is not None}


def summarise(task: Task, simulation: Simulation) -> Evaluation:
    returns = simulation.returns
    n = len(returns)
    mean, std = float(returns.mean()), float(returns.std())
    tail = np.sort(returns)[: max(1, n // 10)]
    per_point = task.expert_return - task.random_return
    exact: dict[str, float] = {}
    if simulation.regret is not None and (best := task.optimal_score) is not None:
        regret = float(simulation.regret.mean())
        exact = {
            "regret": regret,
            "regret_stderr": float(simulation.regret.std() / n**0.5),
            "score_by_regret": best - 100.0 * regret / per_point,
            "optimal_score": best,
        }
    return Evaluation(
        episodes=n,
        return_mean=mean,
        return_std=std,
        return_stderr=std / n**0.5,
        cvar10=float(tail.mean()),
        score=float(task.normalised(mean)),
        score_stderr=100.0 * std / n**0.5 / per_point,
        **exact,
    )


Actor = Callable[[Any, jax.Array], jax.Array]
"""(policy network, raw observations) -> raw actions."""


def actor_by_mode(norm: Normaliser) -> Actor:
    """(network, obs) -> action without noise. Make it once per run: the simulator compiles once per actor."""
    return lambda policy, obs: act(policy, norm, obs)


def evaluate_network(task: Task, actor: Actor, policy: Any, episodes: int, seed: int) -> Evaluation:
    """A network on the device, in the task's simulator."""
    return summarise(task, task.simulate(Partial(actor, policy), jax.random.PRNGKey(seed), episodes))


def evaluate(
    what: str | Path | Policy, episodes: int | None = None, seed: int = 0, task: str | None = None
) -> Evaluation:
    """Evaluate a policy, or that of a run directory or policy file, in its task's simulator, acting by its mode.

    `episodes` defaults to the task's number; `seed` is that of the episodes. `task` names a simulator for a policy
    whose data name none.
    """
    if episodes is not None:
        require_episodes(episodes)
    keep_compiled_programs()
    policy = what if isinstance(what, Policy) else load_policy(what)
    name = task or policy.metadata.get("task")
    if not name:
        raise UserError("this policy's data name no task with a simulator: pass task=... if there is one.")
    where = get_task(name)
    where.require_fit("this policy", policy)
    count = where.default_episodes if episodes is None else episodes
    return evaluate_network(where, actor_by_mode(policy.norm), to_network(policy), count, seed)
