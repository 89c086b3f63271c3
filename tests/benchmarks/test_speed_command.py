"""`python -m benchmarks.speed --quick` runs and writes what the documentation reads. Nothing depends on a clock."""

from __future__ import annotations

import json
import math

import pytest

from benchmarks import speed, table
from pspo.experiments import timing


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Half a minute of compiling: tests that need it are slow."""
    out = tmp_path_factory.mktemp("speed") / "deeper" / "speed.json"
    speed.main(["--quick", "--out", str(out)])
    return json.loads(out.read_text())


def numbers(tree):
    if isinstance(tree, dict):
        tree = list(tree.values())
    if isinstance(tree, list):
        return [n for part in tree for n in numbers(part)]
    return [tree] if isinstance(tree, float) else []


@pytest.mark.slow
def test_the_file_says_how_it_came_about(written):
    assert "--quick" in written["command"]
    assert {"libraries", "cores", "threads", "platform"} <= written["machine"].keys()
    assert {"forward", "forward and backward", "pool fit step", "PSPO step"} <= written["formulas"].keys()
    assert written["matrix_product"]["threads"] == written["machine"]["threads"]


@pytest.mark.slow
def test_every_measurement_is_there(written):
    (case,) = written["cases"].values()
    for step in (case["pool_fit_step"], case["pspo_step"]):
        assert {"flops", "milliseconds", "gflops", "fraction_of_machine", "rounds"} <= step.keys()
    assert {"microseconds_per_state", "microseconds_per_state_in_batch"} <= written["action"].keys()
    assert written["simulator"]["transitions"] >= written["simulator"]["episodes"]
    for measured in (case["pool_fit_step"], case["pspo_step"], written["action"], written["simulator"]):
        assert all(math.isfinite(n) and n > 0 for n in numbers(measured))


@pytest.mark.slow
def test_the_overhead_of_an_algorithm_is_an_iteration_and_an_action(written):
    assert written["overhead"].keys() == {"bc", "mopo"}  # --quick leaves the others out
    for cost in written["overhead"].values():
        assert cost["settings"]["width"] == 16
        assert all(n > 0 for n in numbers([cost["iteration_milliseconds"], cost["inference_milliseconds"]]))
    assert written["overhead"]["bc"]["rollouts_milliseconds"] == 0
    mopo = written["overhead"]["mopo"]
    assert 0 < mopo["rollouts_milliseconds"] < mopo["iteration_milliseconds"]["median"]


@pytest.mark.slow
def test_parts_cover_the_formula(written):
    (case,) = written["cases"].values()
    step = case["pspo_step"]
    assert step["flops_by_part"].keys() <= step["parts"].keys()
    assert sum(step["flops_by_part"].values()) == step["flops"]
    assert {"random numbers", "optimiser and averages"} <= step["parts"].keys()
    assert step["flops_by_xla"] > step["flops"]  # XLA counts the elementwise work as well


@pytest.mark.slow
def test_step_formula_by_hand(written):
    (case,) = written["cases"].values()
    # 32 + 32 rows, 3 models, 4 next states each, 16 actions, 2 critics, width 16, 4 Gaussians with 3 numbers each.
    features, found = case["features"], case["pspo_step"]["flops_by_part"]
    value = 2 * (features * 16 + 16 * 16 + 16)
    critic = 2 * ((features + 1) * 16 + 16 * 16 + 16)
    policy = 2 * (features * 16 + 16 * 16 + 16 * 12)
    first_value, first_critic, first_policy = 2 * features * 16, 2 * (features + 1) * 16, 2 * features * 16
    assert found["ensemble forward"] == 3 * 32 * 2 * ((features + 1) * 16 + 16 * 16 + 16 * 8)
    assert found["value at next states"] == (4 * 3 * 32 + 32) * value
    assert found["target critics"] == 2 * (16 * 64 + 32) * critic
    assert found["policy, mu and target policy"] == (32 + 32 + 64 + 64) * policy
    assert found["gradients"] == 64 * (
        2 * (3 * critic - first_critic) + (3 * value - first_value) + (3 * policy - first_policy)
    )


def test_rounds_stand_between_matrix_products():
    calls = []
    machine = timing.Machine(timing.QUICK)
    found = machine.measure({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, per_call=2)
    assert found.keys() == {"a", "b"}
    assert {"a", "b"} == set(calls)
    assert len(found["a"].seconds) == len(found["a"].machine) == timing.QUICK.rounds
    fraction = found["a"].fraction(1e9)
    assert fraction == pytest.approx(1.0 / found["a"].seconds / found["a"].machine)


def test_numbers_are_shown_with_median_and_quartiles():
    assert table.with_quartiles({"median": 2.0, "low": 1.5, "high": 2.5}, ".1f") == "2.0 (1.5-2.5)"
