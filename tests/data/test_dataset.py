"""The dataset: right types, immutable, episodes that partition the transitions, a hash of everything that counts."""

from __future__ import annotations

import hashlib
from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pspo.core.errors import UserError
from pspo.data import Dataset
from pspo.data.dataset import HASHED_ARRAYS
from tests.data.made_up_data import clean_fields, datasets


def test_numbers_of_any_kind_become_float32_and_flags_become_bool() -> None:
    fields = clean_fields()
    fields["obs"] = fields["obs"].astype(np.float64)
    fields["reward"] = np.arange(60)
    fields["terminal"] = fields["terminal"].astype(np.float32)
    fields["timeout"] = fields["timeout"].astype(int).tolist()
    fields["next_obs"] = np.asfortranarray(fields["next_obs"])
    dataset = Dataset(**fields)
    for field in ("obs", "action", "reward", "next_obs", "action_low", "action_high"):
        assert getattr(dataset, field).dtype == np.float32
        assert getattr(dataset, field).flags.c_contiguous
    assert dataset.terminal.dtype == dataset.timeout.dtype == bool
    assert dataset.hash == Dataset(**{**clean_fields(), "reward": fields["reward"]}).hash


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("reward", np.zeros(59), ["'reward'", "(59,)", "(60, 3)"]),
        ("reward", np.zeros((60, 1)), ["'reward'", "(60, 1)"]),
        ("next_obs", np.zeros((60, 4)), ["'next_obs'", "(60, 4)", "(60, 3)"]),
        ("obs", np.zeros((0, 3)), ["'obs'", "empty", "(0, 3)"]),
        ("action", np.zeros((60, 0)), ["'action'", "empty", "(60, 0)"]),
        ("obs", [[1.0], [1.0, 2.0]], ["'obs'", "rectangular"]),
        ("action", np.full((60, 2), "up"), ["'action'", "real numbers"]),
        ("obs", np.zeros((60, 3), complex), ["'obs'", "real numbers"]),
        ("terminal", np.r_[np.zeros(59), 2.0], ["'terminal'", "2.0", "row 59"]),
        ("timeout", np.r_[np.zeros(59), np.nan], ["'timeout'", "nan", "row 59"]),
        ("action_low", np.array([-1.0, 1.0]), ["'action_low'", "column 1"]),
        ("action_high", np.array([1.0, np.inf]), ["'action_high'", "inf", "column 1"]),
        ("action_high", np.ones(3), ["'action_high'", "(3,)", "(60, 2)"]),
        ("next_known", np.ones(59), ["'next_known'", "(59,)", "(60, 3)"]),
        ("next_known", np.arange(60) != 7, ["'next_known'", "row 7", "not terminal"]),
    ],
)
def test_wrong_input_is_refused_in_one_sentence(field: str, value: object, words: list[str]) -> None:
    with pytest.raises(UserError) as caught:
        Dataset(**{**clean_fields(), field: value})
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message


def test_values_that_are_not_finite_can_be_loaded() -> None:
    fields = clean_fields()
    fields["obs"] = fields["obs"].astype(np.float64)
    fields["obs"][3, 1] = np.nan
    fields["obs"][4, 1] = 1e300  # finite until it becomes float32
    fields["reward"][5] = np.inf
    dataset = Dataset(**fields)
    assert np.isnan(dataset.obs[3, 1])
    assert np.isinf(dataset.obs[4, 1])
    assert np.isinf(dataset.reward[5])


def test_a_terminal_on_the_time_limit_is_a_terminal() -> None:
    fields = clean_fields()
    fields["timeout"][5] = True
    dataset = Dataset(**fields)
    assert dataset.terminal[5]
    assert not dataset.timeout[5]


def test_a_dataset_is_immutable() -> None:
    fields = clean_fields()
    view_of_a_writeable_array = fields["obs"].view()
    view_of_a_writeable_array.setflags(write=False)
    dataset = Dataset(**{**fields, "obs": view_of_a_writeable_array})
    before = dataset.obs.copy()
    fields["obs"][:] = 0
    np.testing.assert_array_equal(dataset.obs, before)
    for field in (*HASHED_ARRAYS, "episode_end", "episode_starts"):
        with pytest.raises(ValueError, match="read-only"):
            getattr(dataset, field)[0] = 0
    with pytest.raises(FrozenInstanceError):
        dataset.name = "other"  # type: ignore[misc]


def test_arrays_that_are_already_safe_are_shared() -> None:
    dataset = Dataset(**clean_fields())
    assert replace(dataset, name="other").obs is dataset.obs


@given(datasets())
def test_episodes_partition_the_transitions(dataset: Dataset) -> None:
    rows = np.arange(dataset.size)
    episodes = dataset.episodes()
    np.testing.assert_array_equal(np.concatenate([rows[episode] for episode in episodes]), rows)
    for episode in episodes:
        assert dataset.episode_end[episode][-1]
        assert not dataset.episode_end[episode][:-1].any()
    assert dataset.episode_starts.tolist() == [episode.start for episode in episodes]
    assert dataset.episode_lengths().tolist() == [episode.stop - episode.start for episode in episodes]
    assert dataset.ages().tolist() == [age for episode in episodes for age in range(episode.stop - episode.start)]
    sums = [dataset.reward[episode].astype(np.float64).sum() for episode in episodes]
    np.testing.assert_allclose(dataset.episode_returns(), sums, rtol=1e-12, atol=1e-9)


