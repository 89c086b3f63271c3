"""The any-step model of ADM (Lin et al. 2024): the state after k actions from an old state, for every lag k up to m.

At each of k positions a GRU sees the same old state s_{t-k+1} and one of the actions a_{t-k+1}, ..., a_t; its last
output gives mean and log-variance of (s_{t+1} - s_{t-k+1}, r_t). One network serves all lags.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from pspo.dynamics.ensemble import Prediction
from pspo.nets.gru import GRU, gru
from pspo.nets.mlp import MLP, mlp
from pspo.nets.residual import ResidualBlocks, residual_blocks

LOG_VAR_FLOOR, LOG_VAR_CEILING = -10.0, 0.5  # of normalised targets: where the soft clamp starts
BOUNDS_WEIGHT = 0.01  # pulls the clamp's bounds together unless the data push them apart


class AnyStep(eqx.Module):
    """All lags in one call: first axis k - 1, then windows."""

    memory: GRU
    blocks: ResidualBlocks
    head: MLP
    log_var_low: Array  # (targets,): learned bounds of the soft clamp
    log_var_high: Array
    target_mean: Array  # (targets,): the scale of what is predicted, the same for all lags
    target_std: Array
    dropout: float = eqx.field(static=True)

    def normalised(self, features: Array, action: Array, key: Array | None = None) -> tuple[Array, Array]:
        """Mean and log-variance of normalised targets, (lags, windows, targets). With a key, dropout is on.

        features (lags, windows, features) are those of the old states; action (lags, windows, lags, columns) has the
        newest last, so that lag k has its k at the end, and the earlier ones are ignored.
        """
        out = self.head(self.blocks(self.read(features, action), self.dropout, key))
        mean, raw = jnp.split(out, 2, axis=-1)
        log_var = self.log_var_high - jax.nn.softplus(self.log_var_high - raw)
        return mean, self.log_var_low + jax.nn.softplus(log_var - self.log_var_low)

    def read(self, features: Array, action: Array) -> Array:
        """(lags, windows, units): the GRU after the last action. At each position one more, shorter lag begins."""
        lags, windows = features.shape[:2]
        begun = jnp.zeros((1, windows, self.memory.units))
        hidden = [begun[:0]] * self.memory.depth
        for position in range(lags):
            shortest = lags - 1 - position
            x = jnp.concatenate([features[shortest:], action[shortest:, :, position]], axis=-1)
            hidden = self.memory.step([jnp.concatenate([begun, h]) for h in hidden], x)
        return hidden[-1]

    def predict(self, features: Array, action: Array, key: Array | None = None) -> Prediction:
        """Change since the old state and reward, in raw units, by lag."""
        mean, log_var = self.normalised(features, action, key)
        std = jnp.exp(0.5 * log_var) * self.target_std
        return Prediction(mean * self.target_std + self.target_mean, std)


def any_step(
    key: Array,
    *,
    inputs: int,
    width: int,
    depth: int,
    blocks: int,
    dropout: float,
    target_mean: Array,
    target_std: Array,
) -> AnyStep:
    memory_key, block_key, head_key = jax.random.split(key, 3)
    targets = target_mean.shape[0]
    return AnyStep(
        memory=gru(memory_key, inputs, width, depth),
        blocks=residual_blocks(block_key, width, blocks),
        head=mlp(head_key, [width, 2 * targets], init="torch"),
        log_var_low=jnp.full(targets, LOG_VAR_FLOOR, jnp.float32),
        log_var_high=jnp.full(targets, LOG_VAR_CEILING, jnp.float32),
        target_mean=jnp.asarray(target_mean),
        target_std=jnp.asarray(target_std),
        dropout=dropout,
    )


def any_step_loss(
    model: AnyStep, *, features: Array, action: Array, target: Array, counts: Array | None, exponent: float, key: Array
) -> Array:
    """Gaussian likelihood: mean of (mean - y)^2 / var + log var over lags, windows and targets, plus the bounds' term.

    The exponent is that of the beta-NLL (see pspo.dynamics.fit), 0 is the likelihood itself. Unknown targets
    have weight zero, and still count in the mean.
    """
    mean, log_var = model.normalised(features, action, key)
    each = jnp.square(mean - target) * jnp.exp(-log_var) + log_var
    weight = jax.lax.stop_gradient(jnp.exp(exponent * log_var))
    likelihood = (each * (weight if counts is None else weight * counts)).mean()
    return likelihood + BOUNDS_WEIGHT * (model.log_var_high.sum() - model.log_var_low.sum())
