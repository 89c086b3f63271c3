"""The MuJoCo tasks: where episodes end, and a threaded simulator that plays the same episodes as a plain loop."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pspo.core.errors import UserError
from pspo.envs.mujoco import (
    LOCOMOTION,
    TERMINATED,
    borrow_env,
    halfcheetah_terminated,
    hopper_terminated,
    play,
    walker2d_terminated,
)
from pspo.envs.task import get_task

pytest.importorskip("mujoco", reason="needs the extra pspo[mujoco]")


def hopper(height=1.25, angle=0.0, **changed):
    state = np.zeros(11)
    state[0], state[1] = height, angle
    for column, value in changed.items():
        state[int(column[1:])] = value
    return state


@pytest.mark.parametrize(
    ("state", "ends"),
    [
        (hopper(), False),
        (hopper(height=0.69), True),
        (hopper(height=0.71), False),
        (hopper(height=9.0), False),
        (hopper(angle=0.21), True),
        (hopper(angle=-0.21), True),
        (hopper(angle=-0.19), False),
        (hopper(c8=101.0), True),
        (hopper(c8=-101.0), True),  # the case that the absolute value of a boolean lets pass
        (hopper(c8=-99.0), False),
        (hopper(c10=np.nan), True),
        (hopper(height=np.inf), True),
    ],
)
def test_hopper_ends_by_both_sides_of_every_bound(state, ends):
    assert bool(hopper_terminated(None, None, jnp.asarray(state))) is ends
    assert bool(hopper_terminated(None, None, state)) is ends


@pytest.mark.parametrize(
    ("height", "angle", "ends"),
    [
        (1.25, 0, False),
        (0.79, 0, True),
        (0.81, 0, False),
        (2.01, 0, True),
        (1.99, 0, False),
        (1.25, 1.01, True),
        (1.25, -1.01, True),
        (1.25, -0.99, False),
        (np.nan, 0, True),
    ],
)
def test_walker_ends_by_both_sides_of_every_bound(height, angle, ends):
    state = np.zeros((2, 3, 17))
    state[..., 0], state[..., 1] = height, angle
    result = walker2d_terminated(None, None, state)
    assert result.shape == (2, 3)
    assert (result == ends).all()


def test_halfcheetah_ends_only_when_its_state_diverges():
    states = np.zeros((4, 17))
    states[1, 0], states[2, 3], states[3, 16] = -99.0, -100.0, np.nan
    assert halfcheetah_terminated(None, None, states).tolist() == [False, False, True, True]


@pytest.mark.parametrize("task", LOCOMOTION)
def test_rules_agree_with_the_environment(task):
    env, rng = borrow_env(task), np.random.default_rng(0)
    obs, _ = env.reset(seed=0)
    assert (len(obs), *env.action_space.shape) == (LOCOMOTION[task].obs_dim, LOCOMOTION[task].action_dim)
    terminated, truth = [], []
    for _ in range(300):
        obs, _, terminal, _, _ = env.step(rng.uniform(-1, 1, env.action_space.shape))
        terminated.append(bool(TERMINATED[task](None, None, obs)))
        truth.append(bool(terminal))
        if terminal:
            env.reset()
    assert terminated == truth
    assert any(truth) is (task != "halfcheetah")


def test_threads_play_the_same_episodes_as_a_plain_loop():
    def act(obs, episodes=None):  # element by element: no sum whose order could depend on the batch
        return np.clip(3.0 * obs[..., 1:4] - obs[..., 6:9], -1.0, 1.0)

    seeds = [5, 6, 7, 8, 9]
    result = {e.index: e for e in play("hopper", act, enumerate(seeds), slots=2, record=True)}
    assert sorted(result) == [0, 1, 2, 3, 4]
    env = borrow_env("hopper")
    for index, seed in enumerate(seeds):
        obs, total, steps, terminal = env.reset(seed=seed)[0], 0.0, 0, False
        while not terminal:
            obs = np.float32(obs)
            np.testing.assert_array_equal(result[index].obs[steps], obs)
            obs, reward, terminal, _, _ = env.step(act(obs))
            total, steps = total + reward, steps + 1
        assert result[index].length == steps == len(result[index].action) == len(result[index].obs) - 1
        assert result[index].terminal
        assert result[index].total == pytest.approx(total)
        assert result[index].reward.sum() == pytest.approx(total, rel=1e-4)


def test_an_episode_is_cut_after_a_thousand_steps_and_not_terminal():
    still = np.zeros((1, 6), np.float32)
    (episode,) = play("halfcheetah", lambda obs, _: still, [(0, 0)], slots=1)
    assert (episode.length, episode.terminal, episode.obs.size) == (1000, False, 0)


def test_scores_are_on_d4rls_scale_and_repeat_by_seed():
    task = get_task("hopper")
    assert task.normalised(3234.3) == pytest.approx(100.0)
    assert task.normalised(-20.272305) == pytest.approx(0.0)

    def act(obs, key):
        return jax.random.uniform(key, (obs.shape[0], 3), minval=-1.0, maxval=1.0)

    first, again, other = (task.simulate(act, jax.random.PRNGKey(s), 6, stochastic=True) for s in (0, 0, 1))
    assert first.returns.tolist() == again.returns.tolist() != other.returns.tolist()
    assert -5 < task.normalised(first.returns.mean()) < 5
    with pytest.raises(UserError, match="episodes=0 is out of range"):
        task.simulate(act, jax.random.PRNGKey(0), 0)


def test_a_missing_simulator_is_reported_before_training(monkeypatch, tmp_path):
    import sys

    import pspo
    from pspo.envs import mujoco

    monkeypatch.setitem(sys.modules, "mujoco", None)
    monkeypatch.setitem(mujoco._spare, "hopper", [])
    n = 40
    obs = np.random.default_rng(0).normal(size=(n, 11))
    log = {"observations": obs, "next_observations": obs, "actions": obs[:, :3] / 9, "rewards": obs[:, 0]}
    log |= {"terminals": np.arange(n) % 10 == 9, "task": "hopper"}
    with pytest.raises(UserError, match=r"pip install 'pspo\[mujoco\]'"):
        pspo.train(log, preset="smoke", out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
