"""Critics of one policy, fitted to the dataset (fitted Q evaluation), each on its own resample of the episodes.

    Q(s, a) <- r + gamma Q'(s', pi(s'))                  all rewards until the episode ends
    Q_h(s, a) <- r + gamma Q'_{h-1}(s', pi(s'))          rewards of h steps, Q_0 = 0

Resampling is the Bayesian bootstrap: every critic gives every episode an exponential weight, so that the standard
deviation between critics is the error that comes from the size of the dataset. Terminal states have no value after
them; states at a time-out keep theirs.

Where the return is one of H steps, the number h of steps left is an input of the critics, and drawn for every
transition of a batch, from 1 to H: each transition says something about all of them. The network's output is
multiplied by the share of h among H steps, so that Q_0 is zero and rewards that stay the same need no slope.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from pspo.core.cache import content_key, remember
from pspo.core.files import digest
from pspo.core.progress import Progress, silent
from pspo.core.trees import to_arrays
from pspo.evaluation.blocks import map_blocks
from pspo.evaluation.problem import EvaluationProblem
from pspo.nets.categorical import CategoricalPolicy
from pspo.nets.mlp import MLP, apply_each, apply_stack, mlp_stack, moving_average

VALUE_ACTIONS = 4  # actions that a stochastic policy's state value is averaged over
CACHE_VERSION = 1  # of cached critics; counts up when fitting them gives others


@dataclass(frozen=True)
class FittedQConfig:
    critics: int = 8
    width: int = 64
    depth: int = 2
    steps: int = 10_000
    batch: int = 256
    lr: float = 3e-3  # with a third of it even the last rewards of an episode are not fitted
    tau: float = 0.01
    chunk: int = 1000  # steps between progress updates, and between draws of a stochastic policy's next actions


class FittedQ(NamedTuple):
    critic: MLP  # a stack
    weight: np.ndarray  # (critics, episodes), mean 1 each
    share: Array | None = None  # (H + 1,): see `steps_share`; None for critics of all rewards

    def q(self, features: Array, action: Array, left: Array | None = None) -> Array:
        """(critics, batch), in normalised units. `left` are the steps that count, by default all H."""
        x = jnp.concatenate([features, action], axis=-1)
        if self.share is None:
            return apply_stack(self.critic, x)[..., 0]
        left = jnp.full(x.shape[:-1], self.share.shape[0] - 1) if left is None else left
        return self.share[left] * apply_stack(self.critic, _with_steps(x, left, self.share))[..., 0]


class PolicyTransitions(NamedTuple):
    """The dataset as the critics see it."""

    now: Array  # features and action
    after: Array  # features of the next state and the policy's action there
    reward: Array
    not_terminal: Array  # 0 at a terminal state, else 1
    episode: Array
    share: Array | None = None  # of FittedQ


def steps_share(gamma: float, horizon: int) -> Array:
    """(H + 1,): the discounted number of h steps, as a fraction of that of all H."""
    steps = np.concatenate([[0.0], np.cumsum(np.float64(gamma) ** np.arange(horizon))])
    return jnp.asarray(steps / steps[-1], jnp.float32)


def _with_steps(x: Array, left: Array, share: Array) -> Array:
    """The inputs of critics of a limited number of steps."""
    return jnp.concatenate([x, (left / (share.shape[0] - 1))[..., None]], axis=-1)


def fit_q(
    problem: EvaluationProblem,
    config: FittedQConfig,
    sampled: bool = False,
    seed: int = 0,
    progress: Progress = silent,
) -> FittedQ:
    """Critics of the policy's mode or, with `sampled`, of the stochastic policy, redrawing its actions every chunk."""
    lengths = problem.dataset.episode_lengths()
    drawn = np.random.default_rng(seed).exponential(size=(config.critics, len(lengths)))
    weight = drawn / drawn.mean(1, keepdims=True)
    key = jax.random.PRNGKey(seed)
    critic = mlp_stack(jax.random.fold_in(key, 0), config.critics, _sizes(problem, config), last_scale=0.1)
    learn = _compile(config)
    next_actions = _next_actions(problem, sampled)
    transitions = _policy_transitions(problem, next_actions(jax.random.fold_in(key, 1)))
    carry: Any = (critic, critic, _optimiser(config).init(critic))  # pyright: ignore[reportArgumentType]
    weights, done = jnp.asarray(weight, jnp.float32), 0
    while done < config.steps:
        count = min(config.chunk, config.steps - done)
        key_chunk = jax.random.fold_in(key, 2 + done)
        if sampled and done:
            transitions = _with_actions(transitions, next_actions(key_chunk))
        carry = learn(carry, transitions, weights, problem.gamma, key_chunk, count)
        done += count
        jax.block_until_ready(carry)  # a call only starts the work, and a rate counts what is done
        progress("fitted Q, stochastic" if sampled else "fitted Q", done, config.steps, {})
    return FittedQ(carry[1], weight, transitions.share)


