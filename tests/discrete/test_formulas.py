"""Formulas for discrete actions against NumPy: PSPO's sums, CQL's loss, SAC's expectations, heads and divergences."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import log_softmax, logsumexp, softmax

from pspo.algorithms.common.losses import q_values
from pspo.algorithms.common.sac import lowest_q
from pspo.algorithms.cql import discrete as cql
from pspo.algorithms.pspo.config import Config
from pspo.algorithms.pspo.discrete import by_sums, improved_policy, q_of_all, soft_value
from pspo.algorithms.pspo.improvement import Constraints, Policies
from pspo.data.batches import Transitions
from pspo.nets.bounds import MASKED
from pspo.nets.categorical import Categorical, CategoricalPolicy
from pspo.nets.mlp import mlp, mlp_stack
from pspo.policies.heads import Net, categorical, categorical_logits

K, F, N = 4, 3, 5
ALPHA, LAMBDA = 0.3, 0.2
NO_MASK = np.zeros((0, 4), np.float32)


def random_policy(seed: int, mask: np.ndarray = NO_MASK) -> CategoricalPolicy:
    return CategoricalPolicy(mlp(jax.random.PRNGKey(seed), [F, 8, K]), jnp.asarray(mask))


def features() -> jax.Array:
    return jax.random.normal(jax.random.PRNGKey(9), (N, F))


def logs(policy: CategoricalPolicy) -> np.ndarray:
    return log_softmax(np.asarray(policy.net(features()), np.float64), axis=1)


def test_soft_value_and_improved_policy_are_the_closed_forms() -> None:
    mu, target = random_policy(0), random_policy(1)
    q = np.random.default_rng(0).normal(size=(N, K))
    log_mu, log_target = logs(mu), logs(target)
    alpha = jnp.full(N, ALPHA)
    value = soft_value(jnp.asarray(q), mu(features()), alpha)
    np.testing.assert_allclose(value, ALPHA * logsumexp(q / ALPHA + log_mu, axis=1), rtol=1e-5)
    improved = improved_policy(jnp.asarray(q), mu(features()), target(features()), alpha, jnp.float32(LAMBDA))
    by_hand = softmax((q + ALPHA * log_mu + LAMBDA * log_target) / (ALPHA + LAMBDA), axis=1)
    np.testing.assert_allclose(improved.p, by_hand, rtol=1e-4)


def test_the_improved_policy_beats_all_others_on_its_objective() -> None:
    """E_pi[Q] - alpha KL(pi||mu) - lambda KL(pi||pi'); the soft value is its maximum without the last term."""
    rng, log_mu, log_target = np.random.default_rng(1), logs(random_policy(0)), logs(random_policy(1))
    q = rng.normal(size=(N, K))

    def objective(p: np.ndarray, multiplier: float) -> np.ndarray:
        return (p * (q - ALPHA * (np.log(p) - log_mu) - multiplier * (np.log(p) - log_target))).sum(1)

    alpha = jnp.full(N, ALPHA)
    arguments = (jnp.asarray(q), Categorical(jnp.asarray(log_mu)), Categorical(jnp.asarray(log_target)), alpha)
    best = np.asarray(improved_policy(*arguments, jnp.float32(LAMBDA)).p, np.float64)
    for _ in range(200):
        assert (objective(rng.dirichlet(np.ones(K), N), LAMBDA) <= objective(best, LAMBDA) + 1e-6).all()
    free = np.asarray(improved_policy(*arguments, jnp.float32(0.0)).p, np.float64)
    np.testing.assert_allclose(soft_value(arguments[0], arguments[1], alpha), objective(free, 0.0), rtol=1e-4)


@pytest.mark.parametrize("value_of", ["optimum", "policy"])
@pytest.mark.parametrize("reference_term", [True, False])
def test_by_sums_takes_every_label_into_account(value_of: Any, reference_term: bool) -> None:
    config = dataclasses.replace(Config(), alpha=ALPHA, value_of=value_of, reference_term=reference_term)
    nets = Policies(random_policy(0), random_policy(1), random_policy(2))
    critic = mlp_stack(jax.random.PRNGKey(3), 2, [F + K, 8, 1])
    result = by_sums(config, nets, critic, features(), Constraints(jnp.float32(LAMBDA), config.kl_limit))
    x = [np.concatenate([np.asarray(features()), np.tile(np.eye(K)[k], (N, 1))], axis=1) for k in range(K)]
    q = np.stack(
        [np.asarray(q_values(critic, jnp.asarray(part[:, :F]), jnp.asarray(part[:, F:]))).mean(0) for part in x], 1
    )
    np.testing.assert_allclose(q_of_all(config, critic, features(), K), q, rtol=1e-4, atol=1e-6)
    log_mu, log_pi, log_target = (logs(net) for net in nets)
    kl = (np.exp(log_pi) * (log_pi - log_mu)).sum(1)
    optimum = ALPHA * logsumexp(q / ALPHA + log_mu, axis=1)
    own = (np.exp(log_pi) * q).sum(1) - (ALPHA * kl if reference_term else 0.0)
    soft = optimum if reference_term and value_of == "optimum" else own
    np.testing.assert_allclose(result.soft, soft, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(result.kl_states, kl, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(result.kl_target, (np.exp(log_pi) * (log_pi - log_target)).sum(1).mean(), rtol=1e-4)
    alpha = ALPHA if reference_term else 0.0
    improved = softmax((q + alpha * log_mu + LAMBDA * log_target) / (alpha + LAMBDA), axis=1)
    np.testing.assert_allclose(result.loss, -(improved * log_pi).sum(1).mean(), rtol=1e-4)
    # At logits z the gradient of the cross-entropy is (pi - improved) / N: that of the last bias is its sum.
    np.testing.assert_allclose(result.grads.net.biases[-1], (np.exp(log_pi) - improved).mean(0), rtol=1e-3, atol=1e-6)


def test_masked_labels_have_no_part_in_any_sum() -> None:
    mask = np.array([[1, 0, 100.0, 200.0]], np.float32)  # label 1 is never available
    nets = Policies(random_policy(0, mask), random_policy(1, mask), random_policy(2, mask))
    critic = mlp_stack(jax.random.PRNGKey(3), 2, [F + K, 8, 1])
    config = dataclasses.replace(Config(), alpha=ALPHA)
    result = by_sums(config, nets, critic, features(), Constraints(jnp.float32(LAMBDA), config.kl_limit))
    open_labels = [0, 2, 3]
    q = np.asarray(q_of_all(config, critic, features(), K))[:, open_labels]
    log_mu = log_softmax(np.asarray(nets.mu.net(features()), np.float64)[:, open_labels], axis=1)
    np.testing.assert_allclose(result.soft, ALPHA * logsumexp(q / ALPHA + log_mu, axis=1), rtol=1e-4)
    for leaf in jax.tree.leaves(result.grads):
        assert np.isfinite(leaf).all()
    assert float(result.grads.net.biases[-1][1]) == 0.0


def test_cql_pushes_down_the_sum_over_all_labels() -> None:
    state = cql.State(random_policy(0), random_policy(1), None, jnp.zeros(2), jnp.int32(0))
    config = dataclasses.replace(cql.Config(), gamma=0.9)
    action = np.eye(K, dtype=np.float32)[[0, 1, 2, 3, 0]]
    terminal = np.array([False, True, False, False, False])
    batch = Transitions(*map(jnp.asarray, (np.zeros((N, 1)), action, np.arange(5.0), np.zeros((N, 1)), terminal)))
    next_q, target_q = (np.asarray(net.net(features())) for net in (state.critic, state.target_critic))
    best = target_q[np.arange(N), next_q.argmax(1)]
    by_hand = np.arange(5.0) + 0.9 * np.where(terminal, 0.0, best)
    np.testing.assert_allclose(cql.q_target(config, state, features(), batch), by_hand, rtol=1e-5)
    q_data = (next_q * action).sum(1)
    gap = (logsumexp(next_q, axis=1) - q_data).mean()
    np.testing.assert_allclose(cql.gap(state.critic, features(), jnp.asarray(q_data)), gap, rtol=1e-5)


def test_sac_takes_expectations_over_labels() -> None:
    actor, critic = random_policy(0), mlp_stack(jax.random.PRNGKey(3), 2, [F + K, 8, 1])
    q, log_prob = lowest_q(actor, critic, features(), jnp.zeros((N, K)))
    log_pi = logs(actor)
    each = [np.asarray(q_values(critic, features(), jnp.tile(jnp.eye(K)[k], (N, 1)))).min(0) for k in range(K)]
    np.testing.assert_allclose(q, (np.exp(log_pi) * np.stack(each, 1)).sum(1), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(log_prob, (np.exp(log_pi) * log_pi).sum(1), rtol=1e-4)


def test_the_numpy_head_is_the_network() -> None:
    mask = np.array([[2, 1, -0.5, 0.5], [0, 0, 0.0, 9.0]], np.float32)
    policy = random_policy(0, mask)
    weights, biases = (tuple(map(np.asarray, layers)) for layers in (policy.net.weights, policy.net.biases))
    fields = {"net": Net(weights, biases, policy.net.activation), "mask": mask}
    x = np.asarray(features())
    logits = categorical_logits(fields, x)
    np.testing.assert_allclose(logits, policy.logits(features()), rtol=1e-5)
    assert (logits == MASKED).any()
    np.testing.assert_array_equal(categorical(fields, x, None), policy.unit_action(features()))
    many = np.repeat(x[:1], 20_000, axis=0)
    share = categorical(fields, many, np.random.default_rng(0)).mean(0)
    np.testing.assert_allclose(share, np.asarray(policy(features()).p)[0], atol=0.02)
