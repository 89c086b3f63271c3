"""Names of version 0.1: settings, values, metrics and arrays are read under their new names."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pspo.algorithms import ALGORITHMS, get_algorithm
from pspo.algorithms.epq.algorithm import Config as EPQConfig
from pspo.core import renamed
from pspo.core.config import Bounds, build, keys
from pspo.core.errors import UserError
from pspo.core.renamed import (
    EPQ,
    METRICS,
    REMOVED,
    REMOVED_OF,
    SETTINGS,
    STATE,
    UNUSED_OF,
    VALUES,
    new_array_name,
    new_metrics,
    new_setting,
    new_settings,
)


@dataclass(frozen=True)
class Inner:
    lr: Annotated[float, Bounds(0.0, 1.0)] = 1e-3
    """Learning rate."""


@dataclass(frozen=True)
class Outer:
    tau: Annotated[float, Bounds(0.0, 1.0)] = 0.005
    """Step size of the target networks."""
    rewards: Literal["raw", "std"] = "raw"
    """Unit of rewards."""
    model: Inner = field(default_factory=Inner)


# Settings


@pytest.mark.parametrize(("old", "new"), SETTINGS.items())
def test_an_old_setting_is_renamed_at_any_depth(old: str, new: str) -> None:
    for path in ("", "model.", "a.b."):
        assert new_setting(path + old, 0.5) == (path + new, 0.5)


def test_only_the_last_part_of_a_dotted_name_is_renamed() -> None:
    assert new_setting("trust.width", 3) == ("trust.width", 3)
    assert new_setting("learning_rates", 3) == ("learning_rates", 3)


@pytest.mark.parametrize(("setting", "new"), VALUES.items())
def test_an_old_value_is_renamed_for_its_own_setting_only(setting: tuple[str, str], new: str) -> None:
    name, old = setting
    assert new_setting(f"a.{name}", old) == (f"a.{name}", new)
    assert new_setting("another", old) == ("another", old)
    assert new_setting(name, 3) == (name, 3)


@pytest.mark.parametrize(("name", "value"), REMOVED.items())
def test_a_removed_setting_is_dropped_at_its_neutral_value_only(name: str, value: Any) -> None:
    assert new_setting(name, value) is None
    assert new_setting(f"model.{name}", str(value)) is None
    assert new_setting(name, f"{value:.3f}") is None
    assert new_setting(name, "many") == (name, "many")
    assert new_setting(name, 7) == (name, 7)
    assert new_settings({name: value, "gamma": 0.9}) == {"gamma": 0.9}


def test_tau_of_an_old_epq_run_is_its_support_threshold() -> None:
    old = {"tau": 0.2, "target_rate": 0.005, "critic_rate": 3e-4}
    assert new_settings(old) == {"support_threshold": 0.2, "target_tau": 0.005, "critic_lr": 3e-4}
    assert new_settings({"target_rate": 0.005}) == {"tau": 0.005}
    assert new_settings({"tau": 0.005}) == {"tau": 0.005}
    assert set(EPQ.values()) <= set(keys(EPQConfig))


# Settings given by hand


def test_an_old_name_is_accepted_with_a_warning_that_names_the_new_one() -> None:
    with pytest.warns(UserWarning, match=r"model\.learning_rate is now called model\.lr; .* until version 0\.3"):
        assert build(Outer, {"model.learning_rate": "0.5"}).model.lr == 0.5
    with pytest.warns(UserWarning, match="target_rate is now called tau"):
        assert build(Outer, {"target_rate": 0.1}, {"tau": 0.2}).tau == 0.2


def test_new_names_values_and_neutral_removed_settings_give_no_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert build(Outer, {"tau": 0.1, "rewards": "std", "model.lr": 0.2}) == Outer(0.1, "std", Inner(0.2))
        assert build(Outer, {"policy_wait": 0}, {"policy_wait": "0"}) == Outer()
        assert build(Outer, {"rewards": "spread"}).rewards == "std"


def test_the_value_of_an_old_name_is_checked_like_any_other() -> None:
    with pytest.warns(UserWarning, match="now called tau"), pytest.raises(UserError, match=r"tau=2\.0 is out of range"):
        build(Outer, {"target_rate": 2})


@pytest.mark.parametrize(("name", "value"), REMOVED.items())
def test_a_removed_setting_at_another_value_is_refused_in_one_sentence(name: str, value: float) -> None:
    with pytest.raises(UserError, match=rf"^the setting '{name}' is gone: it is always {value} now, and not 0\.7"):
        build(Outer, {name: 0.7})
    with pytest.raises(UserError, match="is gone"):
        build(Outer, {name: "nan"})


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_no_algorithm_has_a_setting_with_a_removed_name(algo: str) -> None:
    """It would be dropped from a stored run."""
    gone = {*REMOVED, *REMOVED_OF.get(algo, ()), *UNUSED_OF.get(algo, ())}
    assert not {name.rpartition(".")[2] for name in keys(get_algorithm(algo).Config)} & gone


def test_a_setting_is_removed_for_its_own_algorithm_only() -> None:
    assert new_settings({"imitation": 1.0, "alpha": 2.5}, "td3bc") == {"alpha": 2.5}
    assert new_settings({"imitation": 1.0}, "dmg") == {"imitation": 1.0}
    assert build(Outer, {"imitation": "1"}, algo="td3bc") == Outer()
    with pytest.raises(UserError, match=r"^the setting 'imitation' is gone: it is always 1\.0 now, and not 0; "):
        build(Outer, {"imitation": 0}, algo="td3bc")
    with pytest.raises(UserError, match="unknown key 'imitation'"):
        build(Outer, {"imitation": 1.0}, algo="cql")


@pytest.mark.parametrize("name", ["actor_rate", "model.trust", "nonsense"])
def test_an_old_name_that_the_configuration_does_not_have_is_unknown(name: str) -> None:
    with pytest.raises(UserError, match=f"unknown key '{name}'"):
        build(Outer, {name: 5})


def test_old_names_of_epq_given_by_hand_are_its_own() -> None:
    with pytest.warns(UserWarning, match="tau is now called support_threshold"):
        assert build(EPQConfig, {"tau": 0.3}).support_threshold == 0.3
    with pytest.warns(UserWarning, match="target_rate is now called target_tau"):
        assert build(EPQConfig, {"target_rate": 0.01}).target_tau == 0.01


# Metrics and arrays


def test_old_metrics_are_renamed_and_others_are_kept_in_order() -> None:
    row = {"step": 1, **{old: number for number, old in enumerate(METRICS)}, "loss": 0.5}
    assert new_metrics(row) == {"step": 1, **{new: number for number, new in enumerate(METRICS.values())}, "loss": 0.5}
    assert list(new_metrics(row)) == ["step", *METRICS.values(), "loss"]


@pytest.mark.parametrize(("old", "new"), STATE.items())
def test_the_first_field_of_an_array_name_is_renamed(old: str, new: str) -> None:
    for rest in ("", ".actor.net.weights[0]", "[3]", "['x']"):
        assert new_array_name(old + rest) == new + rest


def test_longer_names_and_later_fields_of_arrays_are_kept() -> None:
    for name in (".centres", ".learned_rate", ".chains_", ".agent.learned.actor", "centre", ""):
        assert new_array_name(name) == name


# Properties

last_parts = st.sampled_from(sorted({*SETTINGS, *SETTINGS.values(), *EPQ.values(), "gamma", "width"}))
names = st.builds(lambda path, last: path + last, st.sampled_from(["", "model.", "a.trust."]), last_parts)
values = st.one_of(st.floats(allow_nan=False), st.booleans(), st.sampled_from(["std", "spread", "none", "clip", "0"]))


@given(st.dictionaries(names, values))
def test_new_settings_are_fixed_points(settings: dict[str, Any]) -> None:
    once = new_settings(settings)
    assert new_settings(once) == once


@given(st.dictionaries(st.sampled_from([*METRICS, *METRICS.values(), "loss"]), st.integers()))
def test_new_metrics_are_fixed_points(row: dict[str, int]) -> None:
    once = new_metrics(row)
    assert new_metrics(once) == once


@given(
    st.sampled_from([*STATE, *STATE.values(), ".opt"]), st.from_regex(r"(\.[a-z_]{1,8}|\[\d\]){0,3}", fullmatch=True)
)
def test_new_array_names_are_fixed_points(first: str, rest: str) -> None:
    once = new_array_name(first + rest)
    assert new_array_name(once) == once


def test_no_new_name_is_an_old_one() -> None:
    for table in (renamed.SETTINGS, renamed.METRICS, renamed.STATE):
        assert not set(table) & set(table.values())
    assert not {(name, new) for (name, _), new in VALUES.items()} & set(VALUES)
