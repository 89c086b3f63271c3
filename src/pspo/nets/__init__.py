"""Networks: perceptrons, policies, quantile critics, VAEs, GRUs and residual blocks, as Equinox modules.

Called by dynamics, algorithms, policies, evaluation and collecting. A network knows its inputs and outputs, not what it
is trained for. Names are imported when they are first used: saved policies need `bounds` and run without JAX.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pspo.core.lazy import lazy_names

if TYPE_CHECKING:
    from pspo.nets.actors import NETWORKS, ClippedGaussian, Deterministic, LinearGaussian, Perturbed, TanhGaussian, act
    from pspo.nets.categorical import Categorical, CategoricalPolicy, categorical_policy
    from pspo.nets.gru import GRU
    from pspo.nets.mlp import INITS, MLP, apply_each, apply_stack, mlp_stack, moving_average
    from pspo.nets.policies import Mixture, MixturePolicy, kl_bound, mixture_policy
    from pspo.nets.quantiles import QuantileCritic, quantile_critic
    from pspo.nets.residual import ResidualBlocks, residual_blocks
    from pspo.nets.vae import VAE, vae_loss

_HOMES = {
    "GRU": "gru",
    "INITS": "mlp",
    "MLP": "mlp",
    "NETWORKS": "actors",
    "VAE": "vae",
    "Categorical": "categorical",
    "CategoricalPolicy": "categorical",
    "ClippedGaussian": "actors",
    "Deterministic": "actors",
    "LinearGaussian": "actors",
    "Mixture": "policies",
    "MixturePolicy": "policies",
    "Perturbed": "actors",
    "QuantileCritic": "quantiles",
    "ResidualBlocks": "residual",
    "TanhGaussian": "actors",
    "act": "actors",
    "apply_each": "mlp",
    "apply_stack": "mlp",
    "categorical_policy": "categorical",
    "kl_bound": "policies",
    "mixture_policy": "policies",
    "mlp_stack": "mlp",
    "moving_average": "mlp",
    "quantile_critic": "quantiles",
    "residual_blocks": "residual",
    "vae_loss": "vae",
}

__all__ = [
    "GRU",
    "INITS",
    "MLP",
    "NETWORKS",
    "VAE",
    "Categorical",
    "CategoricalPolicy",
    "ClippedGaussian",
    "Deterministic",
    "LinearGaussian",
    "Mixture",
    "MixturePolicy",
    "Perturbed",
    "QuantileCritic",
    "ResidualBlocks",
    "TanhGaussian",
    "act",
    "apply_each",
    "apply_stack",
    "categorical_policy",
    "kl_bound",
    "mixture_policy",
    "mlp_stack",
    "moving_average",
    "quantile_critic",
    "residual_blocks",
    "vae_loss",
]

__getattr__ = lazy_names(__name__, _HOMES)
