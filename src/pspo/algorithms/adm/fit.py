"""The any-step model, fitted by maximum likelihood on windows of the dataset, once per data, recipe and seed.

Every batch has as many windows of one lag as of any other. The model with the smallest error on held-out windows, in
the mean over lags, is kept.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from pspo.algorithms.adm.model import AnyStep, any_step, any_step_loss
from pspo.algorithms.adm.windows import Windows, split_windows
from pspo.core.cache import content_key, remember
from pspo.core.config import Bounds
from pspo.data.dataset import Dataset
from pspo.data.normalise import Normaliser
from pspo.data.scales import largest_states, std_or_one
from pspo.dynamics.fit import is_trained, target_counts
from pspo.dynamics.pool import pool_seed

RECIPE = 1
MOST_HELD = 1000  # transitions in the hold-out; the authors'


@dataclass(frozen=True)
class AnyStepConfig:
    """Recipe of the any-step model."""

    max_lag: Annotated[int, Bounds(1, 50)] = 5
    """m: the most actions between the given and the predicted state; 1 leaves no disagreement to measure."""
    width: Annotated[int, Bounds(4, 4096)] = 200
    """Units of a GRU layer and of a residual block."""
    depth: Annotated[int, Bounds(1, 8)] = 3
    """GRU layers."""
    blocks: Annotated[int, Bounds(0, 16)] = 4
    """Residual blocks after them."""
    dropout: Annotated[float, Bounds(0.0, 0.9)] = 0.1
    """Fraction of a block's units that is dropped out."""
    steps: Annotated[int, Bounds(1, 100_000_000)] = 20_000
    """Gradient steps at most; the learning rate falls to zero by then."""
    batch: Annotated[int, Bounds(1, 65536)] = 256
    """Windows per step, divided equally between the lags."""
    lr: Annotated[float, Bounds(0.0, 1.0)] = 3e-4
    """Adam's learning rate at the start."""
    beta_nll: Annotated[float, Bounds(0.0, 1.0)] = 0.0
    """Exponent of the beta-NLL loss; 0 is maximum likelihood, which neglects transitions that are hard to predict."""
    holdout: Annotated[float, Bounds(0.001, 0.5)] = 0.05
    """Fraction of transitions that no training window contains, at most 1000 transitions."""
    evaluate_every: Annotated[int, Bounds(1, 1_000_000)] = 500
    """Steps between evaluations on the hold-out."""
    patience: Annotated[int, Bounds(1, 1_000_000)] = 25
    """Evaluations without improvement after which the fit stops."""
    seed: Annotated[int, Bounds(-1, 2**31 - 1)] = 0
    """Seed of the model, shared by all runs on the same data; -1 takes the run's own seed."""


class EncodedSteps(NamedTuple):
    """The dataset as the model takes it."""

    features: Array
    action: Array  # unit
    obs: Array  # raw, as the next
    next_obs: Array
    reward: Array  # in the model's unit
    counts: Array | None  # (n, targets): which targets are known; None: all


class Sequences(NamedTuple):
    """Windows by lag: (lags, windows, ...)."""

    features: Array  # of the old state
    action: Array  # (lags, windows, lags, columns): the newest last
    target: Array  # change since the old state, and the last reward
    counts: Array | None


def device_steps(dataset: Dataset, norm: Normaliser) -> EncodedSteps:
    counts = target_counts(dataset)
    return EncodedSteps(
        features=jnp.asarray(norm.encode(dataset.obs)),
        action=jnp.asarray(np.clip(norm.unit_action(dataset.action), -1.0, 1.0)),
        obs=jnp.asarray(dataset.obs),
        next_obs=jnp.asarray(dataset.next_obs),
        reward=jnp.asarray(dataset.reward / norm.reward_scale),
        counts=None if counts is None else jnp.asarray(counts),
    )


def sequences(steps: EncodedSteps, ends: Array) -> Sequences:
    """The windows that end at `ends` (lags, windows): index k - 1 is of lag k."""
    lags = ends.shape[0]
    old = jnp.maximum(ends - jnp.arange(lags)[:, None], 0)
    taken = jnp.maximum(ends[..., None] - jnp.arange(lags)[::-1], 0)  # for shorter lags also steps before the window
    change = steps.next_obs[ends] - steps.obs[old]
    return Sequences(
        features=steps.features[old],
        action=steps.action[taken],
        target=jnp.concatenate([change, steps.reward[ends][..., None]], axis=-1),
        counts=None if steps.counts is None else steps.counts[ends],
    )


