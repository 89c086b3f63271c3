"""Maximum-likelihood fit of the pool: every member on its own bootstrap of the data, from its own initial weights.

Algorithm 1, line 2, of the paper. The loss is the beta-NLL (Seitzer et al., 2022): exponent 0 is plain maximum
likelihood; towards 1 the mean is fitted as by least squares, so that many nearly deterministic transitions do not
outweigh the few that matter.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from pspo.core.config import Bounds
from pspo.data.dataset import Dataset
from pspo.data.normalise import Normaliser
from pspo.data.scales import largest_states, std_or_one
from pspo.dynamics.ensemble import Ensemble, ensemble, model_inputs


@dataclass(frozen=True)
class ModelConfig:
    """Settings of the dynamics models."""

    pool: Annotated[int, Bounds(1, 1000)] = 10
    """Models in the pool (M)."""
    width: Annotated[int, Bounds(4, 4096)] = 64
    """Units in a hidden layer."""
    depth: Annotated[int, Bounds(1, 8)] = 3
    """Hidden layers."""
    layer_norm: bool = False
    """Layer normalisation in the hidden layers: members stay bounded away from the dataset."""
    steps: Annotated[int, Bounds(1, 100_000_000)] = 6000
    """Maximum number of gradient steps; the learning rate falls to zero by then."""
    batch: Annotated[int, Bounds(1, 65536)] = 256
    """Batch size per model."""
    lr: Annotated[float, Bounds(0.0, 1.0)] = 1e-3
    """Initial learning rate of Adam."""
    weight_decay: Annotated[float, Bounds(0.0, 1.0)] = 0.0
    """Decoupled weight decay of AdamW."""
    beta_nll: Annotated[float, Bounds(0.0, 1.0)] = 0.5
    """Exponent of the beta-NLL loss; 0 is plain maximum likelihood."""
    early_fraction: Annotated[float, Bounds(0.0, 1.0)] = 0.0
    """Fraction of each bootstrap drawn with weights 1/(1 + time in the episode): more of the few early transitions."""
    holdout: Annotated[float, Bounds(0.001, 0.5)] = 0.05
    """Fraction of transitions held out from training, for early stopping and the report."""
    evaluate_every: Annotated[int, Bounds(1, 1_000_000)] = 500
    """Gradient steps between two evaluations on the hold-out."""
    patience: Annotated[int, Bounds(1, 1_000_000)] = 8
    """Evaluations without improvement of any model after which the fit stops."""
    seed: Annotated[int, Bounds(-1, 2**31 - 1)] = 0
    """Seed of the pool, shared by all runs on the same data; -1 takes the seed of the run."""


class FitRecord(NamedTuple):
    steps: int
    holdout_nll: np.ndarray  # (M,): per transition and target, of the best parameters
    curve: list[tuple[int, float, float]]  # step, training loss, mean hold-out NLL


Progress = Callable[[int, int, dict[str, float]], None]


def fit_targets(dataset: Dataset, norm: Normaliser) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What members predict: observation change and normalised reward; with their mean and standard deviation."""
    reward = dataset.reward / norm.reward_scale
    target = np.concatenate([dataset.next_obs - dataset.obs, reward[:, None]], axis=1).astype(np.float32)
    counts = target_counts(dataset)
    # If no next state is known, the mean of the placeholders, which is zero, will do.
    where = True if counts is None or not dataset.next_known.any() else counts
    std = target.std(axis=0, dtype=np.float64, where=where)
    # A change is rounded as the states are that it is the difference of.
    largest = np.append(largest_states(dataset.obs, dataset.next_obs), np.abs(target[:, -1]).max())
    return (
        target,
        target.mean(axis=0, dtype=np.float64, where=where).astype(np.float32),
        std_or_one(std, largest).astype(np.float32),
    )


def target_counts(dataset: Dataset) -> np.ndarray | None:
    """(n, targets) bool: which targets were logged; without a next state there is still a reward. None means all."""
    if dataset.next_known.all():
        return None
    return np.column_stack([np.repeat(dataset.next_known[:, None], dataset.obs_dim, 1), np.ones(dataset.size, bool)])


class Targets(NamedTuple):
    """Normalised targets, and which of them count; None means all."""

    value: Array
    counts: Array | None

    def at(self, index: Array | np.ndarray) -> Targets:
        return Targets(self.value[index], None if self.counts is None else self.counts[index])


def nll(mean: Array, log_std: Array, target: Array) -> Array:
    """Gaussian negative log-likelihood per transition and target, without the constant."""
    return 0.5 * jnp.square((target - mean) * jnp.exp(-log_std)) + log_std


def mean_nll(mean: Array, log_std: Array, target: Targets) -> Array:
    """Mean per member over the targets that count."""
    each = nll(mean, log_std, target.value)
    if target.counts is None:
        return each.mean(axis=(1, 2))
    return (each * target.counts).sum(axis=(1, 2)) / target.counts.sum()


