"""The online learner: resuming gives the same learner; its policies and experience become datasets."""

from __future__ import annotations

import json
from pathlib import Path

import jax
import numpy as np
import pytest

from pspo.collecting import collect, learner, sac
from pspo.collecting.behaviour import load_behaviour
from pspo.collecting.experience import Experience
from pspo.core import checkpoint
from pspo.core.errors import Diverged, UserError
from pspo.core.files import read_arrays, write_arrays
from pspo.core.progress import Reporter, silent
from pspo.envs.mujoco import hopper_terminated

pytest.importorskip("mujoco", reason="needs the extra pspo[mujoco]")
h5py = pytest.importorskip("h5py", reason="needs h5py")

SETTINGS = {
    "width": 8,
    "batch": 16,
    "chunk": 20,
    "start_steps": 60,
    "evaluate_every": 100,
    "evaluate_episodes": 1,
    "medium_score": -1000.0,
}
CONFIG = sac.Config(**SETTINGS)
STEPS = 200


def learn(folder: Path, progress=silent, message=print, seed: int = 0, steps: int = STEPS) -> learner.LearnerResult:
    folder.mkdir(exist_ok=True)
    options = {"steps": steps, "seed": seed, "until_medium": False, "folder": folder}
    return learner.learn("hopper", CONFIG, **options, reporter=Reporter(progress, message))


def last_state(folder: Path) -> learner.LearnerCheckpoint:
    like = learner.LearnerCheckpoint(sac.init(CONFIG, 11, 3, jax.random.PRNGKey(0)), jax.numpy.int32(0))
    newest = checkpoint.load_newest(folder / "learner", like, print)
    assert newest
    return newest[1]


def same_experience(left: Experience, right: Experience) -> None:
    assert left.size == right.size
    for name, array in left.arrays().items():
        np.testing.assert_array_equal(array, right.arrays()[name], err_msg=name)


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> tuple[Path, learner.LearnerResult]:
    folder = tmp_path_factory.mktemp("whole")
    return folder, learn(folder)


class Stop(Exception):
    pass


def stop_at(step: int):
    def progress(stage: str, done: int, total: int, numbers: dict) -> None:
        if stage == "learning" and done >= step:
            raise Stop

    return progress


@pytest.mark.parametrize("step", [40, 60, 80, 120, 140])
def test_a_resumed_learner_is_equal_bit_for_bit(whole, step: int, tmp_path: Path, monkeypatch) -> None:
    """Learner, experience and the episode that was open: as if nothing had happened."""
    monkeypatch.setattr(learner, "CHECKPOINT_SECONDS", 0.0)
    messages: list[str] = []
    with pytest.raises(Stop):
        learn(tmp_path / "a", progress=stop_at(step))
    again = learn(tmp_path / "a", message=messages.append)
    assert messages == [f"resuming the learner at step {step}"]
    same_experience(again.experience, whole[1].experience)
    for left, right in zip(
        jax.tree.leaves(last_state(tmp_path / "a")), jax.tree.leaves(last_state(whole[0])), strict=True
    ):
        np.testing.assert_array_equal(left, right)


def test_another_seed_gives_another_learner(whole, tmp_path: Path) -> None:
    other = learn(tmp_path / "a", steps=40, seed=1)
    assert not np.allclose(other.experience.obs[0], whole[1].experience.obs[0])


def test_experience_holds_true_transitions_and_true_terminals(whole) -> None:
    experience = whole[1].experience
    rows = experience.arrays()
    assert len(rows["rewards"]) == STEPS
    np.testing.assert_array_equal(hopper_terminated(None, None, rows["next_observations"]), rows["terminals"])
    inside = np.flatnonzero(~(rows["terminals"] | rows["timeouts"]))
    np.testing.assert_array_equal(rows["next_observations"][inside], rows["observations"][inside + 1])
    assert rows["terminals"].sum() > 3
    # Before the start, actions come from the uniform policy; after it from the actor.
    assert np.abs(rows["actions"][:60]).max() > 0.9
    assert len(np.unique(rows["actions"][:60], axis=0)) == 60  # every chunk has its own noise
    updates = int(last_state(whole[0]).sac.updates)
    assert updates == STEPS - 60  # one per step


