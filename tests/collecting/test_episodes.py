"""Collected datasets have the requested size and are the same for any number of environments, even after a kill."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from pspo.collecting import collect
from pspo.collecting import episodes as playing
from pspo.collecting.behaviour import Uniform, load_behaviour
from pspo.collecting.episodes import collect_episodes, episode_random
from pspo.core.errors import UserError
from pspo.core.files import read_arrays
from pspo.core.progress import Reporter
from pspo.envs.mujoco import borrow_env, hopper_terminated
from tests.collecting.collecting_cases import policy_arrays

pytest.importorskip("mujoco", reason="needs the extra pspo[mujoco]")
h5py = pytest.importorskip("h5py", reason="needs h5py")

ROWS = 400


@pytest.fixture(scope="module")
def policy(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("policy") / "hopper-tiny.npz"
    np.savez(path, **policy_arrays())
    return path


def read(path: Path) -> dict[str, np.ndarray]:
    with h5py.File(path) as file:
        return {name: file[name][()] for name in file}


def attributes(path: Path) -> dict:
    with h5py.File(path) as file:
        return dict(file.attrs)


def played(policy: Path, folder: Path, slots: int, rows: int = ROWS, seed: int = 0):
    folder.mkdir(exist_ok=True)
    behaviour, _ = load_behaviour(policy, 11, 3)
    settings = {"transitions": rows, "seed": seed, "part": 0, "folder": folder, "slots": slots}
    return collect_episodes("hopper", behaviour, **settings, reporter=Reporter())


def test_episodes_do_not_depend_on_the_number_of_environments(policy: Path, tmp_path: Path, monkeypatch) -> None:
    one = played(policy, tmp_path / "one", 1)
    monkeypatch.setattr("pspo.envs.mujoco.cores", lambda: 3)
    for slots in (2, 7, 40):
        many = played(policy, tmp_path / f"many{slots}", slots)
        assert len(many) == len(one)
        for left, right in zip(one, many, strict=True):
            assert (left.index, left.total, left.terminal) == (right.index, right.total, right.terminal)
            for part in ("obs", "action", "reward"):
                np.testing.assert_array_equal(getattr(left, part), getattr(right, part))


def test_seeds_parts_and_indices_have_different_starts_and_noise() -> None:
    keys = [(seed, part, index) for seed in (0, 1) for part in (0, 1) for index in (0, 1, 2)]
    random = {key: episode_random(*key) for key in keys}
    assert len({start for start, _ in random.values()}) == len(keys)
    assert len({float(rng.random()) for _, rng in random.values()}) == len(keys)
    assert episode_random(0, 1, 2)[0] == random[0, 1, 2][0]


def test_a_collection_has_the_requested_size_and_true_next_states(policy: Path, tmp_path: Path) -> None:
    summary = collect("hopper-tiny", tmp_path / "a.hdf5", transitions=ROWS, seed=0, policies=[policy])
    data, metadata = read(tmp_path / "a.hdf5"), attributes(tmp_path / "a.hdf5")
    assert {name: (array.shape, array.dtype.str) for name, array in data.items()} == {
        "observations": ((ROWS, 11), "<f4"),
        "actions": ((ROWS, 3), "<f4"),
        "rewards": ((ROWS,), "<f4"),
        "next_observations": ((ROWS, 11), "<f4"),
        "terminals": ((ROWS,), "|b1"),
        "timeouts": ((ROWS,), "|b1"),
    }
    ends = data["terminals"] | data["timeouts"]
    assert not (data["terminals"] & data["timeouts"]).any()
    assert ends[-1]
    inside = np.flatnonzero(~ends)
    np.testing.assert_array_equal(data["next_observations"][inside], data["observations"][inside + 1])
    # A fall is a fall, and not the upright start of the next episode.
    fallen = hopper_terminated(None, None, data["next_observations"])
    np.testing.assert_array_equal(fallen, data["terminals"])
    assert fallen.sum() == summary.episodes - data["timeouts"].sum() > 3
    assert summary.rows == metadata["rows"] == ROWS
    assert (metadata["name"], metadata["task"], metadata["seed"]) == ("hopper-tiny", "hopper", 0)
    assert metadata["action_low"].tolist() == [-1, -1, -1]
    assert len(json.loads(metadata["collected"])["policies"][0]) == 64
    assert {"pspo", "mujoco"} <= json.loads(metadata["versions"]).keys()
    assert not (tmp_path / "a.hdf5.partial").exists()


def test_an_episode_is_reproduced_by_the_simulator_with_its_actions(policy: Path, tmp_path: Path) -> None:
    episodes = played(policy, tmp_path, 3, rows=60, seed=4)
    env = borrow_env("hopper")
    for episode in episodes:
        obs, _ = env.reset(seed=episode_random(4, 0, episode.index)[0])
        for step, action in enumerate(episode.action):
            np.testing.assert_array_equal(episode.obs[step], np.float32(obs))
            obs, reward, terminal, _, _ = env.step(action)
            assert episode.reward[step] == np.float32(reward)
        np.testing.assert_array_equal(episode.obs[-1], np.float32(obs))
        assert terminal is episode.terminal


def test_the_last_episode_is_a_timeout_unless_it_ends_just_there(policy: Path, tmp_path: Path) -> None:
    lengths = [episode.length for episode in played(policy, tmp_path / "e", 4)]
    at_end = sum(lengths[:3])
    for rows in (at_end - 1, at_end, at_end + 1):
        collect("hopper-tiny", tmp_path / f"{rows}.hdf5", transitions=rows, seed=0, policies=[policy])
        data = read(tmp_path / f"{rows}.hdf5")
        assert len(data["rewards"]) == rows
        assert bool(data["terminals"][-1]) is (rows == at_end)
        assert data["timeouts"].sum() == (rows != at_end)
        assert bool(data["timeouts"][-1]) is (rows != at_end)
    long = read(tmp_path / f"{at_end + 1}.hdf5")
    for name, short in read(tmp_path / f"{at_end}.hdf5").items():  # fewer rows are the beginning of more
        np.testing.assert_array_equal(short, long[name][:-1])


def test_the_mean_return_is_of_complete_episodes(policy: Path, tmp_path: Path) -> None:
    episodes = played(policy, tmp_path / "e", 4)
    rows = sum(episode.length for episode in episodes[:3]) + 1
    summary = collect("hopper-tiny", tmp_path / "a.hdf5", transitions=rows, seed=0, policies=[policy])
    assert summary.episodes == 4
    assert summary.return_mean == pytest.approx(np.mean([e.total for e in episodes[:3]]), rel=1e-5)
    assert summary.score == pytest.approx(100 * (summary.return_mean + 20.272305) / (3234.3 + 20.272305))


def test_two_policies_give_half_each_and_random_needs_no_policy(policy: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "other.npz", **policy_arrays(seed=8))
    collect(
        "hopper-medium-expert",
        tmp_path / "both.hdf5",
        transitions=201,
        seed=0,
        policies=[policy, tmp_path / "other.npz"],
    )
    collect("hopper-medium", tmp_path / "first.hdf5", transitions=100, seed=0, policies=[policy])
    both, first = read(tmp_path / "both.hdf5"), read(tmp_path / "first.hdf5")
    for name, array in first.items():
        np.testing.assert_array_equal(array, both[name][:100])
    assert len(both["rewards"]) == 201
    assert both["timeouts"][99] or both["terminals"][99]
    behaviour, _ = load_behaviour(tmp_path / "other.npz", 11, 3)
    _, noise = episode_random(0, 1, 0)
    action = behaviour.sample(both["observations"][100:101], behaviour.draw(noise)[None])[0]
    np.testing.assert_array_equal(both["actions"][100], action)

    collect("hopper-random", tmp_path / "random.hdf5", transitions=50)
    np.testing.assert_array_equal(
        read(tmp_path / "random.hdf5")["actions"][0], Uniform(3).draw(episode_random(0, 0, 0)[1])
    )


def stop_after(count: int):
    """A progress display that is interrupted."""
    seen = 0

    def progress(*_) -> None:
        nonlocal seen
        seen += 1
        if seen == count:
            raise KeyboardInterrupt

    return progress


def test_an_interrupted_collection_is_resumed_to_the_same_file(policy: Path, tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "whole").mkdir()
    (tmp_path / "stopped").mkdir()
    collect("hopper-tiny", tmp_path / "whole" / "a.hdf5", transitions=ROWS, seed=0, policies=[policy])
    monkeypatch.setattr(playing, "SAVE_SECONDS", 0.0)
    out = tmp_path / "stopped" / "a.hdf5"
    for count in (3, 5):
        with pytest.raises(KeyboardInterrupt):
            collect(
                "hopper-tiny", out, transitions=ROWS, seed=0, policies=[policy], reporter=Reporter(stop_after(count))
            )
    assert not out.exists()
    saved = {
        int(i) for path in out.with_name("a.hdf5.partial").glob("episodes-*") for i in read_arrays(path)[0]["index"]
    }
    assert len(saved) == 8
    again = []
    plain = playing.play_episodes

    def counted(*arguments, **options):
        for episode in plain(*arguments, **options):
            again.append(episode.index)
            yield episode

    monkeypatch.setattr(playing, "play_episodes", counted)
    collect("hopper-tiny", out, transitions=ROWS, seed=0, policies=[policy])
    assert not saved & set(again)
    assert out.read_bytes() == (tmp_path / "whole" / "a.hdf5").read_bytes()
    assert not (tmp_path / "stopped" / "a.hdf5.partial").exists()


def test_a_killed_collection_loses_only_seconds(policy: Path, tmp_path: Path) -> None:
    out, rows = tmp_path / "a.hdf5", 8_000
    words = ["collect", "hopper-tiny", "--policy", str(policy), "--transitions", str(rows), "--out", str(out)]
    code = "import sys; from pspo.collecting import episodes; episodes.SAVE_SECONDS = 0.1\n"
    code += "from pspo.cli.main import main; sys.exit(main(sys.argv[1:]))"
    process = subprocess.Popen([sys.executable, "-c", code, *words, "--quiet"], stderr=subprocess.PIPE)
    kept = out.with_name("a.hdf5.partial")
    until = time.monotonic() + 60
    while not list(kept.glob("episodes-*")) and process.poll() is None and time.monotonic() < until:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not out.exists()
    assert list(kept.glob("episodes-*"))
    collect("hopper-tiny", out, transitions=rows, seed=0, policies=[policy])
    collect("hopper-tiny", tmp_path / "b.hdf5", transitions=rows, seed=0, policies=[policy])
    assert out.read_bytes() == (tmp_path / "b.hdf5").read_bytes()


def test_damaged_episodes_are_reported_and_run_again(policy: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(playing, "SAVE_SECONDS", 0.0)
    out = tmp_path / "a.hdf5"
    with pytest.raises(KeyboardInterrupt):
        collect("hopper-tiny", out, transitions=ROWS, seed=0, policies=[policy], reporter=Reporter(stop_after(4)))
    part = sorted((tmp_path / "a.hdf5.partial").glob("episodes-*"))[0]
    part.write_bytes(part.read_bytes()[:-20])
    messages: list[str] = []
    collect("hopper-tiny", out, transitions=ROWS, seed=0, policies=[policy], reporter=Reporter(message=messages.append))
    assert any("simulated again" in text for text in messages)
    collect("hopper-tiny", tmp_path / "b.hdf5", transitions=ROWS, seed=0, policies=[policy])
    assert out.read_bytes() == (tmp_path / "b.hdf5").read_bytes()


def test_another_command_for_the_same_file_is_refused(policy: Path, tmp_path: Path) -> None:
    out = tmp_path / "a.hdf5"
    with pytest.raises(KeyboardInterrupt):
        collect("hopper-tiny", out, transitions=ROWS, seed=0, policies=[policy], reporter=Reporter(stop_after(2)))
    with pytest.raises(UserError, match=r"another collection \(seed is 0, now 1\)"):
        collect("hopper-tiny", out, transitions=ROWS, seed=1, policies=[policy])
    with pytest.raises(UserError, match=r"another collection \(name is hopper-tiny, now hopper-random\)"):
        collect("hopper-random", out, transitions=ROWS, seed=0)
    first = collect("hopper-tiny", out, transitions=ROWS, seed=0, policies=[policy])
    assert (
        collect("hopper-tiny", out, transitions=ROWS, seed=0, policies=[policy], reporter=Reporter(stop_after(1)))
        == first
    )  # nothing is run
    before = out.read_bytes()
    with pytest.raises(UserError, match="exists already and is not the result of this command"):
        collect("hopper-tiny", out, transitions=ROWS + 1, seed=0, policies=[policy])
    assert out.read_bytes() == before
    (tmp_path / "mine.hdf5").write_text("something else")
    with pytest.raises(UserError, match="exists already"):
        collect("hopper-tiny", tmp_path / "mine.hdf5", transitions=ROWS, seed=0, policies=[policy])


def test_two_processes_do_not_collect_the_same_file(policy: Path, tmp_path: Path) -> None:
    (tmp_path / "a.hdf5.partial").mkdir()
    with open(tmp_path / "a.hdf5.partial" / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(UserError, match="another process is collecting"):
            collect("hopper-tiny", tmp_path / "a.hdf5", transitions=ROWS, seed=0, policies=[policy])
    assert (
        collect(
            "hopper-tiny", tmp_path / "a.hdf5", transitions=ROWS, seed=0, policies=[policy], reporter=Reporter()
        ).rows
        == ROWS
    )


def test_a_full_disk_leaves_no_output_file(policy: Path, tmp_path: Path, monkeypatch) -> None:
    def full(*_) -> None:
        raise OSError(28, "No space left on device")

    out = tmp_path / "a.hdf5"
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        with pytest.raises((UserError, OSError), match="No space left"):
            collect("hopper-tiny", out, transitions=ROWS, seed=0, policies=[policy])
    assert [path.name for path in tmp_path.iterdir()] == ["a.hdf5.partial"]
    assert collect("hopper-tiny", out, transitions=ROWS, seed=0, policies=[policy]).rows == ROWS
