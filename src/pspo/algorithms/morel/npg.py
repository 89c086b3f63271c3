"""How MOReL improves a policy: one step of the natural policy gradient on rollouts, after behaviour cloning.

    A = GAE(gamma, lambda) with a baseline V, whitened
    g = mean of A grad log pi(a|s),     x = (F + damping I)^-1 g,     theta += sqrt(step_size / |g x|) x

and then an epoch of V on the paths' discounted returns. Paths end at halts and at true ends, and no value follows
either; a path that reaches the horizon continues with V. Differences from the authors' code:
- Theirs loses the terminal flag of shortened paths, so that V of the last state follows halts and falls too.
- At the horizon they take V of the path's last state, not of the one that it reached.
- V sees time in units of the rollout's length (theirs: a thousand steps), and states as the policy does.
- `fisher_batch` limits the steps that the Fisher matrix is estimated with; the authors take all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from pspo.algorithms.common.model_free import descend
from pspo.algorithms.common.natural_gradient import (
    advantages,
    conjugate_gradient,
    discounted_sums,
    fisher_product,
    gaussian_kl,
    natural_step,
    whitened,
)
from pspo.core.config import Bounds
from pspo.data.batches import DeviceDataset, sample_transitions
from pspo.data.normalise import Normaliser
from pspo.nets.actors import LinearGaussian
from pspo.nets.mlp import MLP, mlp

LARGEST_INPUT = 10.0  # of the baseline
TIME_POWERS = np.arange(1, 5)


@dataclass(frozen=True)
class NaturalConfig:
    """Settings of the natural policy gradient and of the behaviour cloning before it."""

    paths: Annotated[int, Bounds(1, 1_000_000)] = 50
    """Rollouts per member and iteration."""
    start_anywhere: Annotated[float, Bounds(0.0, 1.0)] = 0.0
    """Fraction of rollouts from any state, for datasets of few episodes; others start where episodes do."""
    cloning_steps: Annotated[int, Bounds(0, 1_000_000_000)] = 5000
    """Gradient steps of behaviour cloning at the start."""
    cloning_lr: Annotated[float, Bounds(0.0, 1.0)] = 1e-3
    """Learning rate of behaviour cloning."""
    log_std: Annotated[float, Bounds(-20.0, 2.0)] = -0.25
    """Log standard deviation of the policy's noise at the start, in units of half the action's range."""
    log_std_min: Annotated[float, Bounds(-20.0, 2.0)] = -1.0
    """The least that it falls to."""
    log_std_max: Annotated[float, Bounds(-20.0, 2.0)] = 1.0
    """The most that it rises to."""
    gae: Annotated[float, Bounds(0.0, 1.0)] = 0.97
    """lambda of the generalised advantage estimate."""
    step_size: Annotated[float, Bounds(1e-12, 10.0)] = 0.02
    """Length of a natural step: twice its KL divergence."""
    cg_steps: Annotated[int, Bounds(1, 1000)] = 20
    """Iterations of conjugate gradients."""
    damping: Annotated[float, Bounds(0.0, 10.0)] = 1e-3
    """Added to the diagonal of the Fisher matrix."""
    fisher_batch: Annotated[int, Bounds(0, 100_000_000)] = 0
    """Steps, drawn among those of the paths, that the Fisher matrix is estimated with; 0 takes all."""
    baseline_width: Annotated[int, Bounds(4, 4096)] = 128
    """Units in each of the baseline's two hidden layers."""
    baseline_lr: Annotated[float, Bounds(0.0, 1.0)] = 1e-3
    """Learning rate of the baseline."""
    baseline_decay: Annotated[float, Bounds(0.0, 1.0)] = 1e-3
    """Weight of the squared parameters in the baseline's loss."""


class Paths(NamedTuple):
    """(time, paths, ...): steps of rollouts, in the layout of `pspo.algorithms.common.natural_gradient`."""

    obs: Array
    action: Array  # as drawn, for likelihoods; models see it clipped
    reward: Array
    next_obs: Array
    terminal: Array  # halted, or at a true end
    halted: Array


class State(NamedTuple):
    """Everything that resuming needs."""

    policy: LinearGaussian
    baseline: MLP
    opt: Any  # of the baseline
    key: Array
    step: Array


def optimiser(config: Any) -> optax.GradientTransformation:
    """Adam with the decay in its gradient, as PyTorch's."""
    return optax.chain(optax.add_decayed_weights(config.baseline_decay), optax.adam(config.baseline_lr))


def init(config: Any, norm: Normaliser, data: DeviceDataset, key: Array) -> State:
    key, policy_key, baseline_key, cloning_key = jax.random.split(key, 4)
    columns, width = data.transitions.action.shape[-1], config.baseline_width
    net = mlp(policy_key, [norm.features, *[config.width] * config.depth, columns], "tanh", last_scale=0.01)
    policy = LinearGaussian(net, jnp.full(columns, config.log_std, jnp.float32))
    policy = fit_bc(config, norm, data, policy, cloning_key)
    baseline = mlp(baseline_key, [norm.features + TIME_POWERS.size, width, width, 1], "relu", init="torch")
    opt = optimiser(config).init(baseline)  # pyright: ignore[reportArgumentType]
    return State(policy, baseline, opt, key, jnp.int32(0))


