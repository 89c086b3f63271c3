"""Each check finds the defect that was planted, at the row where it was planted, and nothing in clean data."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pspo.core.errors import UserError
from pspo.data import Dataset, Finding, check, check_source, require_trainable
from tests.data.made_up_data import clean_d4rl, clean_fields

Fields = dict[str, Any]


def findings_after(spoil: Callable[[Fields], None], rows: int = 60) -> list[Finding]:
    fields = clean_fields(rows)
    spoil(fields)
    findings = check(Dataset(**fields))
    for finding in findings:
        assert "\n" not in finding.message
        assert finding.message.endswith(".")
        if finding.row is not None:
            assert str(finding.row) in finding.message
    return findings


def only(findings: list[Finding]) -> Finding:
    assert len(findings) == 1, findings
    return findings[0]


@given(st.integers(0, 1000))
@settings(deadline=None)  # the first example imports SciPy, which takes seconds on a busy machine
def test_clean_data_are_left_in_peace(seed: int) -> None:
    dataset = Dataset(**clean_fields(seed=seed))
    assert check(dataset) == []
    require_trainable(dataset)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("field", ["obs", "action", "reward", "next_obs"])
def test_values_that_are_not_finite(field: str, value: float) -> None:
    def spoil(fields: Fields) -> None:
        fields[field].reshape(60, -1)[[17, 40], -1] = value

    errors = [finding for finding in findings_after(spoil) if finding.level == "error"]
    finding = only(errors)
    assert (finding.code, finding.row) == ("not-finite", 17)
    assert finding.message.startswith(f"{field} is {value} at row 17")
    assert "values affected: 2" in finding.message
    assert field == "reward" or f"column {clean_fields()[field].shape[1] - 1}" in finding.message


def test_every_column_that_is_not_finite_is_named() -> None:
    def spoil(fields: Fields) -> None:
        fields["obs"][30, 0] = fields["obs"][17, 2] = np.nan

    message = findings_after(spoil)[0].message
    assert "columns 0, 2" in message
    assert "row 17, column 2" in message


@pytest.mark.parametrize("value", [1.5, -1.01])
def test_actions_out_of_bounds(value: float) -> None:
    def spoil(fields: Fields) -> None:
        fields["action"][23:25, 1] = value

    finding = only(findings_after(spoil))
    assert (finding.level, finding.code, finding.row) == ("error", "action-out-of-bounds", 23)
    assert f"is {value} at row 23, column 1" in finding.message
    assert "[-1.0, 1.0]" in finding.message
    assert "rows affected: 2" in finding.message


def test_rounding_at_the_bounds_is_forgiven() -> None:
    def spoil(fields: Fields) -> None:
        fields["action"][23, 1] = np.nextafter(np.float32(1), np.float32(2))

    assert findings_after(spoil) == []


def test_a_break_within_an_episode() -> None:
    def spoil(fields: Fields) -> None:
        fields["next_obs"][[13, 31], 2] += 0.01

    finding = only(findings_after(spoil))
    assert (finding.level, finding.code, finding.row) == ("warning", "broken-episode", 13)
    assert "rows affected: 2" in finding.message


def test_rounding_within_an_episode_is_forgiven() -> None:
    def spoil(fields: Fields) -> None:
        fields["next_obs"] *= np.float32(1 + 1e-6)

    assert findings_after(spoil) == []


def test_an_unmarked_episode_end_is_reported() -> None:
    def spoil(fields: Fields) -> None:
        fields["timeout"][11] = False

    assert (only(findings_after(spoil)).code, only(findings_after(spoil)).row) == ("broken-episode", 11)


def test_ends_that_never_occur() -> None:
    def no_terminals(fields: Fields) -> None:
        fields["timeout"] |= fields["terminal"]
        fields["terminal"][:] = False

    def no_timeouts(fields: Fields) -> None:
        fields["terminal"] |= fields["timeout"]
        fields["timeout"][:] = False

    def neither(fields: Fields) -> None:
        fields["terminal"][:] = fields["timeout"][:] = False
        fields["next_obs"][:-1] = fields["obs"][1:]

    assert only(findings_after(no_terminals)).code == "no-terminals"
    assert only(findings_after(no_timeouts)).code == "no-timeouts"
    assert only(findings_after(neither)).code == "one-episode"


def test_constant_columns() -> None:
    def spoil(fields: Fields) -> None:
        fields["obs"][:, 1:] = fields["next_obs"][:, 1:] = 0
        fields["action"][:, 0] = 0.5
        fields["reward"][:] = 1

    obs, action, reward = findings_after(spoil)
    assert [finding.level for finding in (obs, action, reward)] == ["warning"] * 3
    assert (obs.code, action.code, reward.code) == ("constant-obs", "constant-action", "constant-reward")
    assert "columns 1, 2" in obs.message
    assert "column 0 is 0.5" in action.message


def test_states_that_never_move() -> None:
    def spoil(fields: Fields) -> None:
        fields["next_obs"][:] = fields["obs"]

    assert [finding.code for finding in findings_after(spoil)] == ["broken-episode", "nothing-moves"]


def without_next_states(**spoilt: Any) -> list[Finding]:
    """The next state of every terminal is unknown; `spoilt` replaces fields."""
    fields = clean_fields()
    return check(Dataset(**{**fields, "next_known": ~fields["terminal"], **spoilt}))


def test_unknown_next_states_are_left_in_peace() -> None:
    assert without_next_states() == []


def test_a_placeholder_is_not_reported_for_errors_of_the_state() -> None:
    obs = clean_fields()["obs"]
    obs[17, 1] = np.nan  # a terminal, whose placeholder repeats it
    assert [finding.message.split()[0] for finding in without_next_states(obs=obs) if finding.row == 17] == ["obs"]


def test_placeholders_do_not_count_as_states_that_never_move() -> None:
    fields = clean_fields()
    everything = Dataset(**{**fields, "terminal": np.ones(60), "timeout": np.zeros(60), "next_known": np.zeros(60)})
    assert "nothing-moves" not in [finding.code for finding in check(everything)]
    still = np.where(fields["terminal"][:, None], 7, fields["obs"])
    codes = [finding.code for finding in without_next_states(next_obs=still)]
    assert "nothing-moves" in codes


def test_duplicate_rows() -> None:
    def spoil(fields: Fields) -> None:
        for copy, original in ((35, 11), (47, 23), (59, 11)):  # all are time-outs, so no episode breaks inside
            for field in ("obs", "action", "reward", "next_obs"):
                fields[field][copy] = fields[field][original]
        fields["next_obs"][[34, 46, 58]] = fields["obs"][[35, 47, 59]]

    finding = only(findings_after(spoil))
    assert (finding.level, finding.code, finding.row) == ("warning", "duplicate-rows", 35)
    assert "row 35 repeats row 11" in finding.message
    assert "copies in all: 3" in finding.message


@pytest.mark.parametrize("differs_in", ["obs", "action", "reward", "next_obs", "terminal", "timeout"])
def test_rows_that_differ_in_one_value_are_no_duplicates(differs_in: str) -> None:
    fields = {field: values[[0, 0]] for field, values in clean_fields().items() if not field.startswith("action_")}
    different = fields[differs_in].reshape(2, -1)
    different[1, -1] = 1 - different[1, -1]
    dataset = Dataset(**fields, action_low=[-9, -9], action_high=[9, 9])
    assert "duplicate-rows" not in [finding.code for finding in check(dataset)]


def test_what_was_assumed_while_reading_is_a_warning() -> None:
    arrays = clean_d4rl()
    del arrays["next_observations"]
    _, findings = check_source(arrays)
    assert [finding.code for finding in findings] == ["note"]


def test_a_single_row_can_be_checked() -> None:
    assert [finding.code for finding in check(Dataset(**clean_fields(rows=1)))] == ["too-few", "one-episode"]


def test_a_file_with_wrong_shapes_is_a_finding(tmp_path: Path) -> None:
    np.savez(tmp_path / "data.npz", **{**clean_d4rl(), "actions": np.zeros((59, 2))})
    dataset, findings = check_source(tmp_path / "data.npz")
    assert dataset is None
    finding = only(findings)
    assert (finding.level, finding.code) == ("error", "unreadable")
    assert "(59, 2)" in finding.message


def test_a_good_source_comes_with_its_dataset() -> None:
    dataset, findings = check_source(clean_d4rl())
    assert dataset is not None
    assert findings == []


def test_training_is_refused_for_errors_only() -> None:
    fields = clean_fields()
    fields["reward"][:] = 0
    require_trainable(Dataset(**fields))
    fields["reward"][7] = np.nan
    with pytest.raises(UserError, match=r"dataset 'logs' cannot be trained on: reward is nan at row 7"):
        require_trainable(Dataset(**fields, name="logs"))


@pytest.mark.parametrize(
    ("task", "message"), [("hoper", "did you mean 'hopper'"), ("hopper", "name the task that fits, or none")]
)
def test_a_task_that_training_would_refuse_is_an_error(task: str, message: str) -> None:
    data, (finding,) = check_source(clean_d4rl(), task=task)
    assert (data, finding.level) == (None, "error")
    assert message in finding.message
