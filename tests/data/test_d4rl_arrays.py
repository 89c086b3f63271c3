"""Dictionaries with D4RL names: what is missing is derived with a note, or refused in one sentence."""

from __future__ import annotations

import numpy as np
import pytest

from pspo.core.errors import UserError
from pspo.data import Dataset
from tests.data.made_up_data import clean_d4rl, clean_fields


def test_complete_arrays_need_no_notes() -> None:
    dataset = Dataset.from_arrays({**clean_d4rl(), "name": "logs", "task": "liquidation"})
    assert dataset.hash == Dataset(**clean_fields(), task="liquidation").hash
    assert (dataset.name, dataset.task, dataset.notes) == ("logs", "liquidation", ())


def test_next_observations_are_derived_inside_episodes_only() -> None:
    arrays = clean_d4rl(rows=14)  # row 5 is a terminal, row 11 a time-out, row 13 the last
    del arrays["next_observations"]
    dataset = Dataset.from_arrays(arrays)
    kept = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12]
    np.testing.assert_array_equal(dataset.obs, arrays["observations"][kept])
    np.testing.assert_array_equal(dataset.reward, arrays["rewards"][kept])
    assert np.flatnonzero(dataset.terminal).tolist() == [5]
    assert np.flatnonzero(dataset.timeout).tolist() == [10, 11]
    assert np.flatnonzero(~dataset.next_known).tolist() == [5]
    follows = np.add(kept, 1)
    follows[5] = 5  # a placeholder
    np.testing.assert_array_equal(dataset.next_obs, arrays["observations"][follows])
    (note,) = dataset.notes
    assert "keep their reward (1 in all)" in note
    assert "dropped (2 in all)" in note


def test_episodes_of_one_row_are_kept_if_terminal_and_dropped_if_not() -> None:
    arrays = clean_d4rl(rows=6)
    del arrays["next_observations"]
    arrays["terminals"] = np.array([0, 0, 1, 1, 0, 0])
    arrays["timeouts"] = np.array([1, 0, 0, 0, 0, 0])
    dataset = Dataset.from_arrays(arrays)
    np.testing.assert_array_equal(dataset.obs, arrays["observations"][[1, 2, 3, 4]])
    assert dataset.terminal.tolist() == [False, True, True, False]
    assert dataset.timeout.tolist() == [False, False, False, True]
    assert dataset.episode_lengths().tolist() == [2, 1, 1]


def test_single_decisions_need_no_next_state() -> None:
    arrays = clean_d4rl()
    del arrays["next_observations"]
    dataset = Dataset.from_arrays({**arrays, "terminals": np.ones(60)})
    assert dataset.size == 60
    assert not dataset.next_known.any()


def test_nothing_to_derive_from_is_an_error() -> None:
    arrays = clean_d4rl()
    del arrays["next_observations"]
    with pytest.raises(UserError, match="next states are missing"):
        Dataset.from_arrays({**arrays, "terminals": np.zeros(60), "timeouts": np.ones(60)})


def test_gaps_in_given_next_states_are_filled_kept_or_dropped() -> None:
    arrays = clean_d4rl(rows=24)  # terminals at 5 and 17, time-outs at 11 and 23
    known = np.ones(24, bool)
    known[[3, 5, 11]] = False
    arrays["next_observations"][[3, 5, 11]] = np.nan
    dataset = Dataset.from_arrays({**arrays, "next_known": known})
    assert dataset.size == 23
    np.testing.assert_array_equal(dataset.next_obs[3], arrays["observations"][4])
    assert np.flatnonzero(~dataset.next_known).tolist() == [5]
    assert np.flatnonzero(dataset.timeout).tolist() == [10, 22]  # row 11 is gone
    np.testing.assert_array_equal(dataset.next_obs[16], arrays["next_observations"][17])  # the terminal, known
    assert len(dataset.notes) == 1


def test_terminals_without_a_next_state_need_no_note() -> None:
    arrays = clean_d4rl()
    assert Dataset.from_arrays({**arrays, "next_known": ~arrays["terminals"]}).notes == ()


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


@pytest.mark.parametrize(("rows", "low", "notes"), [(99, -1, 0), (100, 0, 1)])
def test_many_actions_without_a_negative_one_are_fractions(rows: int, low: int, notes: int) -> None:
    action = np.linspace(0, 0.9, rows)[:, None]
    arrays = {"observations": action, "actions": action, "rewards": action[:, 0], "next_observations": action}
    dataset = Dataset.from_arrays(arrays | {"terminals": np.arange(rows) % 10 == 9})
    assert (dataset.action_low.tolist(), dataset.action_high.tolist()) == ([low], [1])
    assert len(dataset.notes) == notes


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
def test_a_misspelt_array_is_never_ignored_silently(right: str, wrong: str) -> None:
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
