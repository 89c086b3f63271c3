"""Fitted Q evaluation: critics of the policy alone, learned from the log, several on resampled episodes.

    Q(s, a) <- r + gamma Q'(s', pi(s')),     J = mean of Q(s_0, pi(s_0)) over the log's first states

Each critic sees the log as another draw of its episodes would have been (the Bayesian bootstrap: every episode has an
exponential weight), so that the spread of the critics is the error that comes from the log's size. After a terminal
nothing follows; after a time-out the value of the state that was reached does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from pspo.core.progress import Progress, silent
from pspo.evaluation.ope.blocks import in_blocks
from pspo.evaluation.ope.estimates import Estimate, student
from pspo.evaluation.ope.subject import Subject
from pspo.nets.mlp import MLP, apply_each, apply_stack, mlp_stack, moving_average

VALUE_ACTIONS = 4  # draws of a policy with noise per state value


@dataclass(frozen=True)
class FittedQConfig:
    critics: int = 8
    width: int = 64
    depth: int = 2
    steps: int = 10_000
    batch: int = 256
    lr: float = 3e-3  # a third of it leaves even the last rewards of an episode unfitted
    tau: float = 0.01
    chunk: int = 1000  # steps between two signs of progress, and two draws of the policy's next actions


class FittedQ(NamedTuple):
    critic: MLP  # a stack
    weight: np.ndarray  # (critics, episodes), mean 1 each

    def q(self, features: Array, action: Array) -> Array:
        """(critics, rows), in normalised units."""
        return apply_stack(self.critic, jnp.concatenate([features, action], axis=-1))[..., 0]


class PolicyTransitions(NamedTuple):
    """The log as critics see it; each has a row per transition."""

    now: Array  # features and action
    after: Array  # features and the policy's action in the next state
    reward: Array
    goes_on: Array  # 0 after a terminal, else 1
    episode: Array


def fit_q(
    subject: Subject, config: FittedQConfig, sampled: bool = False, seed: int = 0, progress: Progress = silent
) -> FittedQ:
    """`sampled`: of the policy with its noise, whose next actions are drawn anew in every chunk."""
    lengths = subject.data.episode_lengths()
    drawn = np.random.default_rng(seed).exponential(size=(config.critics, len(lengths)))
    weight = drawn / drawn.mean(1, keepdims=True)
    key = jax.random.PRNGKey(seed)
    sizes = [subject.norm.features + subject.data.action_dim, *[config.width] * config.depth, 1]
    critic = mlp_stack(jax.random.fold_in(key, 0), config.critics, sizes, last_scale=0.1)
    learn = _compile(config)
    next_actions = _next_actions(subject, sampled)
    rows = _rows(subject, next_actions(jax.random.fold_in(key, 1)))
    carry: Any = (critic, critic, _rule(config).init(critic))  # pyright: ignore[reportArgumentType]
    weights, done = jnp.asarray(weight, jnp.float32), 0
    while done < config.steps:
        count = min(config.chunk, config.steps - done)
        key_chunk = jax.random.fold_in(key, 2 + done)
        if sampled and done:
            rows = _with_actions(rows, next_actions(key_chunk))
        carry = learn(carry, rows, weights, subject.gamma, key_chunk, count)
        done += count
        progress("fitted Q, with noise" if sampled else "fitted Q", done, config.steps, {})
    return FittedQ(carry[1], weight)


def _rule(config: FittedQConfig) -> optax.GradientTransformation:
    return optax.adam(optax.cosine_decay_schedule(config.lr, config.steps))


@cache
def _compile(config: FittedQConfig) -> Callable[..., Any]:
    """One program for all policies: the log is an argument, so that it is not baked in."""
    rule = _rule(config)

    @partial(jax.jit, static_argnames="count")
    def learn(carry: Any, rows: PolicyTransitions, weight: Array, gamma: Array, key: Array, count: int) -> Any:
        def step(carry: Any, k: Array) -> tuple[Any, None]:
            critic, target, opt = carry
            pick = jax.random.randint(k, (config.critics, config.batch), 0, rows.now.shape[0])
            ahead = apply_each(target, rows.after[pick])[..., 0]
            backup = rows.reward[pick] + gamma * rows.goes_on[pick] * ahead
            w = jnp.take_along_axis(weight, rows.episode[pick], axis=1)

            def loss(critic: MLP) -> Array:
                return (w * jnp.square(apply_each(critic, rows.now[pick])[..., 0] - backup)).mean(1).sum()

            updates, opt = rule.update(jax.grad(loss)(critic), opt, critic)
            critic = optax.apply_updates(critic, updates)
            return (critic, moving_average(target, critic, config.tau), opt), None

        return jax.lax.scan(step, carry, jax.random.split(key, count))[0]

    return learn


def _rows(subject: Subject, next_action: np.ndarray) -> PolicyTransitions:
    """Encoded once: critics then see nothing but matrix products."""
    log, lengths = subject.device_data.transitions, subject.data.episode_lengths()
    return PolicyTransitions(
        now=jnp.concatenate([subject.norm.encode(log.obs), log.action], axis=-1),
        after=jnp.concatenate([subject.norm.encode(log.next_obs), jnp.asarray(next_action)], axis=-1),
        reward=log.reward,
        goes_on=1.0 - log.terminal,
        episode=jnp.asarray(np.repeat(np.arange(len(lengths)), lengths)),
    )


def _with_actions(rows: PolicyTransitions, action: np.ndarray) -> PolicyTransitions:
    return rows._replace(after=rows.after.at[:, -action.shape[-1] :].set(action))


def _next_actions(subject: Subject, sampled: bool) -> Callable[[Array], np.ndarray]:
    """(key) -> (rows, action_dim): the policy's action in every next state."""

    @jax.jit
    def act(network: Any, key: Array, first: Array, obs: Array) -> Array:
        return subject._replace(network=network).act(obs, jax.random.fold_in(key, first) if sampled else None)

    return lambda key: in_blocks(partial(act, subject.network, key), subject.device_data.transitions.next_obs)


