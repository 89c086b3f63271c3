"""PMDB's settings. The string under a field is its help; the defaults are the authors', except for the models."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Annotated, Literal

from pspo.algorithms.common.settings import LoopConfig
from pspo.core.config import Bounds
from pspo.dynamics.fit import ModelConfig


@dataclass(frozen=True)
class Config(LoopConfig):
    active: Annotated[int, Bounds(1, 1000)] = 10
    """N: models drawn from the pool for every step, with replacement."""
    order: Annotated[int, Bounds(1, 1000)] = 2
    """k: the model with the k-th lowest value makes the step; 1 is the most pessimistic, N the most optimistic."""
    explore: Annotated[float, Bounds(0.0, 1.0)] = 0.1
    """Probability that rollouts take a step in any of the drawn models."""
    kl_target: Annotated[float, Bounds(1e-6, 1e6)] = 5.0
    """KL divergence from pi_ref, in nats, that sets the temperature of every state; larger is greedier."""
    lowest_temperature: Annotated[float, Bounds(1e-9, 1e6)] = 1e-3
    """Least temperature, in the critics' unit of value (the authors' number)."""
    reference_tau: Annotated[float, Bounds(0.0, 1.0)] = 1e-5
    """Moving-average rate of pi_ref."""
    next_pairs: Annotated[int, Bounds(1, 64)] = 5
    """Antithetic pairs of next states per model and backup."""
    action_samples: Annotated[int, Bounds(2, 1024)] = 20
    """Actions per soft value, half of them from pi_ref."""
    imitation_std: Annotated[float, Bounds(1e-6, 10.0)] = 0.1
    """Standard deviation, before the tanh, of proposals around real actions (the authors' number)."""
    real_batch: Annotated[int, Bounds(1, 65536)] = 128
    """Real transitions per iteration."""
    synthetic_batch: Annotated[int, Bounds(1, 65536)] = 128
    """Game states: persistent rollouts, each one step further per iteration."""
    rollout_horizon: Annotated[int, Bounds(1, 1_000_000)] = 1000
    """Steps after which a rollout restarts from a state of the dataset."""
    termination: Literal["auto", "known", "learned", "none"] = "auto"
    """Ends of rollouts: the task's own rule, a classifier, or never; auto takes the rule where there is one."""
    states: Literal["raw", "zscore", "features"] = "features"
    """What networks see: states as they are, standardised, or standardised with counters one-hot encoded (as PSPO)."""
    rewards: Literal["unit", "raw", "range", "std"] = "unit"
    """The authors' map into [0, 1], which shifts rewards, or a unit of the other algorithms, which does not."""
    width: Annotated[int, Bounds(4, 4096)] = 256
    """Units in a hidden layer of actor and critics."""
    depth: Annotated[int, Bounds(1, 8)] = 3
    """Hidden layers of actor and critics."""
    critic_lr: Annotated[float, Bounds(0.0, 1.0)] = 3e-4
    """Learning rate of the critics."""
    actor_lr: Annotated[float, Bounds(0.0, 1.0)] = 3e-5
    """Learning rate of the policy."""
    tau: Annotated[float, Bounds(0.0, 1.0)] = 0.005
    """Moving-average rate of the target critics."""
    model: ModelConfig = dataclasses.field(default_factory=ModelConfig)