def test_an_episode_that_the_simulator_does_not_repeat_is_cut(whole, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(learner, "CHECKPOINT_SECONDS", 0.0)
    with pytest.raises(Stop):
        learn(tmp_path / "a", progress=stop_at(80))
    path = sorted((tmp_path / "a").glob("experience-*"))[-1]
    arrays, metadata = read_arrays(path)
    assert not arrays["terminal"][-1]
    arrays["next_obs"][-1] += 1e-3  # as if simulated on another machine
    write_arrays(path, arrays, metadata)
    messages: list[str] = []
    for stop in (120, 140):  # the cut is permanent
        with pytest.raises(Stop):
            learn(tmp_path / "a", progress=stop_at(stop), message=messages.append)
    rows = learn(tmp_path / "a", message=messages.append).experience.arrays()
    assert sum("does not repeat" in text for text in messages) == 1
    assert rows["timeouts"][79]
    assert len(rows["rewards"]) == STEPS
    np.testing.assert_array_equal(rows["actions"][:80], whole[1].experience.action[:80])


def test_a_learner_that_diverges_raises(tmp_path: Path, monkeypatch) -> None:
    update = sac.update_many

    def broken(*arguments):
        state, metrics = update(*arguments)
        return state, metrics | {"critic_loss": np.float32("nan")}

    monkeypatch.setattr(sac, "update_many", broken)
    with pytest.raises(Diverged, match=r"by step 80: .*--set lr="):
        learn(tmp_path / "a")


# Datasets from a learner


def rows_in(path: Path) -> int:
    with h5py.File(path) as file:
        return len(file["rewards"])


def test_medium_replay_is_the_experience_up_to_the_medium_policy(whole, tmp_path: Path) -> None:
    """Here any score is medium, so that the first evaluation, after 100 steps, is the end."""
    out = tmp_path / "hopper-medium-replay.hdf5"
    summary = collect("hopper-medium-replay", out, steps=STEPS, settings=SETTINGS)
    assert summary.rows == rows_in(out) == 100
    with h5py.File(out) as file:
        np.testing.assert_array_equal(file["actions"], whole[1].experience.action[:100])
        assert file["terminals"][-1] or file["timeouts"][-1]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "hopper-medium-replay.hdf5",
        "hopper-medium-replay.policy-medium.npz",
    ]
    # The policy file is one that collecting takes.
    policy = tmp_path / "hopper-medium-replay.policy-medium.npz"
    assert collect("hopper-medium", tmp_path / "m.hdf5", transitions=50, policies=[policy]).rows == 50


def test_medium_expert_is_half_of_each_policy(whole, tmp_path: Path) -> None:
    out = tmp_path / "me.hdf5"
    words = {"transitions": 60, "steps": STEPS, "settings": SETTINGS}
    with pytest.raises(Stop):
        collect("hopper-medium-expert", out, **words, reporter=Reporter(stop_at(STEPS)))
    collect("hopper-medium-expert", out, **words)
    medium, expert = tmp_path / "me.policy-medium.npz", tmp_path / "me.policy-expert.npz"
    final = whole[1].policies["expert"]
    for name, array in load_behaviour(expert, 11, 3)[0].arrays().items():
        np.testing.assert_array_equal(array, final.arrays()[name])
    assert medium.read_bytes() != expert.read_bytes()
    collect("hopper-medium-expert", tmp_path / "files.hdf5", transitions=60, policies=[medium, expert])
    with h5py.File(out) as left, h5py.File(tmp_path / "files.hdf5") as right:
        for name in left:
            np.testing.assert_array_equal(left[name], right[name])


def test_too_few_steps_for_medium_are_refused_and_more_steps_continue(tmp_path: Path) -> None:
    out, settings = tmp_path / "m.hdf5", SETTINGS | {"medium_score": 1000.0}
    words = {"transitions": 30, "settings": settings}
    with pytest.raises(UserError, match=r"100 steps were not enough .* 1000: give the same command with more --steps"):
        collect("hopper-medium", out, **words, steps=100)
    assert not out.exists()
    messages: list[str] = []
    with pytest.raises(UserError, match="140 steps were not enough"):
        collect("hopper-medium", out, **words, steps=140, reporter=Reporter(message=messages.append))
    assert messages == ["resuming the learner at step 100"]
    with pytest.raises(UserError, match=r"another collection \(steps is 140, now 100\)"):
        collect("hopper-medium", out, **words, steps=100)


def test_collections_of_version_0_1_are_resumed_and_recognised(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(learner, "CHECKPOINT_SECONDS", 0.0)
    out, options = tmp_path / "a.hdf5", {"steps": 100, "settings": SETTINGS}
    with pytest.raises(Stop):
        collect("hopper-full-replay", out, **options, reporter=Reporter(stop_at(80)))
    folder = tmp_path / "a.hdf5.partial"
    request = json.loads((folder / "request.json").read_text())
    new = request["learner"]
    request["learner"] = {{"lr": "rate", "tau": "target_rate"}.get(name, name): value for name, value in new.items()}
    (folder / "request.json").write_text(json.dumps(request))
    for path in (folder / "learner").glob("*.safetensors"):
        arrays, metadata = read_arrays(path)
        write_arrays(path, {name.replace(".sac.params", ".sac.learned"): a for name, a in arrays.items()}, metadata)
    messages: list[str] = []
    first = collect("hopper-full-replay", out, **options, reporter=Reporter(message=messages.append))
    assert messages == ["resuming the learner at step 80"]
    with h5py.File(out, "a") as file:
        file.attrs["collected"] = json.dumps(request)
    assert collect("hopper-full-replay", out, **options) == first


def test_full_replay_is_the_whole_experience(whole, tmp_path: Path) -> None:
    out = tmp_path / "full.hdf5"
    assert collect("hopper-full-replay", out, steps=STEPS, settings=SETTINGS).rows == STEPS
    with h5py.File(out) as file:
        np.testing.assert_array_equal(file["rewards"], whole[1].experience.reward)
