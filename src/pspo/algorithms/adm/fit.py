"""The any-step model, fitted by maximum likelihood on windows of the log, once per data, recipe and seed.

Every step sees as many windows of one lag as of any other. What is kept is the model of the look at which the mean
over lags of the error on held-out windows was smallest.
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
from pspo.dynamics.fit import is_trained, target_counts
from pspo.dynamics.pool import pool_seed

RECIPE = 1
MOST_HELD = 1000  # rows in the hold-out; the authors'


@dataclass(frozen=True)
class AnyStepConfig:
    """Recipe of the any-step model."""

    max_lag: Annotated[int, Bounds(1, 50)] = 5
    """m: the most actions between the state that is given and the one that is predicted; 1 leaves no doubt to see."""
    width: Annotated[int, Bounds(4, 4096)] = 200
    """Units of a GRU layer and of a residual block."""
    depth: Annotated[int, Bounds(1, 8)] = 3
    """GRU layers."""
    blocks: Annotated[int, Bounds(0, 16)] = 4
    """Residual blocks after them."""
    dropout: Annotated[float, Bounds(0.0, 0.9)] = 0.1
    """Share of a block's units that is dropped out."""
    steps: Annotated[int, Bounds(1, 100_000_000)] = 20_000
    """Gradient steps at most; the learning rate falls to zero by then."""
    batch: Annotated[int, Bounds(1, 65536)] = 256
    """Windows per step, divided equally between the lags."""
    lr: Annotated[float, Bounds(0.0, 1.0)] = 3e-4
    """Adam's learning rate at the start."""
    beta_nll: Annotated[float, Bounds(0.0, 1.0)] = 0.0
    """Exponent of the beta-NLL loss; 0 is plain maximum likelihood, which neglects rows that are hard to predict."""
    holdout: Annotated[float, Bounds(0.001, 0.5)] = 0.05
    """Fraction of rows that no window to train on contains, at most 1000 of them."""
    evaluate_every: Annotated[int, Bounds(1, 1_000_000)] = 500
    """Steps between two looks at the hold-out."""
    patience: Annotated[int, Bounds(1, 1_000_000)] = 25
    """Looks without improvement after which the fit stops."""
    seed: Annotated[int, Bounds(-1, 2**31 - 1)] = 0
    """Seed of the model, shared by all runs on the same data; -1 takes the run's own seed."""


class Steps(NamedTuple):
    """The log's rows as the model takes them."""

    features: Array
    action: Array  # unit
    obs: Array  # raw, as the next
    next_obs: Array
    reward: Array  # in the model's unit
    counts: Array | None  # (n, targets): which targets were logged; None: all


class Sequences(NamedTuple):
    """Windows by lag: (lags, rows, ...)."""

    features: Array  # of the old state
    action: Array  # (lags, rows, lags, columns): the newest last
    target: Array  # change since the old state, and the last reward
    counts: Array | None


def device_steps(dataset: Dataset, norm: Normaliser) -> Steps:
    counts = target_counts(dataset)
    return Steps(
        features=jnp.asarray(norm.encode(dataset.obs)),
        action=jnp.asarray(np.clip(norm.unit_action(dataset.action), -1.0, 1.0)),
        obs=jnp.asarray(dataset.obs),
        next_obs=jnp.asarray(dataset.next_obs),
        reward=jnp.asarray(dataset.reward / norm.reward_scale),
        counts=None if counts is None else jnp.asarray(counts),
    )


def sequences(steps: Steps, ends: Array) -> Sequences:
    """The windows that end at `ends` (lags, rows): row k - 1 is of lag k."""
    lags = ends.shape[0]
    old = jnp.maximum(ends - jnp.arange(lags)[:, None], 0)
    taken = jnp.maximum(ends[..., None] - jnp.arange(lags)[::-1], 0)  # for shorter lags also rows before the window
    change = steps.next_obs[ends] - steps.obs[old]
    return Sequences(
        features=steps.features[old],
        action=steps.action[taken],
        target=jnp.concatenate([change, steps.reward[ends][..., None]], axis=-1),
        counts=None if steps.counts is None else steps.counts[ends],
    )