def load_or_fit_critics(problem: EvaluationProblem, config: FittedQConfig, progress: Progress) -> FittedQ:
    """From the cache, or fitted: once per policy, dataset and configuration. The episodes' weights are not kept."""
    base = content_key("fitted-q", CACHE_VERSION, problem.dataset, problem.norm, config, 0)
    assert not problem.bounded  # the key and the shapes are those of critics of all rewards
    form = f"{jax.tree_util.tree_structure(problem.network)} {problem.gamma}"
    key = f"{base}-{digest(to_arrays((problem.network, problem.policy_norm)), form)[:12]}"

    def shapes() -> MLP:
        return jax.eval_shape(lambda k: mlp_stack(k, config.critics, _sizes(problem, config)), jax.random.PRNGKey(0))

    critic, _, _ = remember(key, shapes, lambda: (fit_q(problem, config, progress=progress).critic, {}))
    return FittedQ(critic, np.ones((config.critics, 0)))


def _sizes(problem: EvaluationProblem, config: FittedQConfig) -> list[int]:
    inputs = problem.norm.features + problem.dataset.action_dim + problem.bounded
    return [inputs, *[config.width] * config.depth, 1]


def _optimiser(config: FittedQConfig) -> optax.GradientTransformation:
    return optax.adam(optax.cosine_decay_schedule(config.lr, config.steps))


@cache
def _compile(config: FittedQConfig) -> Callable[..., Any]:
    """One program for all policies: the dataset is an argument, not a constant."""
    optimiser = _optimiser(config)

    @partial(jax.jit, static_argnames="count")
    def learn(carry: Any, data: PolicyTransitions, weight: Array, gamma: Array, key: Array, count: int) -> Any:
        def step(carry: Any, k: Array) -> tuple[Any, None]:
            critic, target, opt = carry
            pick = jax.random.randint(k, (config.critics, config.batch), 0, data.now.shape[0])
            left = _steps_left(jax.random.fold_in(k, 1), pick, data.share)
            next_q = _q_each(target, data.after[pick], data.share, None if left is None else left - 1)
            backup = data.reward[pick] + gamma * data.not_terminal[pick] * next_q
            w = jnp.take_along_axis(weight, data.episode[pick], axis=1)
            if left is not None and data.share is not None:
                w = w / data.share[left]  # a last step counts little in Q, and as much as any other in the return

            def loss(critic: MLP) -> Array:
                return (w * jnp.square(_q_each(critic, data.now[pick], data.share, left) - backup)).mean(1).sum()

            updates, opt = optimiser.update(jax.grad(loss)(critic), opt, critic)
            critic = optax.apply_updates(critic, updates)
            return (critic, moving_average(target, critic, config.tau), opt), None

        return jax.lax.scan(step, carry, jax.random.split(key, count))[0]

    return learn


def _steps_left(key: Array, pick: Array, share: Array | None) -> Array | None:
    """Of every transition of a batch: from 1 to H."""
    return None if share is None else jax.random.randint(key, pick.shape, 1, share.shape[0])


def _q_each(critic: MLP, x: Array, share: Array | None, left: Array | None) -> Array:
    """Every critic on its own batch (critics, batch, inputs), with `left` steps to go where they are limited."""
    if share is None or left is None:
        return apply_each(critic, x)[..., 0]
    return share[left] * apply_each(critic, _with_steps(x, left, share))[..., 0]


