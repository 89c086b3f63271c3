"""What a run on a MuJoCo task believes, beside the truth: `python -m benchmarks.inside RUN`.

- returns of the final policy by its mode and with its noise, in the simulator and in its models
- episodes of mu in the models, beside the log that mu was fitted to
- the critic along imagined episodes, beside what the models then gave, by steps left until the end
- how far the policy stands from mu: at first states, at logged ones, on its own path
- how wrong the models are on the policy's own path, beside what they say themselves
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from benchmarks.restore import Restored, restore
from pspo.algorithms.pspo import algorithm as pspo
from pspo.algorithms.pspo.diagnostics import imagined_steps
from pspo.data.normalise import squash
from pspo.dynamics.ensemble import model_inputs
from pspo.envs.mujoco import HORIZON, play
from pspo.nets.policies import MixturePolicy, kl_bound

EPISODES, IMAGINED = 10, 100
STEPS_LEFT = ((1, 25), (25, 50), (50, 100), (100, 200), (200, 400), (400, HORIZON))
QUANTILES = (0.05, 0.5, 0.95)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    for line in look(restore(parser.parse_args().run)):
        print(line, flush=True)


def look(run: Restored) -> Iterator[str]:
    policy, mu = run.state.params.policy, run.setup.arrays.reference
    path, noisy_dream = simulate(run, policy, noisy=False), imagine(run, policy, noisy=True)
    yield f"policy by its mode: true {_played(path)}, imagined {_dreamt(imagine(run, policy, noisy=False))}"
    yield f"policy with its noise: true {_played(simulate(run, policy, noisy=True))}, imagined {_dreamt(noisy_dream)}"
    logged = _episodes(run.data.episode_returns(), run.data.episode_lengths())
    yield f"mu with its noise: imagined {_dreamt(imagine(run, mu, noisy=True))}, in the log {logged}"
    yield from _critic(noisy_dream)
    own = np.concatenate([e.obs[:-1] for e in path])
    places = {"first states": run.data.obs[run.data.episode_starts], "the log": run.data.obs[::50], "its own path": own}
    for name, obs in places.items():
        features = run.setup.norm.encode(jnp.asarray(obs))
        low, middle, high = np.quantile(kl_bound(policy(features), mu(features)), QUANTILES)
        yield f"KL(policy, mu) at {name}: {middle:.2f} nats, nine tenths from {low:.2f} to {high:.2f}"
    yield from _models(run, path)


def simulate(run: Restored, policy: MixturePolicy, noisy: bool) -> list[Any]:
    norm = run.setup.norm
    act = jax.jit(lambda obs, key: norm.from_unit(_act(policy, norm.encode(obs), key if noisy else None)))
    keys = iter(jax.random.split(jax.random.PRNGKey(0), HORIZON * EPISODES))
    assert run.data.task, "this run knows no task"
    batch = lambda obs, _: np.asarray(act(obs, next(keys)))  # noqa: E731
    return list(play(run.data.task, batch, [(i, i) for i in range(EPISODES)], EPISODES, record=True))


def _act(policy: MixturePolicy, features: Array, key: Array | None) -> Array:
    mixture = policy(features)
    return squash(mixture.mode() if key is None else mixture.sample(key, 1)[0])


class Imagined(NamedTuple):
    returns: np.ndarray  # (episodes,), in the log's units
    lengths: np.ndarray
    to_go: np.ndarray  # (steps, episodes): discounted, normalised
    q: np.ndarray
    alive: np.ndarray


def imagine(run: Restored, policy: MixturePolicy, noisy: bool) -> Imagined:
    """Episodes in the whole pool under the posterior, from the log's first states."""
    config, setup, state = run.config, run.setup, run.state
    starts = jnp.asarray(run.data.obs[run.data.episode_starts[:IMAGINED]])

    @jax.jit
    def episodes(key: Array) -> tuple[Array, ...]:
        act = lambda obs, k: _act(policy, setup.norm.encode(obs), k if noisy else None)  # noqa: E731
        steps = imagined_steps(config, setup, state, act, starts, HORIZON, key)
        judge = lambda step: pspo.q_values(config, state.target_critic, setup.norm.encode(step.obs), step.action)  # noqa: E731
        return steps.gained, jax.lax.map(judge, steps), steps.alive

    gained, q, alive = (np.asarray(part) for part in episodes(jax.random.PRNGKey(1)))
    to_go, ahead = np.zeros(gained.shape), np.zeros(len(starts))
    for t in reversed(range(HORIZON)):
        to_go[t] = ahead = gained[t] + config.gamma * ahead
    return Imagined(gained.sum(0) * float(setup.norm.reward_scale), alive.sum(0), to_go, q, alive)


def _played(episodes: list[Any]) -> str:
    return _episodes([e.total for e in episodes], [e.length for e in episodes])


def _dreamt(found: Imagined) -> str:
    return _episodes(found.returns, found.lengths)


def _episodes(returns: Any, lengths: Any) -> str:
    return f"{np.mean(returns):.0f} in {np.mean(lengths):.0f} steps"


def _critic(found: Imagined) -> Iterator[str]:
    """Only episodes that ended by themselves: of the others nobody knows what was left."""
    left = found.lengths - np.arange(HORIZON)[:, None]
    for low, high in STEPS_LEFT:
        rows = found.alive & (left >= low) & (left < high) & (found.lengths < HORIZON)
        if rows.sum() > 1:
            q, truth = found.q[rows], found.to_go[rows]
            together = np.corrcoef(q, truth)[0, 1]
            yield f"{low} to {high} steps left: critic {q.mean():.3f}, models {truth.mean():.3f}, r {together:.2f}"


def _models(run: Restored, path: list[Any]) -> Iterator[str]:
    """Root mean squares over columns, in standard deviations of the log."""
    norm, ages = run.setup.norm, np.concatenate([np.arange(e.length) for e in path])
    obs, action = np.concatenate([e.obs[:-1] for e in path]), np.concatenate([e.action for e in path])
    after = np.concatenate([e.obs[1:] for e in path])
    said = run.setup.arrays.pool.predict(model_inputs(norm, jnp.asarray(obs), norm.unit_action(jnp.asarray(action))))
    mean, std = np.asarray(said.mean)[..., :-1] / norm.obs_std, np.asarray(said.std)[..., :-1] / norm.obs_std

    def size(what: np.ndarray) -> np.ndarray:
        return np.sqrt(np.square(what).mean(-1))

    error = size(mean.mean(0) - (after - obs) / norm.obs_std)
    columns = {"error": error, "their spread": size(mean.std(0)), "their noise": size(std.mean(0))}
    for low, high in ((0, 20), (20, 100), (100, HORIZON)):
        rows = (ages >= low) & (ages < high)
        if rows.any():
            said_there = ", ".join(f"{name} {values[rows].mean():.4f}" for name, values in columns.items())
            yield f"models on its own path, steps {low} to {high}: {said_there}"


if __name__ == "__main__":
    main()
