"""Configurations: layers, types, bounds, help and presets; errors are one sentence."""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, get_args, get_origin

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pspo.algorithms import ALGORITHMS, get_algorithm
from pspo.algorithms.pspo.algorithm import Config
from pspo.algorithms.registry import FAMILIES, preset, preset_table
from pspo.core.config import Bounds, Key, build, flatten, keys, parse_settings
from pspo.core.errors import UserError
from pspo.data.readers.d4rl import NAMES
from pspo.envs.task import _TASKS
from tests.refusals import message_of


@dataclass(frozen=True)
class Inner:
    width: Annotated[int, Bounds(1, 64)] = 8
    """Units."""
    rate: float = 0.5
    """Any number at all."""


@dataclass(frozen=True)
class Outer:
    gamma: Annotated[float, Bounds(0.0, 1.0)] = 0.9
    """Discount
    factor."""
    flag: bool = False
    """A switch."""
    mode: Literal["fast", "slow"] = "fast"
    """A choice."""
    silent: int = 3
    inner: Inner = dataclasses.field(default_factory=Inner)


def refusal(*layers: dict[str, Any], of: type = Outer) -> str:
    return message_of(build, of, *layers)


# Layers and names


def test_later_layers_win_key_by_key() -> None:
    result = build(Outer, {"gamma": 0.1, "mode": "slow"}, {"gamma": 0.2, "inner.width": 9}, {"inner.width": "10"})
    assert result == Outer(gamma=0.2, mode="slow", inner=Inner(width=10))
    assert build(Outer) == Outer()


def test_a_wrong_value_is_refused_even_if_a_later_layer_replaces_it() -> None:
    assert "gamma" in refusal({"gamma": 7.0}, {"gamma": 0.5})


@pytest.mark.parametrize(
    ("wrong", "nearest"),
    [("gama", "gamma"), ("inner.widht", "inner.width"), ("width", "inner.width"), ("Mode", "mode")],
)
def test_an_unknown_key_suggests_the_nearest(wrong: str, nearest: str) -> None:
    message = refusal({wrong: 1})
    assert f"'{wrong}'" in message
    assert f"did you mean '{nearest}'" in message


def test_an_unknown_key_without_a_near_one_lists_all_keys() -> None:
    message = refusal({"zzzzzzzz": 1})
    assert all(name in message for name in keys(Outer))


def test_a_nested_configuration_is_not_itself_a_key() -> None:
    assert "inner" in refusal({"inner": {"width": 3}})


# Types


@pytest.mark.parametrize(
    ("value", "read"),
    [(True, True), (False, False), ("true", True), ("False", False), ("1", True), ("0", False), (1, True), (0, False)],
)
def test_booleans(value: Any, read: bool) -> None:
    result = build(Outer, {"flag": value}).flag
    assert result is read


@pytest.mark.parametrize("value", ["yes", "", "2", "truee", 2, 0.5, None])
def test_what_is_not_a_boolean(value: Any) -> None:
    assert "true or false" in refusal({"flag": value})


@pytest.mark.parametrize(("value", "read"), [("12", 12), ("1_0", 10), (12, 12), (12.0, 12), (" 7 ", 7)])
def test_whole_numbers(value: Any, read: int) -> None:
    result = build(Outer, {"inner.width": value}).inner.width
    assert (result, type(result)) == (read, int)


@pytest.mark.parametrize("value", ["1.5", 1.5, "abc", "", True, False, None, math.nan, math.inf, "nan"])
def test_what_is_not_a_whole_number(value: Any) -> None:
    assert "whole number" in refusal({"inner.width": value})


@pytest.mark.parametrize(("value", "read"), [("0.25", 0.25), ("1e-3", 0.001), (1, 1.0), ("-2", -2.0), (0.5, 0.5)])
def test_numbers(value: Any, read: float) -> None:
    result = build(Outer, {"inner.rate": value}).inner.rate
    assert (result, type(result)) == (read, float)


