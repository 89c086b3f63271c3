"""Dictionaries with D4RL names: what is missing is derived and said, or refused in one sentence."""

from __future__ import annotations

import numpy as np
import pytest
from made_up_data import clean_d4rl, clean_fields

from pspo.data import Dataset
from pspo.errors import UserError


def test_complete_arrays_need_no_notes() -> None:
    dataset = Dataset.from_arrays({**clean_d4rl(), "name": "logs", "task": "liquidation"})
    assert dataset.hash == Dataset(**clean_fields(), task="liquidation").hash
    assert (dataset.name, dataset.task, dataset.notes) == ("logs", "liquidation", ())


def test_next_observations_are_derived_inside_episodes_only() -> None:
    arrays = clean_d4rl(rows=14)  # row 5 is a terminal, row 11 a time-out, row 13 the last
    del arrays["next_observations"]
    dataset = Dataset.from_arrays(arrays)
    kept = [0, 1, 2, 3, 4, 6, 7, 8, 9, 10, 12]
    np.testing.assert_array_equal(dataset.obs, arrays["observations"][kept])
    np.testing.assert_array_equal(dataset.next_obs, arrays["observations"][np.add(kept, 1)])
    np.testing.assert_array_equal(dataset.reward, arrays["rewards"][kept])
    assert not dataset.terminal.any()
    assert dataset.episode_lengths().tolist() == [5, 5, 1]
    (note,) = dataset.notes
    assert "3 in all" in note
    assert "1 of them terminal" in note


def test_episodes_of_one_row_leave_nothing_behind() -> None:
    arrays = clean_d4rl(rows=6)
    del arrays["next_observations"]
    arrays["terminals"] = np.array([0, 0, 1, 1, 0, 1])
    dataset = Dataset.from_arrays(arrays)
    np.testing.assert_array_equal(dataset.obs, arrays["observations"][[0, 1, 4]])
    assert dataset.episode_lengths().tolist() == [2, 1]


def test_nothing_to_derive_from_is_an_error() -> None:
    arrays = clean_d4rl()
    del arrays["next_observations"]
    arrays["terminals"] = np.ones(60)
    with pytest.raises(UserError, match="'next_observations' is missing"):
        Dataset.from_arrays(arrays)


def test_timeouts_may_be_left_out() -> None:
    arrays = clean_d4rl()
    del arrays["timeouts"]
    assert not Dataset.from_arrays(arrays).timeout.any()


def without_bounds(scale: float) -> dict[str, np.ndarray]:
    arrays = clean_d4rl()
    del arrays["action_low"], arrays["action_high"]
    return {**arrays, "actions": arrays["actions"] * scale}


def test_bounds_default_to_one_when_all_actions_fit() -> None:
    dataset = Dataset.from_arrays(without_bounds(scale=1))
    assert dataset.action_low.tolist() == [-1, -1]
    assert dataset.action_high.tolist() == [1, 1]
    assert dataset.notes == ()


def test_bounds_come_from_the_data_otherwise() -> None:
    arrays = without_bounds(scale=7)
    arrays["actions"][3] = np.nan  # must not leak into the bounds
    dataset = Dataset.from_arrays(arrays)
    np.testing.assert_array_equal(dataset.action_low, np.nanmin(arrays["actions"], axis=0))
    np.testing.assert_array_equal(dataset.action_high, np.nanmax(arrays["actions"], axis=0))
    assert len(dataset.notes) == 1


def test_bounds_of_a_constant_column_are_not_invented() -> None:
    arrays = without_bounds(scale=7)
    arrays["actions"][:, 1] = 4
    with pytest.raises(UserError, match="column 1"):
        Dataset.from_arrays(arrays)


def test_one_number_bounds_every_column() -> None:
    dataset = Dataset.from_arrays({**clean_d4rl(), "action_low": -2, "action_high": 3.0})
    assert dataset.action_low.tolist() == [-2, -2]
    assert dataset.action_high.tolist() == [3, 3]


def test_half_a_pair_of_bounds_is_refused() -> None:
    arrays = clean_d4rl()
    del arrays["action_low"]
    with pytest.raises(UserError, match="only 'action_high'"):
        Dataset.from_arrays(arrays)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [("observations", "obs"), ("rewards", "reward"), ("timeouts", "timeout"), ("terminals", "dones")],
)
def test_a_misspelt_array_is_never_ignored_in_silence(right: str, wrong: str) -> None:
    arrays = clean_d4rl()
    arrays[wrong] = arrays.pop(right)
    with pytest.raises(UserError) as caught:
        Dataset.from_arrays(arrays)
    assert f"'{right}'" in str(caught.value)
    assert wrong in str(caught.value)
    assert "\n" not in str(caught.value)


def test_other_arrays_are_noted() -> None:
    (note,) = Dataset.from_arrays({**clean_d4rl(), "infos/qpos": np.zeros(60)}).notes
    assert "'infos/qpos'" in note


def test_different_lengths_name_both_shapes() -> None:
    with pytest.raises(UserError, match=r"'rewards' has shape \(7,\) but 'observations' has shape \(60, 3\)"):
        Dataset.from_arrays({**clean_d4rl(), "rewards": np.zeros(7)})