def target_scale(dataset: Dataset, norm: Normaliser, windows: Windows) -> tuple[np.ndarray, np.ndarray]:
    """Mean and spread of what is predicted, over the windows of all lags, each lag with the same weight."""
    means, squares = [], []
    for k, count in enumerate(windows.counts, start=1):
        ends = windows.ends[:count]
        change = (dataset.next_obs[ends] - dataset.obs[ends - k + 1]).astype(np.float64)
        reward = (dataset.reward[ends] / norm.reward_scale).astype(np.float64)
        known = dataset.next_known[ends]
        # Where no next state is known, nothing is learned of it, and any scale will do.
        change = change[known] if known.any() else np.zeros_like(change[:1])
        means.append([*change.mean(0), reward.mean()])
        squares.append([*np.square(change).mean(0), np.square(reward).mean()])
    mean = np.mean(means, axis=0)
    std = np.sqrt(np.maximum(np.mean(squares, axis=0) - np.square(mean), 0.0))
    return mean.astype(np.float32), np.where(std > 1e-6, std, 1.0).astype(np.float32)


def random_ends(ends: Array, counts: Array, rows: int, key: Array) -> Array:
    """(lags, rows): windows of each lag, with replacement."""
    return ends[jax.random.randint(key, (counts.shape[0], rows), 0, counts[:, None])]


class Judgement(NamedTuple):
    error: Array  # (lags,): mean squared error of the mean, each target in units of its spread
    log_likelihood: Array  # (): per row and target, with the constant
    ahead: Array  # (lags,): root mean square error of the state's columns, in their standard deviations
    still: Array  # (lags,): and of "nothing changes"


@eqx.filter_jit
def judge(model: AnyStep, steps: Steps, ends: Array, counts: Array, obs_std: Array) -> Judgement:
    """The model without dropout on windows: lag k on the first counts[k - 1] of `ends`."""
    seen = sequences(steps, jnp.broadcast_to(ends, (counts.shape[0], ends.shape[0])))
    there = (jnp.arange(ends.shape[0]) < counts[:, None])[..., None]
    weight = jnp.broadcast_to(there if seen.counts is None else there & seen.counts, seen.target.shape)
    target = (seen.target - model.target_mean) / model.target_std
    mean, log_var = model.normalised(seen.features, seen.action)

    def average(each: Array, weight: Array) -> Array:
        return (each * weight).sum((-1, -2)) / jnp.maximum(weight.sum((-1, -2)), 1)

    square = jnp.square(mean - target)
    nll = 0.5 * (square * jnp.exp(-log_var) + log_var + jnp.log(2.0 * jnp.pi))
    unit, states = model.target_std[:-1] / obs_std, weight[..., :-1]
    ahead = average(square[..., :-1] * jnp.square(unit), states)
    still = average(jnp.square(seen.target[..., :-1] / obs_std), states)
    return Judgement(average(square, weight), -(nll * weight).sum() / weight.sum(), jnp.sqrt(ahead), jnp.sqrt(still))


class FitRecord(NamedTuple):
    steps: int
    kept: Judgement  # of the kept model
    curve: list[tuple[int, float, float]]  # step, training loss, mean error on the hold-out