@pytest.mark.parametrize("value", ["abc", "", None, True, "1,5", math.nan, "nan", "NaN"])
@pytest.mark.parametrize("key", ["inner.rate", "gamma"])
def test_what_is_not_a_number(key: str, value: Any) -> None:
    """NaN too, with bounds and without: no comparison would ever catch it later."""
    assert "a number" in refusal({key: value})


@pytest.mark.parametrize("value", ["Fast", "", "medium", 1, None, True])
def test_a_choice_names_its_choices(value: Any) -> None:
    assert "fast, slow" in refusal({"mode": value})


@pytest.mark.parametrize("value", [-0.001, 1.001, "2", "inf", -math.inf])
def test_out_of_bounds_is_refused_with_the_bounds(value: Any) -> None:
    message = refusal({"gamma": value})
    assert "between 0.0 and 1.0" in message


def test_the_bounds_themselves_are_inside() -> None:
    assert build(Outer, {"gamma": 0, "inner.width": 1}) == Outer(gamma=0.0, inner=Inner(width=1))
    assert build(Outer, {"gamma": "1.0", "inner.width": 64}) == Outer(gamma=1.0, inner=Inner(width=64))


# Keys and help


@dataclass(frozen=True)
class Fitted:
    pool: int = 10
    width: int = 64


@dataclass(frozen=True)
class Learner:
    required: int
    model: Fitted = field(default_factory=lambda: Fitted(pool=7))


def test_the_default_of_a_nested_field_may_differ_from_that_of_its_class() -> None:
    assert {name: key.default for name, key in keys(Learner).items() if "." in name} == {
        "model.pool": 7,
        "model.width": 64,
    }
    assert build(Learner, {"required": 1}) == Learner(1) == Learner(1, Fitted(7, 64))
    assert build(Learner, {"required": 1, "model.width": 8}).model == Fitted(7, 8)
    with pytest.raises(TypeError, match="required"):
        build(Learner, {})


def test_keys_have_the_order_of_the_source_and_their_help() -> None:
    result = keys(Outer)
    assert list(result) == ["gamma", "flag", "mode", "silent", "inner.width", "inner.rate"]
    assert result["gamma"].help == "Discount factor."
    assert result["inner.rate"].help == "Any number at all."
    assert result["silent"].help == ""
    assert (result["gamma"].bounds, result["inner.rate"].bounds) == (Bounds(0.0, 1.0), None)


PSPO_KEYS = keys(Config)


@pytest.mark.parametrize("name", PSPO_KEYS)
def test_every_key_of_pspo_has_help_and_a_valid_default(name: str) -> None:
    key = PSPO_KEYS[name]
    assert len(key.help) > 5
    assert key.help.endswith(".")
    assert build(Config, {name: key.default}) == Config()
    assert build(Config, {name: str(key.default)}) == Config()


@pytest.mark.parametrize("name", [name for name, key in PSPO_KEYS.items() if key.kind in (int, float)])
def test_every_number_of_pspo_has_bounds(name: str) -> None:
    key = PSPO_KEYS[name]
    assert key.bounds is not None
    needed = {"value_of": "mode", "improvement": "gradient"} if name in ("value_rollouts", "kl_limit_rise") else {}
    if name == "kl_limit_rise":
        needed["value_rollouts"] = 8
    for bound, step in ((key.bounds.low, -1), (key.bounds.high, 1)):
        assert flatten(build(Config, {name: bound} | needed))[name] == bound
        with pytest.raises(UserError, match="out of range"):
            build(Config, {name: bound + step})


def values_of(key: Key) -> st.SearchStrategy[Any]:
    if get_origin(key.kind) is Literal:
        return st.sampled_from(get_args(key.kind))
    if key.kind is bool:
        return st.booleans()
    assert key.bounds is not None
    low, high = key.bounds.low, key.bounds.high
    return st.integers(int(low), int(high)) if key.kind is int else st.floats(low, high)


def is_allowed(values: dict[str, Any]) -> bool:
    """Other combinations are refused."""
    by_mode = values.get("value_of") == "mode"
    if values.get("value_rollouts") and (not by_mode or values.get("visited")):
        return False
    if values.get("kl_limit_rise", 1.0) > 1.0 and not values.get("value_rollouts"):
        return False
    return not by_mode or values.get("improvement") == "gradient"


