"""The formulas behind the GFLOP/s, against counts by hand and by XLA."""

from __future__ import annotations

from itertools import pairwise

import jax
import jax.numpy as jnp
import pytest

from benchmarks import flops
from pspo.nets.mlp import MLP, apply_each

ROWS, LAYERS = 64, [24, 32, 48, 16]


def xla_count(function, *inputs) -> float:
    return jax.jit(function).lower(*inputs).compile().cost_analysis()["flops"]


def plain(weights, x):
    """Matrix products only: a linear activation keeps XLA's count free of anything else."""
    for w in weights:
        x = x @ w
    return x


@pytest.fixture
def weights():
    return [jnp.ones(pair) for pair in pairwise(LAYERS)]


def test_forward_by_hand():
    # One row through 2 -> 3 -> 1: 2*3 and 3*1 multiply-adds, each two operations; five rows of them.
    assert flops.forward(5, [2, 3, 1]) == 5 * 2 * (6 + 3)


def test_forward_and_backward_by_hand():
    # Per row and layer: output, weight gradient and input gradient cost the same; the first input needs none.
    first, last = 2 * 6, 2 * 3
    assert flops.forward_backward(5, [2, 3, 1]) == 5 * (2 * first + 3 * last)


def test_forward_is_what_xla_counts(weights):
    assert xla_count(plain, weights, jnp.ones((ROWS, LAYERS[0]))) == flops.forward(ROWS, LAYERS)


def test_forward_and_backward_is_what_xla_counts(weights):
    # A linear loss needs no forward product of the last layer; the square asks for all of them.
    def loss(weights, x):
        return jnp.square(plain(weights, x)).sum()

    counted = xla_count(jax.value_and_grad(loss), weights, jnp.ones((ROWS, LAYERS[0])))
    expected = flops.forward_backward(ROWS, LAYERS)
    assert expected <= counted <= expected + 8 * ROWS * LAYERS[-1]  # the loss itself: a few operations per output


def test_a_stack_costs_its_members():
    one = MLP([jnp.ones(pair) for pair in pairwise(LAYERS)], [jnp.zeros(n) for n in LAYERS[1:]], "silu")
    stack = jax.tree.map(lambda leaf: jnp.stack([leaf] * 3), one)
    assert flops.sizes(stack) == flops.sizes(one) == LAYERS
    counted = xla_count(apply_each, stack, jnp.ones((3, ROWS, LAYERS[0])))
    expected = 3 * flops.forward(ROWS, LAYERS)
    units = 3 * ROWS * sum(LAYERS[1:])
    assert expected <= counted <= expected + 8 * units  # biases and activations: a few operations per unit