def beta_nll_loss(model: Ensemble, x: Array, target: Array, exponent: float, counts: Array | None = None) -> Array:
    """Sum over members of their mean loss; x and target carry one batch per member.

    Targets that do not count have weight zero; the mean is over the whole batch nevertheless.
    """
    mean, log_std = model.normalised(x, each=True)
    weight = jax.lax.stop_gradient(jnp.exp(2.0 * exponent * log_std))
    if counts is not None:
        weight = weight * counts
    likelihood = (weight * nll(mean, log_std, target)).sum(-1).mean(-1).sum()
    # The clamp's bounds are learned: this pulls them together unless the data push them apart.
    return likelihood + 0.01 * (model.log_std_high.sum() - model.log_std_low.sum()) / model.log_std_low.shape[-1]


def bootstraps(dataset: Dataset, config: ModelConfig, train: np.ndarray, seed: int) -> np.ndarray:
    """(M, n) indices: each member's draw, with replacement, from the training transitions."""
    odds = None
    if config.early_fraction:
        early = 1.0 / (1.0 + dataset.ages()[train])
        odds = config.early_fraction * early / early.sum() + (1.0 - config.early_fraction) / len(train)
    drawn = np.random.default_rng([seed, 1]).choice(train, size=(config.pool, len(train)), p=odds)
    return drawn.astype(np.int32)


def fit(
    dataset: Dataset, norm: Normaliser, config: ModelConfig, seed: int, progress: Progress
) -> tuple[Ensemble, FitRecord]:
    """Train the whole pool; each member keeps the parameters that were best on the hold-out."""
    raw, target_mean, target_std = fit_targets(dataset, norm)
    x = jnp.asarray(model_inputs(norm, jnp.asarray(dataset.obs), jnp.asarray(norm.unit_action(dataset.action))))
    counts = target_counts(dataset)
    y = Targets(jnp.asarray((raw - target_mean) / target_std), None if counts is None else jnp.asarray(counts))
    train, holdout = dataset.split(config.holdout, seed)
    boots = bootstraps(dataset, config, train, seed)
    key = jax.random.PRNGKey(seed)
    shape = {"members": config.pool, "inputs": x.shape[1], "width": config.width, "depth": config.depth}
    model = ensemble(key, **shape, layer_norm=config.layer_norm, target_mean=target_mean, target_std=target_std)
    optimiser = optax.adamw(optax.cosine_decay_schedule(config.lr, config.steps), weight_decay=config.weight_decay)
    run, score = compile_fit(optimiser, config)
    trainable, fixed = eqx.partition(model, is_trained(model))
    opt = optimiser.init(trainable)
    best, best_nll, stale, curve, step = trainable, np.full(config.pool, np.inf), 0, [], 0
    holdout_x, holdout_y = x[holdout], y.at(holdout)
    boots = jnp.asarray(boots)
    while step < config.steps and stale < config.patience:
        count = min(config.evaluate_every, config.steps - step)
        batch_key = jax.random.fold_in(key, step)
        trainable, opt, loss = run(trainable, fixed, opt=opt, x=x, y=y, boots=boots, key=batch_key, count=count)
        step += count
        nll_now = np.asarray(score(trainable, fixed, holdout_x, holdout_y))
        better = nll_now < best_nll
        stale = 0 if better.any() else stale + 1
        best = _where_better(jnp.asarray(better), trainable, best)
        best_nll = np.where(better, nll_now, best_nll)
        curve.append((step, float(loss) / config.pool, float(nll_now.mean())))
        progress(step, config.steps, {"hold-out nll": float(best_nll.mean())})
    return eqx.combine(best, fixed), FitRecord(step, best_nll, curve)


def is_trained(model: Any) -> Any:
    """A mask of what is trained: all but the scale of the targets."""
    mask = jax.tree.map(eqx.is_inexact_array, model)
    return eqx.tree_at(lambda m: (m.target_mean, m.target_std), mask, (False, False))


def _where_better(better: Array, new, old):
    pick = lambda n, o: jnp.where(better.reshape((-1,) + (1,) * (n.ndim - 1)), n, o)  # noqa: E731
    return jax.tree.map(pick, new, old)


def compile_fit(optimiser, config: ModelConfig):
    """The compiled training loop and the hold-out score."""

    @eqx.filter_jit(donate="none")
    def run(trainable, fixed, *, opt, x, y, boots, key, count: int):
        members, size = boots.shape

        def step(carry, k):
            trainable, opt = carry
            pick = jax.random.randint(k, (members, config.batch), 0, size)
            idx = jnp.take_along_axis(boots, pick, axis=1)
            target = y.at(idx)
            loss, grads = jax.value_and_grad(
                lambda t: beta_nll_loss(eqx.combine(t, fixed), x[idx], target.value, config.beta_nll, target.counts)
            )(trainable)
            updates, opt = optimiser.update(grads, opt, trainable)
            return (optax.apply_updates(trainable, updates), opt), loss

        (trainable, opt), losses = jax.lax.scan(step, (trainable, opt), jax.random.split(key, count))
        return trainable, opt, losses.mean()

    @eqx.filter_jit
    def score(trainable, fixed, x, y):
        mean, log_std = eqx.combine(trainable, fixed).normalised(x)
        return mean_nll(mean, log_std, y)

    return run, score
