"""Where rollouts end: by the rule of the task, by a classifier learned from the dataset, or never."""

from __future__ import annotations

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from pspo.core.errors import UserError
from pspo.data.dataset import Dataset
from pspo.data.normalise import Normaliser
from pspo.nets.mlp import MLP, mlp

CLASSIFIER_STEPS = 2000
CLASSIFIER_BATCH = 512


class KnownTermination(eqx.Module):
    """The rule of the task, on raw observations and actions."""

    rule: Callable[[Array, Array, Array], Array] = eqx.field(static=True)

    def __call__(self, norm: Normaliser, obs: Array, unit_action: Array, next_obs: Array) -> Array:
        return self.rule(obs, norm.from_unit(unit_action), next_obs)


class LearnedTermination(eqx.Module):
    """A classifier of (state, action, next state): an episode ends if that is more likely than not.

    If terminals were logged without their next states, it sees only state and action: the placeholder for the next
    state would give every terminal away in training, and never occurs in a rollout.
    """

    net: MLP
    sees_next: bool = eqx.field(static=True, default=True)

    def __call__(self, norm: Normaliser, obs: Array, unit_action: Array, next_obs: Array) -> Array:
        if self.sees_next:
            return self.net(_features(norm, obs, unit_action, next_obs))[..., 0] > 0.0
        ends = self.net(_features(norm, obs, unit_action, None))[..., 0] > 0.0
        return jnp.broadcast_to(ends, next_obs.shape[:-1])


class NeverTerminates(eqx.Module):
    """For tasks that do not end."""

    def __call__(self, norm: Normaliser, obs: Array, unit_action: Array, next_obs: Array) -> Array:
        return jnp.zeros(next_obs.shape[:-1], bool)


class AlwaysTerminates(eqx.Module):
    """For datasets of single decisions: every transition is terminal."""

    def __call__(self, norm: Normaliser, obs: Array, unit_action: Array, next_obs: Array) -> Array:
        return jnp.ones(next_obs.shape[:-1], bool)


Termination = KnownTermination | LearnedTermination | NeverTerminates | AlwaysTerminates


def _features(norm: Normaliser, obs: Array, unit_action: Array, next_obs: Array | None) -> Array:
    now = jnp.concatenate([norm.encode(obs), unit_action], axis=-1)
    if next_obs is None:
        return now
    now = jnp.broadcast_to(now, (*next_obs.shape[:-1], now.shape[-1]))
    return jnp.concatenate([now, norm.encode(next_obs)], axis=-1)


def fit_classifier(
    dataset: Dataset, norm: Normaliser, width: int, seed: int
) -> tuple[LearnedTermination, dict[str, float]]:
    """A small logistic network. Terminals are rare, so half of every batch are terminals; the bias is corrected."""
    key = jax.random.PRNGKey(seed)
    unit = jnp.asarray(norm.unit_action(dataset.action))
    sees_next = bool(dataset.next_known.all())
    x = _features(norm, jnp.asarray(dataset.obs), unit, jnp.asarray(dataset.next_obs) if sees_next else None)
    train, holdout = dataset.split(0.05, seed)
    ends, continues = train[dataset.terminal[train]], train[~dataset.terminal[train]]
    if not (len(ends) and len(continues)):  # all examples of one class are in the hold-out: learn from all transitions
        ends, continues = np.flatnonzero(dataset.terminal), np.flatnonzero(~dataset.terminal)
    net = mlp(key, [x.shape[-1], width, width, 1], last_scale=0.1)
    optimiser = optax.adam(optax.cosine_decay_schedule(1e-3, CLASSIFIER_STEPS))
    half, ends, continues = CLASSIFIER_BATCH // 2, jnp.asarray(ends), jnp.asarray(continues)
    label = jnp.repeat(jnp.array([1.0, 0.0]), half)

    @jax.jit
    def run(net, opt, x):
        def step(carry, k):
            net, opt = carry
            a, b = jax.random.split(k)
            pick = jnp.concatenate([jax.random.choice(a, ends, (half,)), jax.random.choice(b, continues, (half,))])
            loss = lambda n: optax.sigmoid_binary_cross_entropy(n(x[pick])[:, 0], label).mean()  # noqa: E731
            updates, opt = optimiser.update(jax.grad(loss)(net), opt)
            return (optax.apply_updates(net, updates), opt), None

        return jax.lax.scan(step, (net, opt), jax.random.split(key, CLASSIFIER_STEPS))[0][0]

    net = run(net, optimiser.init(net), x)  # pyright: ignore[reportArgumentType]
    prior_shift = np.log(len(ends) / len(continues))  # half of every batch are terminals; the dataset is not
    net = eqx.tree_at(lambda n: n.biases[-1], net, net.biases[-1] + prior_shift)
    predicted = np.asarray(net(x[holdout])[:, 0] > 0)
    truth = dataset.terminal[holdout]
    return LearnedTermination(net, sees_next), {
        "termination_holdout_error": float((predicted != truth).mean()),
        "termination_holdout_base_rate": float(truth.mean()),
    }


def make_termination(
    choice: str, dataset: Dataset, rule: Callable | None, norm: Normaliser, width: int, seed: int
) -> tuple[Termination, dict[str, float | str]]:
    """The termination rule of a run, and its metadata for the report."""
    if choice == "auto":
        choice = "known" if rule is not None else "learned"
    if choice == "known" and rule is None:
        raise UserError(
            f"termination=known needs a task with a rule, and '{dataset.name}' has none: use learned or none."
        )
    if choice == "learned" and dataset.terminal.all():
        return AlwaysTerminates(), {"termination": "always"}
    if choice == "learned" and not dataset.terminal.any():
        choice = "none"  # no example of a terminal
    if choice == "known":
        assert rule is not None
        return KnownTermination(rule), {"termination": "known"}
    if choice == "learned":
        classifier, metadata = fit_classifier(dataset, norm, width, seed)
        return classifier, {"termination": "learned", **metadata}
    return NeverTerminates(), {"termination": "none"}
