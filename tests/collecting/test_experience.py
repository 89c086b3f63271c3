"""The replay buffer: only written transitions are sampled, and saved ones are restored exactly."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pspo.collecting.experience import Experience
from pspo.core.errors import UserError


def fill(experience: Experience, upto: int, every: int = 7, sign: float = 1.0) -> None:
    """Transitions whose entries are all their index plus one, so that zero means unwritten; some end episodes."""
    for row in range(experience.size, upto):
        x = sign * (row + 1.0)
        ended = (row % every == every - 1 and row % 2 == 0, row % every == every - 1 and row % 2 == 1)
        experience.add(np.full(2, x), np.full(1, x), x, np.full(2, x), ended)


@given(capacity=st.integers(1, 60), data=st.data())
def test_only_written_transitions_are_sampled(capacity: int, data) -> None:
    experience = Experience(capacity, 2, 1)
    upto = 0
    while upto < capacity:
        upto = data.draw(st.integers(upto + 1, capacity))
        fill(experience, upto)
        rows = experience.sample(np.random.default_rng(data.draw(st.integers(0, 99))), (3, 40))
        number = np.asarray(rows.reward)
        assert number.shape == (3, 40)
        assert (number >= 1).all()
        assert (number <= upto).all()
        for part in (rows.obs, rows.action, rows.next_obs):  # all parts are of the same transition
            np.testing.assert_array_equal(part, np.broadcast_to(number[..., None], np.shape(part)))


def test_all_transitions_are_sampled_equally_often() -> None:
    experience = Experience(1000, 2, 1)
    fill(experience, 20)
    rows = experience.sample(np.random.default_rng(0), (20_000,))
    counts = np.bincount(np.asarray(rows.reward, int), minlength=21)
    assert counts[0] == 0
    np.testing.assert_allclose(counts[1:], 1000, rtol=0.15)


@given(cuts=st.lists(st.integers(1, 50), min_size=1, max_size=5), size=st.integers(0, 50))
def test_saved_transitions_are_restored_exactly(cuts: list[int], size: int, tmp_path_factory) -> None:
    folder = tmp_path_factory.mktemp("experience")
    first = Experience(50, 2, 1)
    for cut in sorted(cuts):
        fill(first, cut)
        first.save(folder)
    again = Experience(60, 2, 1)
    if size > first.size:
        with pytest.raises(UserError, match="lacks transitions"):
            again.restore(folder, size)
        return
    again.restore(folder, size)
    plain = Experience(60, 2, 1)
    fill(plain, size)
    assert vars(again).keys() == vars(plain).keys()
    for name, value in vars(plain).items():
        if name != "saved":
            np.testing.assert_array_equal(getattr(again, name), value, err_msg=name)


def test_transitions_after_the_checkpoint_are_replaced(tmp_path: Path) -> None:
    """Saved up to 30 and 40, resumed at 20, others saved up to 35 and 45: the later ones count."""
    first = Experience(50, 2, 1)
    for upto in (20, 30, 40):
        fill(first, upto)
        first.save(tmp_path)
    second = Experience(50, 2, 1)
    second.restore(tmp_path, 20)
    for upto in (35, 45):
        fill(second, upto, sign=-1.0)
        second.save(tmp_path)
    third = Experience(50, 2, 1)
    third.restore(tmp_path, 45)
    np.testing.assert_array_equal(third.reward, second.reward)
    assert third.reward[30] == -31


def test_damaged_files_are_reported(tmp_path: Path) -> None:
    first = Experience(50, 2, 1)
    fill(first, 10)
    first.save(tmp_path)
    path = next(tmp_path.iterdir())
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(UserError, match="start again"):
        Experience(50, 2, 1).restore(tmp_path, 10)


def test_an_open_episode_is_cut_in_the_dataset() -> None:
    experience = Experience(50, 2, 1)
    fill(experience, 10)  # the first episode ends with row 6
    arrays = experience.arrays()
    assert len(arrays["rewards"]) == 10
    assert (arrays["terminals"].sum(), arrays["timeouts"].tolist()[-1]) == (1, True)
    assert not experience.timeout.any()  # a copy: the learner continues its episode
    assert (experience.episodes, experience.open_start) == (1, 7)
    experience.cut()
    assert (experience.episodes, experience.open_start, experience.timeout[9]) == (2, 10, True)
