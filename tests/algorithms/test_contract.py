"""What every algorithm must satisfy: one suite for all 15."""

from __future__ import annotations

import ast
import dataclasses
import inspect
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pspo import algorithms
from pspo.algorithms import ALGORITHMS, get_algorithm, get_diagnostics
from pspo.algorithms.common.settings import LoopConfig
from pspo.algorithms.contract import Algorithm, Diagnostics, missing_names
from pspo.core import checkpoint
from pspo.core.config import flatten
from pspo.nets.actors import act
from pspo.policies.policy import Policy, from_network, load_policy
from tests.algorithms.contract_cases import CHUNK, LEARNERS, make_case, trained, usual
from tests.algorithms.tiny_task import ACTIONS, extreme_dataset, score, tiny_dataset
from tests.arrays import equal_bits

# scope="module" puts the tests of an algorithm next to each other: one worker compiles it, and no other.
every_algorithm = pytest.mark.parametrize("algo", LEARNERS, scope="module")


def leaves(tree) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


def policy_of(algo: str, state) -> Policy:
    case = usual(algo)
    return from_network(case.module.policies(state)["policy"], case.setup.norm, {"algo": algo})


def test_every_algorithm_has_a_case() -> None:
    assert set(LEARNERS) == set(ALGORITHMS)


# The registry


@every_algorithm
def test_an_algorithm_satisfies_the_contract(algo: str) -> None:
    module = get_algorithm(algo)
    assert missing_names(module) == []
    assert dataclasses.is_dataclass(module.Config)
    assert {field.name for field in dataclasses.fields(LoopConfig)} <= set(flatten(module.Config()))
    for name, method in vars(Algorithm).items():
        if inspect.isfunction(method) and not name.startswith("_"):
            wanted = list(inspect.signature(method).parameters)[1:]
            assert len(inspect.signature(getattr(module, name)).parameters) == len(wanted), name


@pytest.mark.parametrize("algo", [algo for algo, info in ALGORITHMS.items() if info.diagnostics])
def test_a_diagnostics_module_satisfies_its_contract(algo: str) -> None:
    module = get_diagnostics(algo)
    for name, method in vars(Diagnostics).items():
        if inspect.isfunction(method) and not name.startswith("_"):
            wanted = list(inspect.signature(method).parameters)[1:]
            assert list(inspect.signature(getattr(module, name)).parameters) == wanted, name


def test_there_is_one_table_of_algorithms() -> None:
    """Every module, preset file and documentation page has a row, and no other module lists the algorithms."""
    package = Path(algorithms.__file__).parent
    assert {path.stem for path in (package / "presets").glob("*.toml")} == set(ALGORITHMS)
    assert {info.module.rpartition(".")[2] for info in ALGORITHMS.values()} <= {p.stem for p in package.rglob("*.py")}
    assert len({info.module for info in ALGORITHMS.values()}) == len(ALGORITHMS)
    tables = {
        path.relative_to(package.parent).as_posix(): names
        for path in package.parent.rglob("*.py")
        if (names := algorithms_in_tables(path.read_text()))
    }
    assert tables.pop("algorithms/registry.py") == set(ALGORITHMS)
    assert tables == {
        "experiments/overhead.py": {"pspo", "pmdb"},  # the paper's numbers for two of its methods
        "core/renamed.py": {"td3bc", "morel"},  # settings that runs of 0.1 have and these algorithms no more
    }


def algorithms_in_tables(source: str) -> set[str]:
    """Names of algorithms that are keys of one dictionary with at least two of them: a second table."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Dict):
            names = {key.value for key in node.keys if isinstance(key, ast.Constant)} & set(ALGORITHMS)
            found |= names if len(names) > 1 else set()
    return found


def test_a_planted_partial_table_is_found() -> None:
    assert algorithms_in_tables("STRENGTHS = {'cql': 3.0, 'iql': 1 / 3, 'other': 1}") == {"cql", "iql"}
    assert algorithms_in_tables("ROW = {'pspo': '0.1', 'numpy': '2.0'}") == set()


# One chunk


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
def test_metrics_are_finite_and_have_the_headline(algo: str) -> None:
    _, metrics = usual(algo).run_chunk(trained(algo)[0])
    for name, value in metrics.items():
        assert value.shape == (), name
        assert np.isfinite(value), name
    headline = get_algorithm(algo).HEADLINE
    assert headline
    assert set(headline) <= set(metrics)


@every_algorithm
def test_the_same_seed_gives_the_same_state_bit_for_bit(algo: str) -> None:
    case = usual(algo)
    assert equal_bits(case.run_chunk(case.start(0))[0], trained(algo)[1])
    other = case.run_chunk(case.start(1))[0]
    assert not equal_bits(case.module.policies(other), case.module.policies(trained(algo)[1]))


@every_algorithm
def test_a_state_from_a_checkpoint_continues_bit_for_bit(algo: str, tmp_path) -> None:
    case = usual(algo)
    checkpoint.save(tmp_path, CHUNK, trained(algo)[1])
    shapes = jax.eval_shape(case.init, case.device_data, jax.random.PRNGKey(0))
    newest = checkpoint.load_newest(tmp_path, shapes, pytest.fail)
    assert newest is not None
    assert newest[0] == CHUNK
    assert equal_bits(case.run_chunk(newest[1])[0], trained(algo)[2])


@every_algorithm
def test_two_seeds_in_one_vmap_agree_with_each_alone(algo: str) -> None:
    """A chunk of a vmap over two states, against each alone; sums may be split otherwise, so not bit for bit."""
    case = usual(algo)
    states = [trained(algo)[0], case.start(1)]
    stacked = jax.tree.map(lambda *leaf: jnp.stack(leaf), *states)
    together, _ = jax.vmap(case.run_chunk)(stacked)
    for i, one in enumerate((trained(algo)[1], case.run_chunk(states[1])[0])):
        for x, y in zip(leaves(one), leaves(jax.tree.map(lambda part, i=i: part[i], together)), strict=True):
            np.testing.assert_allclose(x, y, rtol=5e-3, atol=1e-4)


@every_algorithm
def test_extreme_but_finite_data_give_no_nan(algo: str) -> None:
    case = make_case(algo, extreme_dataset())
    state, metrics = case.run_chunk(case.start(0))
    for leaf in (*leaves(state), *leaves(metrics)):
        assert np.isfinite(leaf).all()
    action = from_network(case.module.policies(state)["policy"], case.setup.norm, {})(extreme_dataset().obs)
    assert np.isfinite(action).all()


@every_algorithm
def test_the_saved_policy_acts_like_the_network(algo: str, tmp_path) -> None:
    case, state, obs = usual(algo), trained(algo)[-1], tiny_dataset(50, seed=5).obs
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


@every_algorithm
def test_without_its_key_term_it_does_not(algo: str) -> None:
    learner = LEARNERS[algo]
    case, numbers = usual(algo), learner.broken
    if not learner.one_program:
        case, numbers = make_case(algo, tiny_dataset(), **learner.broken), {}
    state = trained(algo)[0]
    for _ in range(learner.chunks):
        state, _ = case.run_chunk(state, **numbers)
    broken = from_network(case.module.policies(state)["policy"], case.setup.norm, {})
    assert score(broken) < learner.at_least - 0.1
