"""Theorem 3: the constrained step of Eq. (9) (opt:eq3), solved exactly, and the condition under which it improves J.

The divergence in the constraint is taken along the new policy's own discounted visits,
D(pi || pi_i) = (1 - gamma) E_pi sum_t gamma^t KL(pi(.|s_t) || pi_i(.|s_t)). There are three reasons for this form:
- J~ - lam D is again a regularised return, so its maximiser is the fixed point of an operator like that of Eq. (8)
  (opt:eq2), for every lam; one scalar search over lam then gives the global optimum of Eq. (9), not a local one.
- Its state-wise solution is the trust-region policy that PSPO itself uses.
- To second order at pi_i it is half the Fisher quadratic form with normalised discounted visits of pi_i, as the
  theorem's proof requires: the dependence of the visits on pi multiplies a KL that is itself of second order.

Gradients are with respect to softmax logits theta(s, a) of the policy.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pspo.theory.ensemble import Array, FiniteEnsemble
from pspo.theory.operators import backup
from pspo.theory.policies import blended_reference, greedy_policy, kl_divergence
from pspo.theory.returns import expected_return, occupancy, regularised_return, state_values


@dataclass(frozen=True)
class ImprovementCondition:
    """The two sides of Theorem 3's condition at one policy, and the slope of J they predict."""

    squared_norm: float  # ||grad J||^2 under the inverse Fisher matrix
    inner_product: float  # <grad J, grad C_KL> under the inverse Fisher matrix
    step_norm: float  # ||grad J~|| under the inverse Fisher matrix

    @property
    def holds(self) -> bool:
        return self.squared_norm > self.inner_product

    @property
    def slope(self) -> float:
        """Limit of (J(pi_{i+1}) - J(pi_i)) / sqrt(2 epsilon) as epsilon goes to zero: the theorem, quantitatively.

        The step tends to sqrt(2 epsilon) F^-1 grad J~ / ||grad J~||; its product with grad J is this number.
        """
        return (self.squared_norm - self.inner_product) / self.step_norm if self.step_norm > 0.0 else 0.0


@dataclass(frozen=True, eq=False)
class ImprovementStep:
    """A policy on the improvement path, with its returns and its distance to the one before."""

    policy: Array
    lam: float  # multiplier of the constraint, 0 where it is slack
    divergence: float  # D(policy || previous policy)
    expected_return: float  # J
    regularised_return: float  # J~


def discounted_divergence(ensemble: FiniteEnsemble, posterior: Array, policy: Array, previous: Array) -> float:
    """D(policy || previous) as defined at the top of this file."""
    visits = (1.0 - ensemble.gamma) * occupancy(ensemble, posterior, policy)
    return float(visits @ kl_divergence(policy, previous))


def return_gradient(
    ensemble: FiniteEnsemble, posterior: Array, policy: Array, mu: Array | None = None, alpha: float = 0.0
) -> Array:
    """Gradient of J~ (of J without mu) in softmax logits, (S, A): visits times policy times advantage."""
    value = state_values(ensemble, posterior, policy, mu, alpha)
    advantage = backup(ensemble, posterior, value) - value[:, None]
    if mu is not None:
        # An action the policy never takes has no gradient, whatever its logarithm says.
        ratio = np.divide(policy, mu, out=np.ones_like(policy), where=policy > 0.0)
        advantage = advantage - alpha * np.log(ratio)
    return occupancy(ensemble, posterior, policy)[:, None] * policy * advantage


def fisher_inner(ensemble: FiniteEnsemble, posterior: Array, policy: Array, first: Array, second: Array) -> float:
    """<first, second> under the (pseudo-)inverse Fisher matrix of the softmax policy at `policy`.

    The matrix has blocks d(s) (diag pi_s - pi_s pi_s^T), d the normalised visits. On gradients, whose entries sum to
    zero at every state, its pseudo-inverse acts as division by d(s) pi(a|s); no matrix is needed.
    """
    weight = (1.0 - ensemble.gamma) * occupancy(ensemble, posterior, policy)[:, None] * policy
    # A pair that is never visited has no gradient and no Fisher information: it contributes nothing.
    return float(np.divide(first * second, weight, out=np.zeros_like(weight), where=weight > 0.0).sum())


