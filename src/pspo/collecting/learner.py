"""The online learner: SAC in one environment, one update per step; resuming gives the same result bit for bit.

    [chunk of steps -> chunk of updates -> evaluation -> checkpoint] ... -> policies, experience

Random numbers of a chunk derive from (seed, step), those of an episode's start from (seed, episode). A checkpoint
cannot hold the state of the simulator: the open episode is replayed from its start with the same actions.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from pspo.collecting import sac
from pspo.collecting.behaviour import Behaviour, Gaussian, Uniform, load_behaviour, save_behaviour
from pspo.collecting.episodes import dimensions, episode_random, play_episodes
from pspo.collecting.experience import Experience
from pspo.core import checkpoint
from pspo.core.compute import keep_compiled_programs
from pspo.core.errors import Diverged
from pspo.core.progress import Reporter
from pspo.core.renamed import new_array_name
from pspo.envs.mujoco import HORIZON, SLOTS, borrow_env, return_env
from pspo.envs.task import get_task

MEDIUM = "medium.npz"
CHECKPOINT_SECONDS = 30.0
# Streams of random numbers, far from the parts of a collection, which count from zero.
EVALUATE, EXPLORE, CHUNK = 1_000_000, 1_000_001, 1_000_002


class LearnerCheckpoint(NamedTuple):
    """The learner, and the step at which its policy became medium (0: not yet)."""

    sac: sac.State
    medium_step: Array


@dataclass(frozen=True)
class LearnerResult:
    """What a learner is used for."""

    policies: dict[str, Gaussian]  # "medium", "expert"
    experience: Experience


def learn(
    task: str,
    config: sac.Config,
    *,
    steps: int,
    seed: int,
    until_medium: bool,
    folder: Path,
    reporter: Reporter,
) -> LearnerResult:
    """Learn for `steps` steps, or only until the policy is medium; `folder` holds the files for resuming."""
    keep_compiled_programs()
    obs_dim, action_dim = dimensions(task)
    experience = Experience(steps, obs_dim, action_dim)
    saved = LearnerCheckpoint(sac.init(config, obs_dim, action_dim, jax.random.PRNGKey(seed)), jnp.int32(0))
    if newest := checkpoint.load_newest(folder / "learner", saved, reporter.message, _new_array_name):
        step, saved = newest
        experience.restore(folder, step)
        reporter.message(f"resuming the learner at step {step}")
    explorer = Explorer(task, seed, experience, folder, reporter)
    numbers: dict[str, float] = {}
    saved_at = time.monotonic()
    while experience.size < steps and not (until_medium and saved.medium_step):
        before = experience.size
        state, losses = _chunk(config, saved.sac, explorer, min(config.chunk, steps - before))
        step, saved, reached = experience.size, saved._replace(sac=state), False
        numbers = {key: value for key, value in numbers.items() if key == "score"} | losses
        if step // config.evaluate_every > before // config.evaluate_every or step == steps:
            numbers["score"] = _evaluate(task, config, seed, sac.behaviour(state.params.actor))
            reached = not saved.medium_step and numbers["score"] >= config.medium_score
        if reached:
            save_behaviour(sac.behaviour(state.params.actor), folder / MEDIUM)
            saved = saved._replace(medium_step=jnp.int32(step))
        if reached or step == steps or time.monotonic() - saved_at > CHECKPOINT_SECONDS:
            experience.save(folder)
            checkpoint.save(folder / "learner", step, saved)
            saved_at = time.monotonic()
        reporter.progress("learning", step, steps, numbers)
    explorer.close()
    policies = {"expert": sac.behaviour(saved.sac.params.actor)}
    if saved.medium_step:
        policies["medium"], _ = load_behaviour(folder / MEDIUM, obs_dim, action_dim)
    return LearnerResult(policies, experience)


def _new_array_name(name: str) -> str:
    """The name of an array in checkpoints of any version: the state of SAC is one field of ours."""
    field, rest = name[: len(".sac")], name[len(".sac") :]
    return field + new_array_name(rest) if field == ".sac" else name


def _chunk(config: sac.Config, state: sac.State, explorer: Explorer, length: int) -> tuple[sac.State, dict[str, float]]:
    """`length` steps, then as many updates; before `start_steps` only steps, with random actions."""
    experience = explorer.experience
    rng = np.random.default_rng(np.random.SeedSequence(explorer.seed, spawn_key=(CHUNK, experience.size)))
    random = experience.size < config.start_steps
    policy = Uniform(experience.action.shape[1]) if random else sac.behaviour(state.params.actor)
    for _ in range(length):
        explorer.step(policy, rng)
    if random:
        return state, {}
    state, metrics = sac.update_many(config, state, experience.sample(rng, (length, config.batch)))
    losses = {name.replace("_", " "): float(value) for name, value in metrics.items()}
    if not np.isfinite(list(losses.values())).all():
        raise Diverged(f"the learner diverged by step {experience.size}: lower its learning rate (--set lr=1e-4).")
    return state, losses


def _evaluate(task: str, config: sac.Config, seed: int, policy: Behaviour) -> float:
    """The normalised score of the policy with its noise, on the same episodes every time."""
    count = config.evaluate_episodes
    slots = min(count, SLOTS)
    episodes = play_episodes(task, policy, indices=range(count), seed=seed, part=EVALUATE, slots=slots, record=False)
    return float(get_task(task).normalised(np.mean([episode.total for episode in episodes])))


class Explorer:
    """One environment whose transitions go into the experience."""

    def __init__(self, task: str, seed: int, experience: Experience, folder: Path, reporter: Reporter) -> None:
        self.task, self.env, self.seed, self.experience = task, borrow_env(task), seed, experience
        self.begin()
        for action in experience.action[experience.open_start : experience.size]:
            self.obs, self.age = np.asarray(self.env.step(action)[0], np.float32), self.age + 1
        if self.age and (self.obs != experience.next_obs[experience.size - 1]).any():
            reporter.message(
                "the simulator does not repeat the interrupted episode: it ends there, and a new one begins"
            )
            experience.cut()
            experience.save(folder, start=0)
            self.begin()

    def begin(self) -> None:
        start, _ = episode_random(self.seed, EXPLORE, self.experience.episodes)
        self.obs, self.age = np.asarray(self.env.reset(seed=start)[0], np.float32), 0

    def step(self, policy: Behaviour, rng: np.random.Generator) -> None:
        action = policy.sample(self.obs[None], policy.draw(rng)[None])[0]
        next_obs, reward, terminal, _, _ = self.env.step(action)
        self.age += 1
        timeout = self.age == HORIZON and not terminal
        self.experience.add(self.obs, action, float(reward), next_obs, (bool(terminal), timeout))
        self.obs = np.asarray(next_obs, np.float32)
        if terminal or timeout:
            self.begin()

    def close(self) -> None:
        return_env(self.task, self.env)