@given(datasets(), st.floats(0, 1))
def test_returns_to_go_equal_the_definition(dataset: Dataset, gamma: float) -> None:
    returns = dataset.returns_to_go(gamma)
    assert returns.dtype == np.float64
    for episode in dataset.episodes():
        for row in range(episode.start, episode.stop):
            later = dataset.reward[row : episode.stop].astype(np.float64)
            naive = sum(reward * gamma**step for step, reward in enumerate(later))
            assert returns[row] == pytest.approx(naive, rel=1e-9, abs=1e-9)


def test_a_nan_reward_stays_visible_and_within_its_episode() -> None:
    fields = clean_fields()
    fields["reward"][8] = np.nan  # the second episode is rows 6 to 11
    dataset = Dataset(**fields)
    assert np.flatnonzero(np.isnan(dataset.returns_to_go(0.9))).tolist() == [6, 7, 8]
    assert np.flatnonzero(np.isnan(dataset.episode_returns())).tolist() == [1]
    assert np.isnan(dataset.summary()["return_mean"])


@given(datasets(), st.data())
def test_the_hash_notices_any_single_change(dataset: Dataset, data: st.DataObject) -> None:
    field = data.draw(st.sampled_from(HASHED_ARRAYS))
    changed = getattr(dataset, field).copy()
    place = data.draw(st.sampled_from(list(np.ndindex(changed.shape))))
    if field == "timeout" and dataset.terminal[place]:
        return  # a time-out on a terminal row is cleared, so there is no change to notice
    if changed.dtype == bool:
        changed[place] = not changed[place]
    else:
        away = np.inf if field == "action_high" else -np.inf  # keeps the bounds in order
        changed[place] = np.nextafter(changed[place], np.float32(away))
    assert replace(dataset, **{field: changed}).hash != dataset.hash


# Terminal rows whose next state was never logged


def test_an_unknown_next_state_is_one_placeholder_and_changes_the_hash() -> None:
    fields = clean_fields()
    known = np.ones(60, bool)
    known[17] = False
    dataset = Dataset(**fields, next_known=known)
    np.testing.assert_array_equal(dataset.next_obs[17], fields["obs"][17])
    np.testing.assert_array_equal(dataset.next_obs[known], fields["next_obs"][known])
    fields["next_obs"][17] = 99
    assert Dataset(**fields, next_known=known).hash == dataset.hash
    fields["next_obs"][17] = fields["obs"][17]
    assert Dataset(**fields).hash != dataset.hash
    assert dataset.summary()["without_next_state"] == 1


def test_the_hash_of_ordinary_data_has_not_changed() -> None:
    """Caches, manifests and results name it."""
    dataset = Dataset(**clean_fields())
    expected = hashlib.sha256(b"task=None\n")
    for field in HASHED_ARRAYS:
        array = getattr(dataset, field)
        expected.update(f"{field} {array.dtype.str} {array.shape}\n".encode() + array.tobytes())
    assert dataset.hash == expected.hexdigest()
    assert replace(dataset, next_known=np.ones(60)).hash == dataset.hash


def test_the_hash_covers_the_task_and_the_shape_but_not_the_name() -> None:
    dataset = Dataset(**clean_fields())
    assert replace(dataset, name="other", notes=("read by hand.",)).hash == dataset.hash
    assert replace(dataset, task="liquidation").hash != dataset.hash
    wide = replace(dataset, obs=np.zeros((60, 2)), next_obs=np.zeros((60, 2)))
    narrow = replace(dataset, obs=np.zeros((60, 1)), next_obs=np.zeros((60, 1)))
    assert wide.hash != narrow.hash


@given(datasets().filter(lambda dataset: dataset.size > 1), st.floats(0.001, 0.999), st.integers(0, 99))
def test_a_split_partitions_the_transitions_and_is_reproducible(dataset: Dataset, fraction: float, seed: int) -> None:
    train, holdout = dataset.split(fraction, seed)
    assert len(train) >= 1
    assert len(holdout) >= 1
    assert sorted([*train, *holdout]) == list(range(dataset.size))
    for once, again in zip((train, holdout), dataset.split(fraction, seed), strict=True):
        np.testing.assert_array_equal(once, again)


def test_a_split_depends_on_the_seed_and_obeys_the_fraction() -> None:
    dataset = Dataset(**clean_fields())
    assert len(dataset.split(0.1, seed=0)[1]) == 6
    assert dataset.split(0.1, seed=0)[1].tolist() != dataset.split(0.1, seed=1)[1].tolist()


def test_impossible_requests_are_refused() -> None:
    dataset = Dataset(**clean_fields())
    with pytest.raises(UserError, match="fraction"):
        dataset.split(1.0, seed=0)
    with pytest.raises(UserError, match="one transition"):
        Dataset(**clean_fields(rows=1)).split(0.5, seed=0)
    with pytest.raises(UserError, match="discount"):
        dataset.returns_to_go(1.5)


def test_the_summary_counts() -> None:
    dataset = Dataset(**clean_fields())
    summary = dataset.summary()
    expected = {"transitions": 60, "episodes": 10, "terminals": 5, "timeouts": 5, "obs_dim": 3, "action_dim": 2}
    assert {key: summary[key] for key in expected} == expected
    assert summary["hash"] == dataset.hash[:12]
    assert summary["return_mean"] == pytest.approx(float(dataset.reward.sum()) / 10, rel=1e-5)
    assert summary["return_min"] <= summary["return_mean"] <= summary["return_max"]
    assert summary["reward_max"] == dataset.reward.max()
