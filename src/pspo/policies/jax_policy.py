"""A trained policy on JAX's device, with the same observations, names and checks as in NumPy (policy.py)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax import Array

from pspo.core.errors import UserError
from pspo.data.discrete import Label
from pspo.nets.actors import act
from pspo.policies.labels import choose_label, probabilities, require_defined
from pspo.policies.named_observations import describe
from pspo.policies.policy import Policy, load_policy, to_network


class JaxPolicy:
    """`policy(obs)` gives the action for one observation or a batch, without noise, as `Policy` does, by JAX.

    Observations are arrays in the order of the dataset, or have names. Actions are JAX arrays; those of a policy with
    `action_labels` are labels, as NumPy has them. Every new shape of a batch is compiled once. Inside `jax.jit` or
    `jax.vmap`, where no names exist, use `act_encoded`.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.network = to_network(policy)
        self._act = jax.jit(self.act_encoded)
        self._logits = jax.jit(lambda obs: self.network.logits(policy.norm.encode(obs)))

    @classmethod
    def load(cls, source: str | Path) -> JaxPolicy:
        """The policy of a run directory, or of a policy file."""
        return cls(load_policy(source))

    def __call__(self, obs: Any) -> Any:
        """The action for one observation, or for each of an array with any leading shape, table or list, by name."""
        if self.discrete:
            return choose_label(self.logits(obs), self.action_labels, None)
        return self._act(self.policy.encoded(obs))

    def sample(self, obs: Any, key: Array) -> Any:
        """A random action for each observation, from a JAX key."""
        encoded = self.policy.encoded(obs)
        if not self.discrete:
            return self._act(encoded, key)
        require_defined(np.asarray(self._logits(encoded)))
        return choose_label(np.asarray(self._act(encoded, key)), self.action_labels, None)

    def logits(self, obs: Any) -> np.ndarray:
        """(..., labels) of discrete actions, in the order of `action_labels`."""
        if not self.discrete:
            raise UserError("this policy has quantities as actions: only discrete actions have logits.")
        return require_defined(np.asarray(self._logits(self.policy.encoded(obs))))

    def probabilities(self, obs: Any) -> np.ndarray:
        """(..., labels) of discrete actions: zero where a label is not available."""
        return probabilities(self.logits(obs))

    def act_encoded(self, obs: Array, key: Array | None = None) -> Array:
        """The action for observations as `Policy.encoded` gives them; a discrete one as a one-hot vector.

        It can be transformed by JAX and checks nothing. With a key the action is random.
        """
        return act(self.network, self.policy.norm, obs, key)

    def __repr__(self) -> str:
        """One line: what goes in, what comes out, where it comes from."""
        return describe("JaxPolicy", self)

    @property
    def observation_names(self) -> tuple[str, ...]:
        """Of the columns, in their order; none where the dataset has no names."""
        return self.policy.observation_names

    @property
    def action_names(self) -> tuple[str, ...]:
        """Of the action's columns; none where the dataset has no names."""
        return self.policy.action_names

    @property
    def action_labels(self) -> tuple[Label, ...]:
        """Of discrete actions; none where actions are quantities."""
        return self.policy.action_labels

    @property
    def action_bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """The lowest and the highest value of every action column."""
        return self.policy.action_bounds

    @property
    def discrete(self) -> bool:
        """Whether actions are labels."""
        return self.policy.discrete

    @property
    def raw_dim(self) -> int:
        """How many values an observation has that the policy is called with."""
        return self.policy.raw_dim

    @property
    def action_dim(self) -> int:
        """How many numbers an action has; how many labels, where it is discrete."""
        return self.policy.action_dim

    @property
    def metadata(self) -> dict[str, Any]:
        """Where it comes from: algo, dataset, task, seed, preset, step."""
        return self.policy.metadata
