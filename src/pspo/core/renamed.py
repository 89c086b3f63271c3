"""Names of version 0.1 that changed or are gone: settings, metrics and arrays of old runs are read as they are now.

A setting given by hand under its old name is accepted with a warning until version 0.3.
"""

from __future__ import annotations

from typing import Any

SETTINGS = {
    "actor_rate": "actor_lr",
    "adversary_rate": "adversary_lr",
    "baseline_rate": "baseline_lr",
    "centre_rate": "policy_tau",
    "cloning_rate": "cloning_lr",
    "critic_rate": "critic_lr",
    "discounted_rows": "discounted_fraction",
    "early_rows": "early_fraction",
    "final_rate": "final_lr",
    "fisher_rows": "fisher_batch",
    "learning_rate": "lr",
    "policy_rate": "policy_lr",
    "rate": "lr",
    "reference_rate": "reference_tau",
    "target_rate": "tau",
    "trust": "lambda_init",
    "trust_rate": "lambda_lr",
    "vae_rate": "vae_lr",
}
"""Last part of a dotted name, such as the learning_rate of model.learning_rate."""

VALUES = {
    ("box", "clip"): "none",
    ("f_unit", "spread"): "std",
    ("pessimism", "spread"): "std",
    ("rewards", "spread"): "std",
}

REMOVED = {"policy_wait": 0, "prior_temperature": 0.05, "reference_rollouts": 0.2}
"""Settings that are gone, with the value that means what happens now. No algorithm may have a setting of that name."""

REMOVED_OF = {"td3bc": {"imitation": 1.0}, "morel": {"form": "npg"}}
"""The same of one algorithm: another may have a setting of that name."""

UNUSED_OF = {
    "morel": {
        *("real_ratio", "starts", "retain", "alpha", "adapt_alpha", "entropy_goal"),
        *("critic_lr", "actor_lr", "alpha_lr", "actor_decay", "tau"),
    }
}
"""Settings that an algorithm had and did not use (MOReL: unless it learned by SAC, which is gone)."""

METRICS = {
    "chain_age": "rollout_age",
    "f_spread": "f_scale",
    "imagined_episodes": "model_episodes",
    "imagined_return": "model_return",
    "kl_centre": "kl_target_policy",
    "centre_return_mean": "target_policy_return_mean",
    "centre_score": "target_policy_score",
    "centre_score_by_regret": "target_policy_score_by_regret",
}

STATE = {
    ".buffer.rows": ".buffer.transitions",
    ".centre": ".target_policy",
    ".chains": ".rollouts",
    ".f_spread": ".f_scale",
    ".learned": ".params",
    ".log_trust": ".log_lambda",
}
"""First fields of the arrays of an algorithm's state, as checkpoints spell them."""


EPQ = {"tau": "support_threshold", "target_rate": "target_tau"}
"""EPQ alone had a tau that was not the rate of the target networks."""


def new_setting(name: str, value: Any, of_epq: bool = False, algo: str = "") -> tuple[str, Any] | None:
    """The present name and value of a setting; None for one that is gone and had no effect."""
    path, dot, last = name.rpartition(".")
    if (constant := removed(name, algo)) is not None and _equal(value, constant):
        return None
    last = EPQ[last] if of_epq and last in EPQ else SETTINGS.get(last, last)
    return f"{path}{dot}{last}", VALUES.get((last, value), value) if isinstance(value, str) else value


def removed(name: str, algo: str = "") -> float | str | None:
    """What a setting that is gone always is now; None for any other."""
    constants = REMOVED | REMOVED_OF.get(algo, {})
    return constants.get(name.rpartition(".")[2])


def _equal(value: Any, constant: float | str) -> bool:
    """Also of a text, as the command line gives it."""
    if isinstance(constant, str):
        return value == constant
    try:
        return float(value) == constant
    except (TypeError, ValueError, OverflowError):
        return False


def new_settings(settings: dict[str, Any], algo: str = "") -> dict[str, Any]:
    """Settings of a run of any version."""
    of_epq = "tau" in settings and "target_rate" in settings
    pairs = dict(pair for name, value in settings.items() if (pair := new_setting(name, value, of_epq, algo)))
    if any(removed(name, algo) is not None for name in pairs):
        return pairs  # another form of the algorithm, which used all of them: `build` refuses it
    return {name: value for name, value in pairs.items() if name not in UNUSED_OF.get(algo, ())}


def new_metrics(row: dict[str, Any]) -> dict[str, Any]:
    """A row of metrics, or a result, of a run of any version."""
    return {METRICS.get(name, name): value for name, value in row.items()}


def new_array_name(name: str) -> str:
    """An array's name in a checkpoint of any version: only its first fields may have changed."""
    first = next((old for old in STATE if name.startswith(old) and not name[len(old) :][:1].isidentifier()), None)
    return STATE[first] + name[len(first) :] if first else name
