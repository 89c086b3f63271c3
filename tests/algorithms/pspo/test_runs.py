"""Chunks of PSPO: a seed gives one policy bit for bit, ablations do what they claim, a checkpoint loses nothing."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from pspo.algorithms.pspo import algorithm as pspo
from pspo.core import checkpoint
from pspo.training.loop import compile_chunk
from tests.algorithms.pspo.pspo_cases import made_config, made_data, made_setup, run_chunks, start
from tests.arrays import assert_equal_bits, equal_bits

CHUNKS = 3


@pytest.fixture(scope="module")
def without_beta():
    """Chunks with beta=0, whose compiled program several tests use."""
    config, setup, data = made_config(beta=0.0), made_setup(), made_data()
    chunk = compile_chunk(pspo, config, setup)

    def run(state, count):
        metrics = []
        for _ in range(count):
            state, found = chunk(state, setup.arrays, data, length=config.chunk)
            metrics.append({name: float(value) for name, value in found.items()})
        return state, metrics

    return start, run


def test_one_seed_gives_one_policy_bit_for_bit_and_another_does_not(without_beta) -> None:
    begin, run = without_beta
    first, again, other = (run(begin(seed), CHUNKS)[0] for seed in (0, 0, 1))
    assert_equal_bits(first, again)
    assert not equal_bits(first.params, other.params)
    assert int(first.step) == CHUNKS * 5


def test_beta_zero_is_the_uniform_posterior_bit_for_bit(without_beta) -> None:
    begin, run = without_beta
    state, metrics = run(begin(0), CHUNKS)
    uniform, uniform_metrics = run_chunks(made_config(posterior="uniform", beta=5.0), CHUNKS)
    assert_equal_bits(state, uniform)
    assert metrics == uniform_metrics
    assert all(row["posterior_entropy"] == pytest.approx(1.0, abs=1e-6) for row in metrics)


def test_the_other_ablations_stay_finite_and_leave_the_uniform_posterior(without_beta) -> None:
    """No reference term, a model held per episode, the plain unit of F: one program for all three."""
    begin, run = without_beta
    config = made_config(reference_term=False, redraw="episode", f_unit="reward", beta=3.0)
    state, metrics = run_chunks(config, CHUNKS)
    assert all(np.isfinite(value) for row in metrics for value in row.values())
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state))
    assert {row["alpha"] for row in metrics} == {0.0}
    assert all(row["posterior_entropy"] < 1.0 - 1e-4 for row in metrics)
    assert not equal_bits(run(begin(0), CHUNKS)[0].params, state.params)


def test_a_state_from_a_checkpoint_continues_bit_for_bit(tmp_path, without_beta) -> None:
    begin, run = without_beta
    half, _ = run(begin(0), 1)
    checkpoint.save(tmp_path, int(half.step), half)
    warnings: list[str] = []
    found = checkpoint.load_newest(tmp_path, begin(5), warnings.append)
    assert warnings == []
    assert found is not None
    step, loaded = found
    assert step == 5
    assert_equal_bits(loaded, half)
    assert_equal_bits(run(loaded, 2)[0], run(begin(0), 3)[0])


def test_chunks_of_one_length_are_compiled_once() -> None:
    """Traced without being run: what goes in has the type of what comes out, so no chunk is compiled again."""
    config, setup, data = made_config(), made_setup(), made_data()
    state = start()
    chunk = compile_chunk(pspo, config, setup)
    after, _ = jax.eval_shape(lambda s: chunk(s, setup.arrays, data, length=5), state)
    for before, later in zip(jax.tree.leaves(state), jax.tree.leaves(after), strict=True):
        assert (before.shape, before.dtype, before.weak_type) == (later.shape, later.dtype, later.weak_type)


def test_policies_are_the_policy_itself_and_its_average() -> None:
    state = start()
    found = pspo.policies(state)
    assert list(found) == ["policy", "target_policy"]
    assert found["policy"] is state.params.policy
    assert found["target_policy"] is state.target_policy
