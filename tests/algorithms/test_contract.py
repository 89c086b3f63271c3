"""What every algorithm must do, whatever it is: one suite for all of them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pspo.algorithms import ALGORITHMS
from pspo.core import checkpoint
from pspo.nets.actors import act
from pspo.policies.policy import Policy, from_network, load_policy
from tests.algorithms.contract_cases import CHUNK, LEARNERS, make_case, trained, usual
from tests.algorithms.tiny_task import ACTIONS, extreme_log, score, tiny_log


def but_slow(*algorithms: str) -> pytest.MarkDecorator:
    """All algorithms, these in the slow suite."""
    marked = [pytest.param(algo, marks=pytest.mark.slow) if algo in algorithms else algo for algo in LEARNERS]
    return pytest.mark.parametrize("algo", marked)


# PSPO has tests of its own for all of this, and a pool to fit. The others take the longest to compile, and four more
# algorithms with models stand for them here.
every_algorithm = but_slow("pspo", "adm", "combo", "morel")
# What compiles once more: here for the quickest, for all others in the slow suite.
one_here_others_slow = but_slow(*(algo for algo in LEARNERS if algo != "td3bc"))


def leaves(tree) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


def same_bits(a, b) -> bool:
    return all(x.tobytes() == y.tobytes() for x, y in zip(leaves(a), leaves(b), strict=True))


def policy_of(algo: str, state) -> Policy:
    case = usual(algo)
    return from_network(case.module.policies(state)["policy"], case.setup.norm, {"algo": algo})


def test_every_algorithm_is_here() -> None:
    assert set(LEARNERS) == set(ALGORITHMS)


@every_algorithm
def test_a_chunk_keeps_shapes_and_types_and_counts_its_steps(algo: str) -> None:
    before, after = trained(algo)[:2]
    assert jax.tree.structure(before) == jax.tree.structure(after)
    for x, y in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True):
        # A weak type would come out as a strong one, and the second chunk would be compiled again.
        assert (x.shape, x.dtype, x.weak_type) == (y.shape, y.dtype, y.weak_type)
        assert x.dtype in (np.float32, np.int32, np.uint32, np.bool_)
    assert (int(before.step), int(after.step)) == (0, CHUNK)


@every_algorithm
def test_metrics_are_finite_numbers(algo: str) -> None:
    _, metrics = usual(algo).go_on(trained(algo)[0])
    assert metrics
    for name, value in metrics.items():
        assert value.shape == (), name
        assert np.isfinite(value), name


@every_algorithm
def test_a_seed_decides_everything(algo: str) -> None:
    case = usual(algo)
    assert same_bits(case.go_on(case.start(0))[0], trained(algo)[1])
    other = case.go_on(case.start(1))[0]
    assert not same_bits(case.module.policies(other), case.module.policies(trained(algo)[1]))


@every_algorithm
def test_a_state_that_went_through_a_file_goes_on_to_the_same_bits(algo: str, tmp_path) -> None:
    case = usual(algo)
    checkpoint.save(tmp_path, CHUNK, trained(algo)[1])
    shapes = jax.eval_shape(case.init, case.log, jax.random.PRNGKey(0))
    found = checkpoint.load_newest(tmp_path, shapes, pytest.fail)
    assert found is not None
    assert found[0] == CHUNK
    assert same_bits(case.go_on(found[1])[0], trained(algo)[2])


@one_here_others_slow
def test_seeds_side_by_side_are_what_they_are_alone(algo: str) -> None:
    """A chunk of a vmap over two states, against each alone; sums may be split otherwise, so not to bits."""
    case = usual(algo)
    states = [trained(algo)[0], case.start(1)]
    stacked = jax.tree.map(lambda *setup: jnp.stack(setup), *states)
    together, _ = jax.vmap(case.go_on)(stacked)
    for i, one in enumerate((trained(algo)[1], case.go_on(states[1])[0])):
        for x, y in zip(leaves(one), leaves(jax.tree.map(lambda part, i=i: part[i], together)), strict=True):
            np.testing.assert_allclose(x, y, rtol=5e-3, atol=1e-4)


@one_here_others_slow
def test_extreme_but_finite_data_give_no_nan(algo: str) -> None:
    case = make_case(algo, extreme_log())
    state, metrics = case.go_on(case.start(0))
    for leaf in (*leaves(state), *leaves(metrics)):
        assert np.isfinite(leaf).all()
    action = from_network(case.module.policies(state)["policy"], case.setup.norm, {})(extreme_log().obs)
    assert np.isfinite(action).all()


@every_algorithm
def test_the_saved_policy_acts_like_the_network(algo: str, tmp_path) -> None:
    case, state, obs = usual(algo), trained(algo)[-1], tiny_log(50, seed=5).obs
    policy = policy_of(algo, state)
    policy.save(tmp_path / "policy.safetensors")
    loaded = load_policy(tmp_path)
    action = loaded(obs)
    assert (action.shape, action.dtype) == ((50, ACTIONS), np.float32)
    np.testing.assert_array_equal(action, policy(obs))
    network = case.module.policies(state)["policy"]
    np.testing.assert_allclose(action, act(network, case.setup.norm, jnp.asarray(obs)), atol=1e-5)
    drawn = loaded.sample(obs, np.random.default_rng(0))
    assert (drawn.shape, drawn.dtype) == (action.shape, np.float32)
    for one in (action, drawn):
        assert np.all(np.abs(one) <= 1.0)


@every_algorithm
def test_it_learns_the_tiny_task(algo: str) -> None:
    assert score(policy_of(algo, trained(algo)[-1])) >= LEARNERS[algo].at_least


@one_here_others_slow
def test_without_its_key_term_it_does_not(algo: str) -> None:
    learner = LEARNERS[algo]
    case, state = make_case(algo, tiny_log(), **learner.broken), trained(algo)[0]
    for _ in range(learner.chunks):
        state, _ = case.go_on(state)
    broken = from_network(case.module.policies(state)["policy"], case.setup.norm, {})
    assert score(broken) < learner.at_least - 0.1