def improvement_condition(
    ensemble: FiniteEnsemble, posterior: Array, policy: Array, mu: Array, alpha: float
) -> ImprovementCondition:
    """Both sides of ||grad J||^2 > <grad J, grad C_KL> at a policy; C_KL = J - J~ keeps its gamma^t."""
    plain = return_gradient(ensemble, posterior, policy)
    regularised = return_gradient(ensemble, posterior, policy, mu, alpha)
    penalty = plain - regularised
    return ImprovementCondition(
        squared_norm=fisher_inner(ensemble, posterior, policy, plain, plain),
        inner_product=fisher_inner(ensemble, posterior, policy, plain, penalty),
        step_norm=fisher_inner(ensemble, posterior, policy, regularised, regularised) ** 0.5,
    )


def regularised_optimum(
    ensemble: FiniteEnsemble, posterior: Array, reference: Array, temperature: float, start: Array
) -> Array:
    """argmax over policies of E sum_t gamma^t (r - temperature KL(pi || reference)), by soft policy iteration.

    Evaluation is a linear solve, so this is Newton's method on the fixed-point equation of Eq. (8): a handful of
    iterations where plain value iteration takes hundreds. The reference may be unnormalised.
    """
    policy = start
    for _ in range(1_000):
        value = state_values(ensemble, posterior, policy, reference, temperature)
        following = greedy_policy(backup(ensemble, posterior, value), reference, temperature)
        if np.abs(following - policy).max() <= 1e-14:
            return following
        policy = following
    return policy  # rounding can keep the last digit moving; a thousand Newton iterations have converged


def constrained_step(
    ensemble: FiniteEnsemble, posterior: Array, policy: Array, mu: Array, alpha: float, epsilon: float
) -> ImprovementStep:
    """pi_{i+1} of Eq. (9) from pi_i = policy: the best J~ with D(pi || pi_i) <= epsilon, alpha > 0.

    pi_lam, the maximiser of J~ - lam D, has a D that falls as lam grows. If pi_0 is feasible it is the answer; if not,
    the pi_lam with D = epsilon beats every feasible policy, as any of them would otherwise beat it on J~ - lam D.
    """
    if alpha <= 0.0:
        raise ValueError(f"alpha must be positive, got {alpha}: without it the optimum has no full support")
    if epsilon < 1e-12:
        raise ValueError(f"epsilon must be at least 1e-12, got {epsilon}: a smaller KL drowns in float64 rounding")
    if np.any((policy > 0.0) & (mu == 0.0)):
        raise ValueError("mu must cover every action of the policy: J~ is minus infinity otherwise")

    def solve(lam: float, start: Array) -> tuple[Array, float]:
        reference = blended_reference(mu, policy, alpha, lam)
        solution = regularised_optimum(ensemble, posterior, reference, alpha + lam, start)
        return solution, discounted_divergence(ensemble, posterior, solution, policy)

    lam = 0.0
    solution, divergence = solve(lam, policy)
    if divergence > epsilon:
        low, high = 0.0, alpha
        solution, divergence = solve(high, policy)
        while divergence > epsilon:
            if high > 1e12 * (alpha + ensemble.value_bound):
                raise RuntimeError(f"no multiplier brings the divergence under {epsilon}; it is still {divergence}")
            low, high = high, 4.0 * high
            solution, divergence = solve(high, policy)
        lam = high
        # Bisect, keeping the feasible end as the answer: the constraint holds exactly, not approximately.
        while high - low > 1e-12 * high and divergence < epsilon * (1.0 - 1e-9):
            middle = 0.5 * (low + high)
            candidate, candidate_divergence = solve(middle, solution)
            if candidate_divergence > epsilon:
                low = middle
            else:
                high = lam = middle
                solution, divergence = candidate, candidate_divergence
    return _record(ensemble, posterior, policy=solution, mu=mu, alpha=alpha, lam=lam, divergence=divergence)


def improvement_path(
    ensemble: FiniteEnsemble, posterior: Array, *, start: Array, mu: Array, alpha: float, epsilon: float, steps: int
) -> list[ImprovementStep]:
    """pi_0 .. pi_steps of Theorem 3; the first entry is the start itself."""
    path = [_record(ensemble, posterior, policy=start, mu=mu, alpha=alpha, lam=0.0, divergence=0.0)]
    for _ in range(steps):
        path.append(constrained_step(ensemble, posterior, path[-1].policy, mu, alpha, epsilon))
    return path


def _record(
    ensemble: FiniteEnsemble, posterior: Array, *, policy: Array, mu: Array, alpha: float, lam: float, divergence: float
) -> ImprovementStep:
    return ImprovementStep(
        policy=policy,
        lam=lam,
        divergence=divergence,
        expected_return=expected_return(ensemble, posterior, policy),
        regularised_return=regularised_return(ensemble, posterior, policy, mu, alpha),
    )
