"""The paper's operators on finite ensembles, exact and in NumPy, so that its claims can be checked to rounding.

Separate from the rest of pspo: it imports nothing from the other packages, and only tests and readers of the paper
call it.
"""

from pspo.theory.ensemble import FiniteEnsemble, random_distribution, random_ensemble
from pspo.theory.improvement import (
    ImprovementCondition,
    ImprovementStep,
    constrained_step,
    discounted_divergence,
    fisher_inner,
    improvement_condition,
    improvement_path,
    regularised_optimum,
    return_gradient,
)
from pspo.theory.operators import (
    backup,
    consistency,
    evaluation_operator,
    fixed_point,
    model_posterior,
    model_targets,
    optimality_operator,
    policy_value,
    posterior_objective,
    soft_value,
    target_variance,
)
from pspo.theory.policies import blended_reference, greedy_policy, kl_divergence, trust_region_policy
from pspo.theory.returns import (
    episodic_return,
    expected_return,
    mixture_transitions,
    occupancy,
    regularised_return,
    state_values,
)
from pspo.theory.reweighting import feedback_gain, fork_ensemble, reweighted_operator
from pspo.theory.sampling import robbins_monro, sampled_target, step_size

__all__ = [
    "FiniteEnsemble",
    "ImprovementCondition",
    "ImprovementStep",
    "backup",
    "blended_reference",
    "consistency",
    "constrained_step",
    "discounted_divergence",
    "episodic_return",
    "evaluation_operator",
    "expected_return",
    "feedback_gain",
    "fisher_inner",
    "fixed_point",
    "fork_ensemble",
    "greedy_policy",
    "improvement_condition",
    "improvement_path",
    "kl_divergence",
    "mixture_transitions",
    "model_posterior",
    "model_targets",
    "occupancy",
    "optimality_operator",
    "policy_value",
    "posterior_objective",
    "random_distribution",
    "random_ensemble",
    "regularised_optimum",
    "regularised_return",
    "return_gradient",
    "reweighted_operator",
    "robbins_monro",
    "sampled_target",
    "soft_value",
    "state_values",
    "step_size",
    "target_variance",
    "trust_region_policy",
]
