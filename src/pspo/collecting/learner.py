"""The online learner: SAC in one environment, as many updates as steps, stopped and resumed to the same bits.

    [chunk of steps -> chunk of updates -> look at the score -> checkpoint] ... -> policies, experience

Random numbers of a chunk derive from (seed, step), those of an episode's start from (seed, episode). A checkpoint
cannot hold the simulator's state: the open episode is played again from its start with the actions it had.
"""

from __future__ import annotations

import time
from collections.abc import Callable
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
from pspo.core.progress import Progress
from pspo.envs.mujoco import HORIZON, SLOTS, borrow_env, return_env
from pspo.envs.task import get_task

MEDIUM = "medium.npz"
CHECKPOINT_SECONDS = 30.0
# Streams of random numbers, far from the parts of a collection, which count from zero.
LOOK, EXPLORE, CHUNK = 1_000_000, 1_000_001, 1_000_002


class Saved(NamedTuple):
    """A checkpoint: the learner, and the step at which its policy was medium (0: not yet)."""

    sac: sac.State
    medium_step: Array


@dataclass(frozen=True)
class Learnt:
    policies: dict[str, Gaussian]  # "medium", "expert"
    experience: Experience


def learn(
    task: str,
    config: sac.Config,
    steps: int,
    seed: int,
    until_medium: bool,
    folder: Path,
    progress: Progress,
    say: Callable[[str], None],
) -> Learnt:
    """Learn for `steps` steps, or only until the policy is medium; `folder` holds what resuming needs."""
    keep_compiled_programs()
    obs_dim, action_dim = dimensions(task)
    experience = Experience(steps, obs_dim, action_dim)
    saved = Saved(sac.init(config, obs_dim, action_dim, jax.random.PRNGKey(seed)), jnp.int32(0))
    if found := checkpoint.load_newest(folder / "learner", saved, say):
        saved = found[1]
        experience.restore(folder, found[0])
        say(f"resuming the learner at step {found[0]}")
    explorer = Explorer(task, seed, experience, folder, say)
    numbers: dict[str, float] = {}
    saved_at = time.monotonic()
    while experience.size < steps and not (until_medium and saved.medium_step):
        before = experience.size
        state, losses = _chunk(config, saved.sac, explorer, min(config.chunk, steps - before))
        step, saved, reached = experience.size, saved._replace(sac=state), False
        numbers = {key: value for key, value in numbers.items() if key == "score"} | losses
        if step // config.evaluate_every > before // config.evaluate_every or step == steps:
            numbers["score"] = _look(task, config, seed, sac.behaviour(state.params.actor))
            reached = not saved.medium_step and numbers["score"] >= config.medium_score
        if reached:
            save_behaviour(sac.behaviour(state.params.actor), folder / MEDIUM)
            saved = saved._replace(medium_step=jnp.int32(step))
        if reached or step == steps or time.monotonic() - saved_at > CHECKPOINT_SECONDS:
            experience.save(folder)
            checkpoint.save(folder / "learner", step, saved)
            saved_at = time.monotonic()
        progress("learning", step, steps, numbers)
    explorer.close()
    policies = {"expert": sac.behaviour(saved.sac.params.actor)}
    if saved.medium_step:
        policies["medium"], _ = load_behaviour(folder / MEDIUM, obs_dim, action_dim)
    return Learnt(policies, experience)


def _chunk(config: sac.Config, state: sac.State, explorer: Explorer, length: int) -> tuple[sac.State, dict[str, float]]:
    """`length` steps, then as many updates; before the start only steps, with random actions."""
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
        raise Diverged(f"the learner diverged by step {experience.size}: lower its rate (--set rate=1e-4).")
    return state, losses


def _look(task: str, config: sac.Config, seed: int, policy: Behaviour) -> float:
    """The normalised score of the policy with its noise, on the same starts every time."""
    count = config.evaluate_episodes
    episodes = play_episodes(task, policy, seed, LOOK, range(count), min(count, SLOTS), record=False)
    return float(get_task(task).normalised(np.mean([episode.total for episode in episodes])))


class Explorer:
    """One environment, stepped into the experience."""

    def __init__(self, task: str, seed: int, experience: Experience, folder: Path, say: Callable[[str], None]) -> None:
        self.task, self.env, self.seed, self.experience = task, borrow_env(task), seed, experience
        self.begin()
        for action in experience.action[experience.open_start : experience.size]:
            self.obs, self.age = np.asarray(self.env.step(action)[0], np.float32), self.age + 1
        if self.age and (self.obs != experience.next_obs[experience.size - 1]).any():
            say("the simulator does not repeat the episode that was interrupted: it ends there, and a new one begins")
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