class LogValues(NamedTuple):
    """(rows,) each, means over critics, in the log's units."""

    q: np.ndarray  # Q(s, a)
    here: np.ndarray  # V(s)
    ahead: np.ndarray  # V(s'), zero after an end


def log_values(subject: Subject, fitted: FittedQ, sampled: bool = False, seed: int = 0) -> LogValues:
    """What the critics say of every row; V of a policy with noise is a mean over some of its actions."""
    rows, norm, scale = subject.device_data.transitions, subject.norm, float(subject.norm.reward_scale)
    keys = jax.random.split(jax.random.PRNGKey(seed), VALUE_ACTIONS) if sampled else None

    @jax.jit
    def look(
        networks: Any, first: Array, obs: Array, action: Array, next_obs: Array, terminal: Array
    ) -> tuple[Array, Array, Array]:
        policy, critics = subject._replace(network=networks[0]), fitted._replace(critic=networks[1])

        def value(obs: Array, k: Array | None) -> Array:
            return critics.q(norm.encode(obs), policy.act(obs, k)).mean(0)

        def mean_value(obs: Array, which: int) -> Array:
            if keys is None:
                return value(obs, None)
            own = jax.vmap(lambda k: jax.random.fold_in(jax.random.fold_in(k, which), first))(keys)
            return jax.lax.map(lambda k: value(obs, k), own).mean(0)

        q = critics.q(norm.encode(obs), action).mean(0)
        return q, mean_value(obs, 0), jnp.where(terminal, 0.0, mean_value(next_obs, 1))

    block = partial(look, (subject.network, fitted.critic))
    found = in_blocks(block, rows.obs, rows.action, rows.next_obs, rows.terminal)
    return LogValues(*(scale * part.astype(np.float64) for part in found))


def by_fitted_q(subject: Subject, fitted: FittedQ, confidence: float) -> Estimate:
    """Each critic's mean over its own weighing of the first states; their spread is the standard error."""
    starts = jnp.asarray(subject.starts)
    values = np.asarray(fitted.q(subject.norm.encode(starts), subject.act(starts)), np.float64)
    found = summarise(values * float(subject.norm.reward_scale), fitted.weight, confidence)
    return replace(found, numbers=found.numbers | {"contradiction": contradiction(subject, fitted)})


def contradiction(subject: Subject, fitted: FittedQ) -> float:
    """What the critics' own values and the log's rewards differ by in an episode of the log; none once they are fitted.

    The mean over episodes of sum_t gamma^t (r_t + gamma V(s_{t+1}) - Q(s_t, a_t)).
    """
    values, data = log_values(subject, fitted), subject.data
    surprise = data.reward + subject.gamma * values.ahead - values.q
    return float((subject.gamma ** data.ages() * surprise).sum() / len(subject.starts))


def summarise(values: np.ndarray, weight: np.ndarray, confidence: float) -> Estimate:
    """From the critics' values of the first states (critics, episodes), and the episodes' weights."""
    each = (values * weight).sum(1) / weight.sum(1)
    value, error = float(each.mean()), float(each.std(ddof=1)) if len(each) > 1 else float("inf")
    half = student(confidence, len(each) - 1) * error
    numbers = {"standard_error": error, "lowest_critic": float(each.min()), "highest_critic": float(each.max())}
    return Estimate("fitted Q", value, value - half, value + half, "mode", numbers)