def target_scale(dataset: Dataset, norm: Normaliser, windows: Windows) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of the targets over the windows of all lags, each lag with the same weight."""
    means, squares = [], []
    for k, count in enumerate(windows.counts, start=1):
        ends = windows.ends[:count]
        change = (dataset.next_obs[ends] - dataset.obs[ends - k + 1]).astype(np.float64)
        reward = (dataset.reward[ends] / norm.reward_scale).astype(np.float64)
        known = dataset.next_known[ends]
        # Without known next states nothing is learned about them, and any scale will do.
        change = change[known] if known.any() else np.zeros_like(change[:1])
        means.append([*change.mean(0), reward.mean()])
        squares.append([*np.square(change).mean(0), np.square(reward).mean()])
    mean = np.mean(means, axis=0)
    std = np.sqrt(np.maximum(np.mean(squares, axis=0) - np.square(mean), 0.0))
    largest = np.append(largest_states(dataset.obs, dataset.next_obs), np.abs(dataset.reward / norm.reward_scale).max())
    return mean.astype(np.float32), std_or_one(std, largest).astype(np.float32)


def random_ends(ends: Array, counts: Array, number: int, key: Array) -> Array:
    """(lags, number): windows of each lag, with replacement."""
    return ends[jax.random.randint(key, (counts.shape[0], number), 0, counts[:, None])]


class HoldoutScore(NamedTuple):
    error: Array  # (lags,): mean squared error of the mean, each target in units of its standard deviation
    log_likelihood: Array  # (): per transition and target, with the constant
    ahead: Array  # (lags,): root mean square error of the state's columns, in their standard deviations
    no_change: Array  # (lags,): the same of predicting no change


@eqx.filter_jit
def score_holdout(model: AnyStep, steps: EncodedSteps, ends: Array, counts: Array, obs_std: Array) -> HoldoutScore:
    """The model without dropout on windows: lag k on the first counts[k - 1] of `ends`."""
    sequence = sequences(steps, jnp.broadcast_to(ends, (counts.shape[0], ends.shape[0])))
    there = (jnp.arange(ends.shape[0]) < counts[:, None])[..., None]
    weight = jnp.broadcast_to(there if sequence.counts is None else there & sequence.counts, sequence.target.shape)
    target = (sequence.target - model.target_mean) / model.target_std
    mean, log_var = model.normalised(sequence.features, sequence.action)

    def average(each: Array, weight: Array) -> Array:
        return (each * weight).sum((-1, -2)) / jnp.maximum(weight.sum((-1, -2)), 1)

    square = jnp.square(mean - target)
    nll = 0.5 * (square * jnp.exp(-log_var) + log_var + jnp.log(2.0 * jnp.pi))
    unit, states = model.target_std[:-1] / obs_std, weight[..., :-1]
    ahead = average(square[..., :-1] * jnp.square(unit), states)
    no_change = average(jnp.square(sequence.target[..., :-1] / obs_std), states)
    log_likelihood = -(nll * weight).sum() / weight.sum()
    return HoldoutScore(average(square, weight), log_likelihood, jnp.sqrt(ahead), jnp.sqrt(no_change))


class AnyStepRecord(NamedTuple):
    steps: int
    kept: HoldoutScore  # of the kept model
    curve: list[tuple[int, float, float]]  # step, training loss, mean error on the hold-out


def fit(
    dataset: Dataset, norm: Normaliser, config: AnyStepConfig, seed: int, progress: Callable[..., None]
) -> tuple[AnyStep, AnyStepRecord]:
    """Adam on training windows; the score on the hold-out decides which model is kept and when to stop."""
    train, held = fit_windows(dataset, config, seed)
    steps = device_steps(dataset, norm)
    key = jax.random.PRNGKey(seed)
    model = fresh_model(key, dataset, norm, config, *map(jnp.asarray, target_scale(dataset, norm, train)))
    rule = optax.adam(optax.cosine_decay_schedule(config.lr, config.steps))
    run = compile_fit(rule, max(config.batch // train.lags, 1), config.beta_nll)
    trained, fixed = eqx.partition(model, is_trained(model))
    windows = {"ends": jnp.asarray(train.ends), "counts": jnp.asarray(train.counts)}
    opt, done, stale, curve = rule.init(trained), 0, 0, []
    common = min(train.lags, held.lags)  # lags that were trained and that the hold-out has windows of
    holdout = steps, jnp.asarray(held.ends), jnp.asarray(held.counts[:common]), jnp.asarray(norm.obs_std)
    best, kept, least = model, score_holdout(model, *holdout), np.inf
    while done < config.steps and stale < config.patience:
        count = min(config.evaluate_every, config.steps - done)
        drawn = jax.random.fold_in(key, done)
        trained, opt, loss = run(trained, fixed, opt=opt, steps=steps, **windows, key=drawn, count=count)
        done += count
        model: AnyStep = eqx.combine(trained, fixed)
        now = score_holdout(model, *holdout)
        error = float(now.error.mean())
        stale += 1
        if error < least:
            best, kept, least, stale = model, now, error, 0
        curve.append((done, float(loss), error))
        progress(done, config.steps, {"hold-out error": least})
    return best, AnyStepRecord(done, kept, curve)


def fit_windows(dataset: Dataset, config: AnyStepConfig, seed: int) -> tuple[Windows, Windows]:
    return split_windows(dataset, min(config.holdout, MOST_HELD / dataset.size), config.max_lag, seed)


def fresh_model(
    key: Array, dataset: Dataset, norm: Normaliser, config: AnyStepConfig, mean: Array, std: Array
) -> AnyStep:
    inputs = norm.features + dataset.action_dim
    sizes = {"inputs": inputs, "width": config.width, "depth": config.depth, "blocks": config.blocks}
    return any_step(key, **sizes, dropout=config.dropout, target_mean=mean, target_std=std)


def compile_fit(
    rule: optax.GradientTransformation, windows: int, exponent: float
) -> Callable[..., tuple[Any, Any, Array]]:
    """(what is trained, its optimiser) -> the same after `count` steps on `windows` per lag, and the mean loss."""

    @eqx.filter_jit(donate="none")
    def run(trained, fixed, *, opt, steps: EncodedSteps, ends: Array, counts: Array, key: Array, count: int):
        def step(carry, k):
            trained, opt = carry
            pick_key, drop_key = jax.random.split(k)
            sequence = sequences(steps, random_ends(ends, counts, windows, pick_key))
            target = (sequence.target - fixed.target_mean) / fixed.target_std

            def loss(part):
                model = eqx.combine(part, fixed)
                return any_step_loss(
                    model,
                    features=sequence.features,
                    action=sequence.action,
                    target=target,
                    counts=sequence.counts,
                    exponent=exponent,
                    key=drop_key,
                )

            value, grads = jax.value_and_grad(loss)(trained)
            changes, opt = rule.update(grads, opt, trained)
            return (optax.apply_updates(trained, changes), opt), value

        (trained, opt), losses = jax.lax.scan(step, (trained, opt), jax.random.split(key, count))
        return trained, opt, losses.mean()

    return run


def load_or_fit_any_step(
    dataset: Dataset, norm: Normaliser, config: AnyStepConfig, run_seed: int, progress: Callable[..., None]
) -> tuple[AnyStep, dict[str, Any]]:
    """The model from the cache, or fitted now, and information for the report."""
    seed = pool_seed(config, run_seed)
    key = content_key("anystep", RECIPE, dataset, norm, dataclasses.replace(config, seed=0), seed)

    def make() -> tuple[AnyStep, dict[str, Any]]:
        model, record = fit(dataset, norm, config, seed, progress)
        return model, _info(record) | {"lags": fit_windows(dataset, config, seed)[0].lags}

    scale = jnp.zeros(dataset.obs_dim + 1)
    shapes = partial(fresh_model, dataset=dataset, norm=norm, config=config, mean=scale, std=scale)
    model, info, cached = remember(key, lambda: eqx.filter_eval_shape(shapes, jax.random.PRNGKey(0)), make)
    return model, {**info, "key": key, "cached": cached}


def _info(record: AnyStepRecord) -> dict[str, Any]:
    """Plain lists under the report's names; "steps ahead" are lags, each predicted at once."""
    kept = record.kept
    known = bool(np.any(np.asarray(kept.no_change) > 0.0))  # without known next states there is nothing to show
    return {
        "holdout_error": np.asarray(kept.error, float).round(5).tolist(),
        "holdout_log_likelihood": [round(float(kept.log_likelihood), 5)],
        "k_step_error": np.asarray(kept.ahead, float).round(5).tolist() if known else [],
        "k_step_error_of_no_change": np.asarray(kept.no_change, float).round(5).tolist() if known else [],
        "steps": record.steps,
        "curve": [[step, round(loss, 5), round(held, 5)] for step, loss, held in record.curve],
    }