def fit(
    dataset: Dataset, norm: Normaliser, config: AnyStepConfig, seed: int, progress: Callable[..., None]
) -> tuple[AnyStep, FitRecord]:
    """Adam on windows of the training rows; looks at the hold-out decide what is kept and when to stop."""
    train, held = fit_windows(dataset, config, seed)
    steps = device_steps(dataset, norm)
    key = jax.random.PRNGKey(seed)
    model = fresh_model(key, dataset, norm, config, *map(jnp.asarray, target_scale(dataset, norm, train)))
    rule = optax.adam(optax.cosine_decay_schedule(config.lr, config.steps))
    run = compile_fit(rule, max(config.batch // train.lags, 1), config.beta_nll)
    trained, fixed = eqx.partition(model, is_trained(model))
    windows = jnp.asarray(train.ends), jnp.asarray(train.counts)
    opt, done, stale, curve = rule.init(trained), 0, 0, []
    common = min(train.lags, held.lags)  # lags that were trained and that the hold-out has windows of
    looked = steps, jnp.asarray(held.ends), jnp.asarray(held.counts[:common]), jnp.asarray(norm.obs_std)
    best, kept, least = model, judge(model, *looked), np.inf
    while done < config.steps and stale < config.patience:
        count = min(config.evaluate_every, config.steps - done)
        trained, opt, loss = run(trained, fixed, opt, steps, *windows, jax.random.fold_in(key, done), count)
        done += count
        model: AnyStep = eqx.combine(trained, fixed)
        now = judge(model, *looked)
        error = float(now.error.mean())
        stale += 1
        if error < least:
            best, kept, least, stale = model, now, error, 0
        curve.append((done, float(loss), error))
        progress(done, config.steps, {"hold-out error": least})
    return best, FitRecord(done, kept, curve)


def fit_windows(dataset: Dataset, config: AnyStepConfig, seed: int) -> tuple[Windows, Windows]:
    return split_windows(dataset, min(config.holdout, MOST_HELD / dataset.size), config.max_lag, seed)


def fresh_model(
    key: Array, dataset: Dataset, norm: Normaliser, config: AnyStepConfig, mean: Array, std: Array
) -> AnyStep:
    inputs = norm.features + dataset.action_dim
    return any_step(key, inputs, config.width, config.depth, config.blocks, config.dropout, mean, std)


def compile_fit(
    rule: optax.GradientTransformation, rows: int, exponent: float
) -> Callable[..., tuple[Any, Any, Array]]:
    """(what is trained, its optimiser) -> the same after `count` steps on `rows` windows per lag, and the mean loss."""

    @eqx.filter_jit(donate="none")
    def run(trained, fixed, opt, steps: Steps, ends: Array, counts: Array, key: Array, count: int):
        def step(carry, k):
            trained, opt = carry
            pick_key, drop_key = jax.random.split(k)
            seen = sequences(steps, random_ends(ends, counts, rows, pick_key))
            target = (seen.target - fixed.target_mean) / fixed.target_std

            def loss(part):
                model = eqx.combine(part, fixed)
                return any_step_loss(model, seen.features, seen.action, target, seen.counts, exponent, drop_key)

            value, grads = jax.value_and_grad(loss)(trained)
            changes, opt = rule.update(grads, opt, trained)
            return (optax.apply_updates(trained, changes), opt), value

        (trained, opt), losses = jax.lax.scan(step, (trained, opt), jax.random.split(key, count))
        return trained, opt, losses.mean()

    return run


def load_or_fit_any_step(
    dataset: Dataset, norm: Normaliser, config: AnyStepConfig, run_seed: int, progress: Callable[..., None]
) -> tuple[AnyStep, dict[str, Any]]:
    """The model from the cache, or fitted now, and what the report says about it."""
    seed = pool_seed(config, run_seed)
    key = content_key("anystep", RECIPE, dataset, norm, dataclasses.replace(config, seed=0), seed)

    def make() -> tuple[AnyStep, dict[str, Any]]:
        model, record = fit(dataset, norm, config, seed, progress)
        return model, _facts(record) | {"lags": fit_windows(dataset, config, seed)[0].lags}

    scale = jnp.zeros(dataset.obs_dim + 1)
    shapes = partial(fresh_model, dataset=dataset, norm=norm, config=config, mean=scale, std=scale)
    model, facts, cached = remember(key, lambda: eqx.filter_eval_shape(shapes, jax.random.PRNGKey(0)), make)
    return model, {**facts, "key": key, "cached": cached}


def _facts(record: FitRecord) -> dict[str, Any]:
    """Plain lists, under the names that the report knows; "steps ahead" are lags, each predicted at once."""
    kept = record.kept
    known = bool(np.any(np.asarray(kept.still) > 0.0))  # where no next state is known there is nothing to show
    return {
        "holdout_error": np.asarray(kept.error, float).round(5).tolist(),
        "holdout_log_likelihood": [round(float(kept.log_likelihood), 5)],
        "k_step_error": np.asarray(kept.ahead, float).round(5).tolist() if known else [],
        "k_step_error_of_no_change": np.asarray(kept.still, float).round(5).tolist() if known else [],
        "steps": record.steps,
        "curve": [[step, round(loss, 5), round(held, 5)] for step, loss, held in record.curve],
    }
