"""PSPO's settings. The string under a field is its help; presets/pspo.toml holds the numbers of the presets."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Annotated, Literal

from pspo.algorithms.common.behaviour import ReferenceConfig
from pspo.algorithms.common.settings import LoopConfig
from pspo.core.config import Bounds
from pspo.core.errors import UserError
from pspo.dynamics.fit import ModelConfig


@dataclass(frozen=True)
class Config(LoopConfig):
    alpha: Annotated[float, Bounds(1e-6, 1e6)] = 0.01
    """Strength of the pull towards the reference policy mu (Eq. 7)."""
    kl_limit: Annotated[float, Bounds(0.0, 1e6)] = 0.0
    """KL(pi||mu) of one state, in nats per action dimension, beyond which alpha rises there; 0: never."""
    kl_limit_rise: Annotated[float, Bounds(1.0, 1e3)] = 1.0
    """With `value_rollouts`: how many times kl_limit rises at most, as the models disagree less along the policy's
    rollouts than along mu's; 1: never."""
    beta: Annotated[float, Bounds(0.0, 1e12)] = 1.0
    """Likelihood coefficient of the posterior (Eq. 4); 0 is the uniform posterior."""
    epsilon: Annotated[float, Bounds(1e-6, 1e6)] = 0.02
    """Trust region: KL(pi || target policy) that lambda is adapted to (Eq. 9)."""
    posterior: Literal["consistency", "uniform"] = "consistency"
    """Ablation "average utilisation": uniform ignores F (the same as beta=0)."""
    reference_term: bool = True
    """Ablation "without regularisation": false drops mu from evaluation and improvement."""
    value_of: Literal["optimum", "policy", "mode"] = "optimum"
    """V(s): the soft optimum of Eq. 8, or the present policy's value with its KL cost, with or without its noise."""
    improvement: Literal["weights", "gradient"] = "weights"
    """Step of Eq. 9: its closed form as weights of actions, or along its gradient (V is then the policy's)."""
    prior: Literal["uniform", "likelihood"] = "uniform"
    """P(T): uniform as in the paper, or from the members' hold-out likelihood."""
    f_unit: Literal["std", "reward"] = "std"
    """Unit of F: its running standard deviation between models, or normalised reward squared (as in the paper)."""
    redraw: Literal["step", "episode"] = "step"
    """Draw the rollout's model from the posterior at every step (Eq. 1) or once per episode (Eq. 2)."""
    active: Annotated[int, Bounds(1, 1000)] = 10
    """Models in the active set (N), drawn from the pool for every chunk."""
    next_pairs: Annotated[int, Bounds(1, 64)] = 2
    """Antithetic pairs of next states per model and backup."""
    model_noise: Annotated[float, Bounds(0.0, 10.0)] = 1.0
    """Scale of the noise that models predict; 0 takes their means (deterministic tasks)."""
    action_samples: Annotated[int, Bounds(1, 1024)] = 8
    """Actions from mu, and as many from the policy, per soft value."""
    real_batch: Annotated[int, Bounds(1, 65536)] = 128
    """Transitions of the dataset per iteration."""
    synthetic_batch: Annotated[int, Bounds(1, 65536)] = 128
    """Synthetic transitions per iteration: one of each persistent rollout, which advances, or of `value_rollouts`."""
    rollout_horizon: Annotated[int, Bounds(1, 1_000_000)] = 20
    """Steps after which a rollout restarts from a state of the dataset, and length of `value_rollouts`."""
    visited: Annotated[int, Bounds(0, 100_000_000)] = 0
    """Past rollout states that synthetic transitions start from; 0 takes the present states of the rollouts."""
    value_rollouts: Annotated[int, Bounds(0, 100_000)] = 0
    """Rollouts per chunk whose lambda-returns the value network learns beside the soft values of Eq. 8, and whose
    states take the place of those of the persistent rollouts; 0: none."""
    mode_rollouts: Annotated[float, Bounds(0.0, 1.0)] = 0.0
    """Fraction of the policy's rollout actions taken without noise, as the policy is deployed."""
    termination: Literal["auto", "known", "learned", "none"] = "auto"
    """Termination of rollouts: the task's rule, a learned classifier, or none; auto: the rule if there is one."""
    box: Literal["none", "end"] = "none"
    """Predictions outside the dataset's range: allowed, or the end of a rollout at the dataset's worst value."""
    box_margin: Annotated[float, Bounds(0.0, 100.0)] = 0.1
    """For box=end: how far outside, as a share of each column's range; a column that saturates has no limit there."""
    clip_targets: bool = False
    """Clip backups to what rewards of the dataset's range can add up to."""
    discounted_fraction: Annotated[float, Bounds(0.0, 1.0)] = 0.0
    """Fraction of transitions and rollout starts drawn with weight gamma^t, as in the objective; the rest uniformly."""
    width: Annotated[int, Bounds(4, 4096)] = 64
    """Units in a hidden layer of critics and value network."""
    depth: Annotated[int, Bounds(1, 8)] = 2
    """Hidden layers of critics and value network."""
    critics: Annotated[int, Bounds(1, 64)] = 2
    """Number of critics."""
    critic_value: Literal["mean", "min"] = "mean"
    """Value of several critics: their mean (less noise) or their minimum (pessimistic)."""
    layer_norm: bool = False
    """Layer normalisation in critics and value network."""
    start_steps: Annotated[int, Bounds(0, 100_000_000)] = 0
    """Steps that fit the critics to the dataset's discounted returns before training: they start at mu's value."""
    critic_lr: Annotated[float, Bounds(0.0, 1.0)] = 1e-3
    """Learning rate of critics and value network."""
    policy_lr: Annotated[float, Bounds(0.0, 1.0)] = 1e-3
    """Learning rate of the policy."""
    final_lr: Annotated[float, Bounds(0.0, 1.0)] = 0.05
    """Learning rates fall over the second half to this fraction."""
    tau: Annotated[float, Bounds(0.0, 1.0)] = 0.02
    """Moving-average rate of the target critics."""
    policy_tau: Annotated[float, Bounds(0.0, 1.0)] = 0.02
    """Moving-average rate of the target policy pi', around which the trust region lies."""
    lambda_init: Annotated[float, Bounds(1e-6, 1e6)] = 0.02
    """Trust-region multiplier lambda at the start."""
    lambda_lr: Annotated[float, Bounds(0.0, 10.0)] = 0.01
    """How fast lambda follows the measured KL; 0 keeps it fixed."""
    model: ModelConfig = dataclasses.field(default_factory=ModelConfig)
    reference: ReferenceConfig = dataclasses.field(default_factory=ReferenceConfig)

    def __post_init__(self) -> None:
        if self.value_of == "mode" and self.improvement != "gradient":
            raise UserError("value_of=mode needs improvement=gradient: weights of sampled actions have no mode.")
        if self.value_rollouts and self.value_of != "mode":
            raise UserError("value_rollouts needs value_of=mode: those rollouts act by the mode of the policy.")
        if self.kl_limit_rise > 1.0 and not self.value_rollouts:
            raise UserError("kl_limit_rise needs value_rollouts, along which the models' disagreement is measured.")
        if self.value_rollouts and self.visited:
            raise UserError("visited has no effect with value_rollouts, which gives the states: set one of them to 0.")