def _policy_transitions(problem: EvaluationProblem, next_action: np.ndarray) -> PolicyTransitions:
    """Encoded once, before training."""
    data, lengths = problem.device_data.transitions, problem.dataset.episode_lengths()
    return PolicyTransitions(
        now=jnp.concatenate([problem.norm.encode(data.obs), data.action], axis=-1),
        after=jnp.concatenate([problem.norm.encode(data.next_obs), jnp.asarray(next_action)], axis=-1),
        reward=data.reward,
        not_terminal=1.0 - data.terminal,
        episode=jnp.asarray(np.repeat(np.arange(len(lengths)), lengths)),
        share=steps_share(problem.gamma, problem.horizon) if problem.bounded else None,
    )


def _with_actions(data: PolicyTransitions, action: np.ndarray) -> PolicyTransitions:
    return data._replace(after=data.after.at[:, -action.shape[-1] :].set(action))


def _next_actions(problem: EvaluationProblem, sampled: bool) -> Callable[[Array], np.ndarray]:
    """(key) -> (transitions, action_dim): the policy's action in every next state."""

    @jax.jit
    def act(network: Any, key: Array, first: Array, obs: Array) -> Array:
        return problem._replace(network=network).act(obs, jax.random.fold_in(key, first) if sampled else None)

    return lambda key: map_blocks(partial(act, problem.network, key), problem.device_data.transitions.next_obs)


class TransitionValues(NamedTuple):
    """(transitions,) each, means over critics, in the dataset's units.

    Where the return is one of H steps, they count from the start of each episode.
    """

    q: np.ndarray  # Q(s, a)
    value: np.ndarray  # V(s)
    next_value: np.ndarray  # V(s'), zero at a terminal state

    def td_error(self, problem: EvaluationProblem) -> np.ndarray:
        """r + gamma V(s') - Q(s, a); zero after the last step that counts."""
        error = problem.dataset.reward + problem.gamma * self.next_value - self.q
        return np.where(problem.dataset.ages() < problem.horizon, error, 0.0) if problem.bounded else error


def exact_value(policy: EvaluationProblem, critics: FittedQ, obs: Array, left: Array) -> Array:
    """(batch,): sum_a pi(a|s) Q(s,a) of discrete actions, mean over critics."""
    probability = policy.network(policy.policy_norm.encode(obs)).p
    features, labels = policy.norm.encode(obs), probability.shape[-1]

    def q(action: Array) -> Array:
        return critics.q(features, jnp.broadcast_to(action, (obs.shape[0], labels)), left).mean(0)

    return (probability.T * jax.lax.map(q, jnp.eye(labels))).sum(0)


def transition_values(
    problem: EvaluationProblem, fitted: FittedQ, sampled: bool = False, seed: int = 0
) -> TransitionValues:
    """Values of every transition; V of a stochastic policy is a mean over some of its actions, or over all labels."""
    data, norm, scale = problem.device_data.transitions, problem.norm, float(problem.norm.reward_scale)
    keys = jax.random.split(jax.random.PRNGKey(seed), VALUE_ACTIONS) if sampled else None

    @jax.jit
    def values(networks: Any, first: Array, *parts: Array) -> tuple[Array, Array, Array]:
        obs, action, next_obs, terminal, left = parts
        policy, critics = problem._replace(network=networks[0]), fitted._replace(critic=networks[1])

        def value(obs: Array, left: Array, k: Array | None) -> Array:
            return critics.q(norm.encode(obs), policy.act(obs, k), left).mean(0)

        def mean_value(obs: Array, left: Array, which: int) -> Array:
            if keys is None:
                return value(obs, left, None)
            if isinstance(policy.network, CategoricalPolicy):
                return exact_value(policy, critics, obs, left)
            own = jax.vmap(lambda k: jax.random.fold_in(jax.random.fold_in(k, which), first))(keys)
            return jax.lax.map(lambda k: value(obs, left, k), own).mean(0)

        q = critics.q(norm.encode(obs), action, left).mean(0)
        after = mean_value(next_obs, jnp.maximum(left - 1, 0), 1)
        return q, mean_value(obs, left, 0), jnp.where(terminal, 0.0, after)

    block = partial(values, (problem.network, fitted.critic))
    left = jnp.asarray(np.maximum(problem.horizon - problem.dataset.ages(), 0))
    parts = map_blocks(block, data.obs, data.action, data.next_obs, data.terminal, left)
    return TransitionValues(*(scale * part.astype(np.float64) for part in parts))