some_settings = st.fixed_dictionaries({}, optional={name: values_of(key) for name, key in PSPO_KEYS.items()}).filter(
    is_allowed
)


@given(some_settings)
@settings(max_examples=25, deadline=None)
def test_flatten_and_build_are_inverse_through_json_and_text(values: dict[str, Any]) -> None:
    config = build(Config, values)
    flat = flatten(config)
    assert list(flat) == list(PSPO_KEYS)
    assert {name: flat[name] for name in values} == values
    assert build(Config, flat) == config
    assert build(Config, json.loads(json.dumps(flat))) == config
    assert build(Config, parse_settings([f"{name}={value}" for name, value in flat.items()])) == config


# The command line's words


def test_settings_are_split_at_the_first_sign() -> None:
    assert parse_settings(["a=1", " b = two ", "c=x=y", "d="]) == {"a": "1", "b": "two", "c": "x=y", "d": ""}
    assert parse_settings(["a=1", "a=2"]) == {"a": "2"}
    assert parse_settings([]) == {}


@pytest.mark.parametrize("word", ["gamma", "", "=3", "gamma 0.5"])
def test_an_argument_without_key_and_value_is_refused(word: str) -> None:
    with pytest.raises(UserError, match="key=value") as caught:
        parse_settings([word])
    assert f"'{word}'" in str(caught.value)


# Presets


DATASETS = [name.removesuffix("-v2") for name in NAMES]


@pytest.mark.parametrize("dataset", ["liquidation", "", *NAMES])
@pytest.mark.parametrize("algo", ALGORITHMS)
def test_every_preset_builds(algo: str, dataset: str) -> None:
    cls, task = get_algorithm(algo).Config, dataset.split("-")[0] or None
    for name in preset_table(algo):
        values = preset(algo, name, task, dataset)
        flat = flatten(build(cls, values))
        assert {key: flat[key] for key in values} == values


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_every_algorithm_has_the_same_presets(algo: str) -> None:
    assert set(preset_table(algo)) == {"laptop", "paper", "smoke"}


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_presets_have_no_misspelt_section(algo: str) -> None:
    known = {"common", "own-data", "discrete", *_TASKS, *FAMILIES.values(), *DATASETS}
    for name, sections in preset_table(algo).items():
        assert set(sections) <= known, name


def test_a_task_adds_to_the_common_numbers_and_overrides_them() -> None:
    task, own = preset("pspo", "paper", "liquidation"), preset("pspo", "paper", None)
    assert (task["gamma"], own["gamma"]) == (1.0, 0.99)
    assert task["model.pool"] == own["model.pool"] == 100
    assert "rollout_horizon" in task


def test_a_family_overrides_the_common_numbers_and_the_task_overrides_it() -> None:
    family = preset("pspo", "laptop", "hopper")
    assert family["critic_value"] == "min"
    assert "critic_value" not in preset("pspo", "laptop", "liquidation")


def test_a_dataset_overrides_its_task_with_or_without_a_version() -> None:
    assert preset("dmg", "paper", "hopper", "hopper-medium")["imitation"] == 0.1
    for name in ("hopper-expert-v2", "hopper-expert"):
        assert preset("dmg", "paper", "hopper", name)["imitation"] == 10.0


def test_a_file_called_like_a_section_gets_no_preset_of_it() -> None:
    for name in ("liquidation", "common", "hopper-expert"):
        assert preset("dmg", "paper", None, name) == preset("dmg", "paper", None)


@pytest.mark.parametrize("task", [None, *_TASKS])
def test_the_papers_preset_has_none_of_our_additions(task: str | None) -> None:
    config = build(Config, preset("pspo", "paper", task))
    ours = (config.critic_value, config.box, config.clip_targets, config.layer_norm, config.start_steps)
    assert ours == ("mean", "none", False, False, 0)
    assert (config.prior, config.f_unit) == ("uniform", "reward")


def test_an_unknown_preset_suggests_the_nearest() -> None:
    with pytest.raises(UserError, match="unknown preset 'laptpo': did you mean 'laptop'"):
        preset("pspo", "laptpo", None)
