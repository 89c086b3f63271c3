"""Models, critic and policy of a run on a MuJoCo task, beside the simulator: `python -m benchmarks.inside RUN`.

- returns of the final policy by its mode and with its noise, in the simulator and in its models
- episodes of mu in the models, beside the dataset that mu was fitted to
- the critic along episodes in the models, beside the discounted returns there, by steps left until the end
- how far the policy is from mu: at first states, at states of the dataset, on its own path
- the models' error on the policy's own path, beside their disagreement and predicted noise
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
from pspo.algorithms.pspo.diagnostics import model_episodes
from pspo.algorithms.pspo.evaluation import q_values
from pspo.data.normalise import squash
from pspo.dynamics.ensemble import model_inputs
from pspo.envs.mujoco import HORIZON, play
from pspo.nets.policies import MixturePolicy, kl_bound

EPISODES, MODEL_EPISODES = 10, 100
STEPS_LEFT = ((1, 25), (25, 50), (50, 100), (100, 200), (200, 400), (400, HORIZON))
QUANTILES = (0.05, 0.5, 0.95)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    for line in describe(restore(parser.parse_args().run)):
        print(line, flush=True)


def describe(run: Restored) -> Iterator[str]:
    policy, mu = run.state.params.policy, run.setup.arrays.reference
    path, noisy = simulate(run, policy, noisy=False), in_models(run, policy, noisy=True)
    by_mode = _of_models(in_models(run, policy, noisy=False))
    yield f"policy by its mode: simulator {_of_simulator(path)}, models {by_mode}"
    simulated = _of_simulator(simulate(run, policy, noisy=True))
    yield f"policy with its noise: simulator {simulated}, models {_of_models(noisy)}"
    dataset = _episodes(run.data.episode_returns(), run.data.episode_lengths())
    yield f"mu with its noise: models {_of_models(in_models(run, mu, noisy=True))}, dataset {dataset}"
    yield from _critic(noisy)
    own = np.concatenate([e.obs[:-1] for e in path])
    first, some = run.data.obs[run.data.episode_starts], run.data.obs[::50]
    for name, obs in {"first states": first, "the dataset": some, "its own path": own}.items():
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


class ModelEpisodes(NamedTuple):
    returns: np.ndarray  # (episodes,), in the dataset's units
    lengths: np.ndarray
    to_go: np.ndarray  # (steps, episodes): discounted, normalised
    q: np.ndarray
    alive: np.ndarray


def in_models(run: Restored, policy: MixturePolicy, noisy: bool) -> ModelEpisodes:
    """Episodes in the whole pool under the posterior, from first states of the dataset's episodes."""
    config, setup, state = run.config, run.setup, run.state
    starts = jnp.asarray(run.data.obs[run.data.episode_starts[:MODEL_EPISODES]])

    @jax.jit
    def episodes(key: Array) -> tuple[Array, ...]:
        act = lambda obs, k: _act(policy, setup.norm.encode(obs), k if noisy else None)  # noqa: E731
        steps = model_episodes(config, setup, state=state, act=act, starts=starts, horizon=HORIZON, key=key)
        critic = lambda step: q_values(config, state.target_critic, setup.norm.encode(step.obs), step.action)  # noqa: E731
        return steps.reward, jax.lax.map(critic, steps), steps.alive

    reward, q, alive = (np.asarray(part) for part in episodes(jax.random.PRNGKey(1)))
    to_go, ahead = np.zeros(reward.shape), np.zeros(len(starts))
    for t in reversed(range(HORIZON)):
        to_go[t] = ahead = reward[t] + config.gamma * ahead
    return ModelEpisodes(reward.sum(0) * float(setup.norm.reward_scale), alive.sum(0), to_go, q, alive)


def _of_simulator(episodes: list[Any]) -> str:
    return _episodes([e.total for e in episodes], [e.length for e in episodes])


def _of_models(episodes: ModelEpisodes) -> str:
    return _episodes(episodes.returns, episodes.lengths)


def _episodes(returns: Any, lengths: Any) -> str:
    return f"{np.mean(returns):.0f} in {np.mean(lengths):.0f} steps"


def _critic(episodes: ModelEpisodes) -> Iterator[str]:
    """Only episodes that ended before the horizon: the rest of the others is unknown."""
    left = episodes.lengths - np.arange(HORIZON)[:, None]
    for low, high in STEPS_LEFT:
        these = episodes.alive & (left >= low) & (left < high) & (episodes.lengths < HORIZON)
        if these.sum() > 1:
            q, truth = episodes.q[these], episodes.to_go[these]
            together = np.corrcoef(q, truth)[0, 1]
            yield f"{low} to {high} steps left: critic {q.mean():.3f}, models {truth.mean():.3f}, r {together:.2f}"


def _models(run: Restored, path: list[Any]) -> Iterator[str]:
    """Root mean squares over columns, in standard deviations of the dataset."""
    norm, ages = run.setup.norm, np.concatenate([np.arange(e.length) for e in path])
    obs, action = np.concatenate([e.obs[:-1] for e in path]), np.concatenate([e.action for e in path])
    after = np.concatenate([e.obs[1:] for e in path])
    prediction = run.setup.arrays.pool.predict(
        model_inputs(norm, jnp.asarray(obs), norm.unit_action(jnp.asarray(action)))
    )
    mean, std = (np.asarray(part)[..., :-1] / norm.obs_std for part in (prediction.mean, prediction.std))

    def size(what: np.ndarray) -> np.ndarray:
        return np.sqrt(np.square(what).mean(-1))

    error = size(mean.mean(0) - (after - obs) / norm.obs_std)
    columns = {"error": error, "disagreement": size(mean.std(0)), "predicted noise": size(std.mean(0))}
    for low, high in ((0, 20), (20, 100), (100, HORIZON)):
        these = (ages >= low) & (ages < high)
        if these.any():
            means = ", ".join(f"{name} {values[these].mean():.4f}" for name, values in columns.items())
            yield f"models on its own path, steps {low} to {high}: {means}"


if __name__ == "__main__":
    main()