def fit_bc(config: Any, norm: Normaliser, data: DeviceDataset, policy: LinearGaussian, key: Array) -> LinearGaussian:
    """The policy with its mean fitted to the dataset's actions by least squares."""
    adam = optax.adam(config.cloning_lr)

    def step(carry: tuple[LinearGaussian, Any], k: Array) -> tuple[tuple[LinearGaussian, Any], None]:
        policy, opt = carry
        real = sample_transitions(data, k, config.batch)
        features = norm.encode(real.obs)
        grads = jax.grad(lambda p: jnp.square(p.net(features) - real.action).mean())(policy)
        return descend(adam, grads, opt, policy), None

    start = policy, adam.init(policy)  # pyright: ignore[reportArgumentType]
    return jax.lax.scan(step, start, jax.random.split(key, config.cloning_steps))[0][0]


def baseline_inputs(features: Array, horizon: int) -> Array:
    """(time, paths, ...): states as the policy sees them, clipped, and powers of the time since the start."""
    time = (jnp.arange(features.shape[0]) / horizon)[:, None, None] ** TIME_POWERS
    time = jnp.broadcast_to(time, (*features.shape[:2], TIME_POWERS.size))
    return jnp.concatenate([jnp.clip(features, -LARGEST_INPUT, LARGEST_INPUT), time], axis=-1)


def alive_first(alive: Array, key: Array) -> Array:
    """(time * paths,): all steps in random order, those that happened before the others."""
    return jnp.argsort(jax.random.uniform(key, (alive.size,)) + ~alive.ravel())


def policy_step(
    config: Any, policy: LinearGaussian, *, features: Array, action: Array, advantage: Array, alive: Array, order: Array
) -> tuple[LinearGaussian, Array]:
    """One natural step, and its KL divergence; all arrays are flat, `order` as `alive_first` gives it."""
    count = alive.sum()

    def objective(policy: LinearGaussian) -> Array:
        return jnp.where(alive, advantage * policy.log_prob(features, action), 0.0).sum() / count

    gradient = jax.grad(objective)(policy)
    chosen = order[: config.fisher_batch or order.size]
    weight = alive[chosen] / alive[chosen].sum()
    product = fisher_product(policy, features[chosen], weight, config.damping)
    direction = conjugate_gradient(product, gradient, config.cg_steps)
    new = natural_step(policy, gradient, direction, config.step_size)
    bounded = jnp.clip(new.log_std, config.log_std_min, config.log_std_max)
    new = eqx.tree_at(lambda p: p.log_std, new, bounded)
    kl = gaussian_kl(*policy.moments(features[chosen]), *new.moments(features[chosen]))
    return new, (weight * kl).sum()


def fit_baseline(
    config: Any, baseline: MLP, *, opt: Any, inputs: Array, target: Array, count: Array, order: Array
) -> tuple[MLP, Any, Array]:
    """An epoch of least squares over the `count` steps that happened, the first in `order`; also its mean loss."""
    batch = min(config.batch, order.size)
    batches = jnp.maximum(count // batch, 1)  # an incomplete last batch is left out, as the authors do
    adam = optimiser(config)

    def step(k: Array, carry: tuple[MLP, Any, Array]) -> tuple[MLP, Any, Array]:
        baseline, opt, total = carry
        pick = jax.lax.dynamic_slice_in_dim(order, k * batch, batch)
        counts = k * batch + jnp.arange(batch) < count

        def loss(net: MLP) -> Array:
            return (counts * jnp.square(net(inputs[pick])[:, 0] - target[pick])).sum() / counts.sum()

        value, grads = jax.value_and_grad(loss)(baseline)
        return *descend(adam, grads, opt, baseline), total + value

    baseline, opt, total = jax.lax.fori_loop(0, batches, step, (baseline, opt, jnp.float32(0.0)))
    return baseline, opt, total / batches


def improve(
    config: Any, norm: Normaliser, state: State, paths: Paths, alive: Array, key: Array
) -> tuple[State, dict[str, Array]]:
    """One iteration on paths of the present policy: a natural step, then the baseline's epoch."""
    horizon, count = alive.shape[0], alive.sum()
    features = norm.encode(jnp.concatenate([paths.obs, paths.next_obs[-1:]]))  # and where the last step led
    inputs = baseline_inputs(features, horizon)
    value = state.baseline(inputs)[..., 0]
    advantage = advantages(
        reward=paths.reward,
        value=value[:-1],
        next_value=value[1:],
        terminal=paths.terminal,
        alive=alive,
        gamma=config.gamma,
        trace=config.gae,
    )
    flat = lambda part: part.reshape(alive.size, *part.shape[2:])  # noqa: E731
    order = alive_first(alive, key)
    weight = flat(whitened(advantage, alive))
    policy, kl = policy_step(
        config,
        state.policy,
        features=flat(features[:-1]),
        action=flat(paths.action),
        advantage=weight,
        alive=flat(alive),
        order=order,
    )
    to_go = flat(discounted_sums(paths.reward, alive, config.gamma))
    baseline, opt, loss = fit_baseline(
        config, state.baseline, opt=state.opt, inputs=flat(inputs[:-1]), target=to_go, count=count, order=order
    )
    happened = lambda part: jnp.where(alive, part, 0.0).sum(0).mean()  # noqa: E731
    return State(policy, baseline, opt, state.key, state.step + 1), {
        "rollout_return": happened(paths.reward) * norm.reward_scale,
        "rollout_length": happened(1.0),
        "rollout_halted": happened(paths.halted),
        "kl": kl,
        "log_std": policy.log_std.mean(),
        "baseline_loss": loss,
    }
