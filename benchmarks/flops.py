"""Floating-point operations by formula: a multiplication and an addition each count as one, only products count.

Elementwise work (activations, losses, Adam, densities) and random numbers are left out: they are the price
that shows in the fraction of the machine's matrix-product speed.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise

import jax

from benchmarks.cases import Case
from pspo.algorithms.pspo import algorithm as pspo
from pspo.nets.mlp import MLP

FORMULAS = {
    "matrix product": "2 n^3",
    "forward": "F(B; n0..nL) = 2 B sum_i n_i n_{i+1}",
    "forward and backward": "T(B; n0..nL) = 3 F - 2 B n0 n1: the backward pass is a product for the weights and one "
    "for the inputs of every layer, but nothing asks for the gradient of the first layer's inputs",
    "pool fit step": "M T(batch; model)",
    "PSPO step": "N F(S; model) + F(2P N S; value) + F(R; value) + C F(S; critic) + C F(2A (R+S); critic) "
    "+ C T(R+S; critic) + T(R+S; value) + T(R+S; policy) + 2 F(S; policy) + 2 F(R+S; policy)",
    "letters": "M members in the pool, N of them active, P next_pairs, A action_samples, C critics, R real_batch, "
    "S synthetic_batch. The last two terms are policy and mu at the rollouts, mu and the target policy at the "
    "batch; the policy itself at the batch is the forward half of its gradient.",
}


def sizes(net: MLP) -> list[int]:
    """Layer sizes n0..nL of one network, or of each member of a stack."""
    return [w.shape[-2] for w in net.weights] + [net.weights[-1].shape[-1]]


def forward(rows: int, layers: Sequence[int]) -> int:
    """One row of n_i numbers through a layer of n_{i+1} units is n_i n_{i+1} multiply-adds."""
    return 2 * rows * sum(a * b for a, b in pairwise(layers))


def forward_backward(rows: int, layers: Sequence[int]) -> int:
    return 3 * forward(rows, layers) - 2 * rows * layers[0] * layers[1]


def pool_step(case: Case) -> int:
    """One gradient step of every member on its own batch."""
    pool = case.setup.arrays.pool
    return pool.size * forward_backward(case.config.model.batch, sizes(pool.net))


def pspo_step(case: Case) -> dict[str, int]:
    """One iteration, part by part; the names are those of benchmarks.breakdown."""
    config, arrays = case.config, case.setup.arrays
    params = jax.eval_shape(partial(pspo.init, config, case.setup), case.device_data, jax.random.PRNGKey(0)).params
    model, policy = sizes(arrays.pool.net), sizes(arrays.reference.net)
    critic, value = sizes(params.critic), sizes(params.value)
    real, rollouts, critics = config.real_batch, config.synthetic_batch, config.critics
    active, both = min(config.active, arrays.pool.size), real + rollouts
    return {
        "ensemble forward": active * forward(rollouts, model),
        "value at next states": forward(2 * config.next_pairs * active * rollouts + real, value),
        "target critics": critics * forward(2 * config.action_samples * both + rollouts, critic),
        # The policy's forward pass at the batch is shared with its gradient, and counted there.
        "policy, mu and target policy": 2 * forward(rollouts, policy) + 2 * forward(both, policy),
        "gradients": critics * forward_backward(both, critic)
        + forward_backward(both, value)
        + forward_backward(both, policy),
    }
