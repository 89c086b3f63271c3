"""PMDB's settings. The string under a field is its help; the defaults are the authors' but for the models' recipe."""

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
    """k: the model with the k-th lowest value goes on; 1 is the most careful, N the most hopeful."""
    explore: Annotated[float, Bounds(0.0, 1.0)] = 0.1
    """Probability that chains take a step in any of the drawn models."""
    kl_target: Annotated[float, Bounds(1e-6, 1e6)] = 5.0
    """Divergence from pi_ref, in nats, that the temperature of every state is made for; larger is greedier."""
    lowest_temperature: Annotated[float, Bounds(1e-9, 1e6)] = 1e-3
    """Least temperature, in the critics' unit of value."""
    reference_tau: Annotated[float, Bounds(0.0, 1.0)] = 1e-5
    """Moving-average rate of pi_ref."""
    next_pairs: Annotated[int, Bounds(1, 64)] = 5
    """Antithetic pairs of next states per model and backup."""
    action_samples: Annotated[int, Bounds(2, 1024)] = 20
    """Actions per soft value, half of them from pi_ref."""
    imitation_std: Annotated[float, Bounds(1e-6, 10.0)] = 0.1
    """Spread, before the tanh, of proposals around logged actions."""
    real_batch: Annotated[int, Bounds(1, 65536)] = 128
    """Rows from the log per iteration."""
    synthetic_batch: Annotated[int, Bounds(1, 65536)] = 128
    """Game states: chains that advance by one step per iteration."""
    rollout_horizon: Annotated[int, Bounds(1, 1_000_000)] = 1000
    """Steps after which a chain restarts from a logged state."""
    termination: Literal["auto", "known", "learned", "none"] = "auto"
    """Ends of rollouts: the task's own rule, a classifier, or never; auto takes the rule where there is one."""
    states: Literal["raw", "zscore", "features"] = "features"
    """What networks see: states as they are, standardised, or standardised with counters spread out (as PSPO)."""
    rewards: Literal["unit", "raw", "range", "std"] = "unit"
    """The authors' map into [0, 1], which shifts rewards; or the units that other algorithms have, which do not."""
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
