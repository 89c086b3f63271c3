"""What the contraction proofs leave out: the posterior is recomputed from the same Q that is updated.

With the posterior held fixed both operators are gamma-contractions. Algorithm 1 recomputes it from the current Q,
which creates a feedback: raising Q(s,a) favours the models that agree with the higher value, which raises the
target. The strength of that feedback is 2 beta Var(Y), see `feedback_gain`; the fork below has two fixed points.
"""

from __future__ import annotations

import numpy as np

from pspo.theory.ensemble import Array, FiniteEnsemble
from pspo.theory.operators import ValueRule, backup, consistency, model_posterior, target_variance


def reweighted_operator(ensemble: FiniteEnsemble, value_rule: ValueRule, beta: float, q: Array) -> Array:
    """The posterior of Eq. (4) (model:eq1) from Q itself, then the backup, (S, A). Not a contraction in general."""
    value = value_rule(q)
    posterior = model_posterior(ensemble.prior, consistency(ensemble, q, value), beta)
    return backup(ensemble, posterior, value)


def feedback_gain(ensemble: FiniteEnsemble, q: Array, value: Array, beta: float) -> Array:
    """Derivative of the reweighted backup at (s,a) in Q(s,a), with V held fixed (a target network), (S, A).

    log P(T_i|E) has the derivative -2 beta (Q - y_i), y_i the model's target; its covariance with y_i under the
    posterior is 2 beta Var(y), which is 2 beta times the variance of Prop. 2. Above one, the update moves away from Q.
    """
    posterior = model_posterior(ensemble.prior, consistency(ensemble, q, value), beta)
    return 2.0 * beta * target_variance(ensemble, posterior, value)


def fork_ensemble(gamma: float = 0.9) -> FiniteEnsemble:
    """Three states, one action, two equally likely models that disagree at state 0 only.

    Model 0 sends state 0 to state 1, which pays 0 for ever; model 1 sends it to state 2, which pays 1 for ever.
    Whatever Q(0) is, the model that agrees with it gets the weight: the posterior confirms itself.
    """
    transitions = np.zeros((2, 3, 1, 3))
    transitions[0, 0, 0, 1] = transitions[1, 0, 0, 2] = 1.0
    transitions[:, 1, 0, 1] = transitions[:, 2, 0, 2] = 1.0
    return FiniteEnsemble(
        transitions=transitions,
        reward=np.array([[0.0], [0.0], [1.0]]),
        prior=np.array([0.5, 0.5]),
        gamma=gamma,
        initial=np.array([1.0, 0.0, 0.0]),
    )
