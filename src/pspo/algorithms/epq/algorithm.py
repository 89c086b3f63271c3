"""EPQ (Yeom et al. 2024, "Exclusively Penalized Q-learning for Offline Reinforcement Learning").

CQL(H) with two changes. Its penalty is scaled, state by state, by how unlikely the policy's own actions are under an
estimate beta^ of the behaviour (the penalty adaptation factor f): where the dataset supports them no penalty is needed.
And transitions are weighted by how good they are among their neighbours (the prioritised dataset): the data are then
closer to a better policy, and are penalised less.

    w_i  = exp(G_i / zeta) / sum_k exp(G_k / zeta)                  over the neighbours k of transition i (behaviour.py)
    f(s) = mean_k exp(-max(0, log beta^(a_k|s) - c) / T_f),         a_k ~ pi(.|s),  c = -tau dim(A) log 2
    L_Q  = mean max(w, c_min) (Q(s, a) - y)^2 + alpha_c mean max(w f(s), floor) [LSE(s) - Q(s, a)]

LSE is CQL's log-sum-exp over 3n samples, and the a_k are the n of them that the policy drew at s. log beta^(a|s) is
minus the squared distance, before the tanh, of a to an action that a VAE decodes. Differences from the authors' code:
- Returns G end with the episode, at a time-out too; theirs continue into the next one.
- All transitions are searched for neighbours; theirs drops duplicates and then uses indices that no longer match.
- A sampled action's value before the tanh is taken as drawn, not computed by inverting the tanh.
- In the log-sum variant, the decoded actions of a state serve all of its sampled actions; theirs draws them for each.
- All losses are taken at the same parameters, in one fused step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array

from pspo.algorithms.common.losses import (
    proposals,
    pushed_down,
    q_range,
    q_values,
    sampled_target,
    soft_or_cloning_loss,
    td_loss,
    temperature_loss,
)
from pspo.algorithms.common.model_free import adam_by_part, begin_chunk, descend, layer_sizes
from pspo.algorithms.common.settings import BatchConfig
from pspo.algorithms.epq.behaviour import (
    PriorityConfig,
    QBetaConfig,
    SearchConfig,
    VAEConfig,
    load_or_fit_vae,
    make_weights,
)
from pspo.core.config import Bounds
from pspo.core.progress import Progress
from pspo.data.batches import DeviceDataset, Transitions, pick_transitions
from pspo.data.dataset import Dataset
from pspo.data.normalise import Normaliser, normaliser_in
from pspo.nets.actors import TanhGaussian
from pspo.nets.bounds import LATENT_MAX
from pspo.nets.mlp import MLP, mlp, mlp_stack, moving_average
from pspo.nets.vae import VAE, vae_loss

__all__ = ["HEADLINE", "Config", "begin_chunk", "draw", "init", "policies", "prepare", "update"]

HEADLINE = ("critic_loss",)


@dataclass(frozen=True)
class Config(BatchConfig):
    support_threshold: Annotated[float, Bounds(0.0, 1000.0)] = 1.0
    """The paper's tau: log beta^ above -tau dim(A) log 2 lowers the penalty. Larger is a milder algorithm."""
    ratio_temperature: Annotated[float, Bounds(1e-3, 1e3)] = 1.0
    """T_f: how fast the penalty falls above the threshold."""
    logsum: bool = False
    """log beta^ from all decoded actions of a state (log-sum-exp) instead of one for each sampled action."""
    epsilon: Annotated[float, Bounds(0.0, 1000.0)] = 0.5
    """Radius of a neighbourhood, in units of the mean distance between nearest states; raw observations."""
    neighbours: Annotated[int, Bounds(1, 1000)] = 50
    """States in a neighbourhood at most, the transition's own included; 1 switches priorities off."""
    zeta: Annotated[float, Bounds(1e-6, 1e6)] = 2.0
    """Temperature of priorities, in the critics' units of return: smaller is sharper."""
    use_q_beta: bool = False
    """Priorities by a learned value of the behaviour instead of the dataset's returns."""
    c_min: Annotated[float, Bounds(0.0, 1.0)] = 0.2
    """Least weight of a transition in the critics' error."""
    penalty_floor: Annotated[float, Bounds(0.0, 1.0)] = 0.005
    """Least weight of a transition in the penalty."""
    conservatism: Annotated[float, Bounds(0.0, 1e6)] = 20.0
    """alpha_c: weight of the penalty; 0 is SAC on the dataset."""
    samples: Annotated[int, Bounds(1, 1000)] = 10
    """n: actions of each of the three kinds in the log-sum-exp."""
    cloning_steps: Annotated[int, Bounds(0, 1_000_000_000)] = 10_000
    """Iterations of behaviour cloning at the start."""
    cloning_lr: Annotated[float, Bounds(0.0, 1.0)] = 0.0
    """Learning rate of the actor in these iterations; 0 takes `actor_lr`."""
    critic_lr: Annotated[float, Bounds(0.0, 1.0)] = 3e-4
    """Learning rate of the critics."""
    actor_lr: Annotated[float, Bounds(0.0, 1.0)] = 1e-4
    """Learning rate of actor and VAE."""
    alpha_lr: Annotated[float, Bounds(0.0, 1.0)] = 0.0
    """Learning rate of the temperature; 0 takes the actor's."""
    target_tau: Annotated[float, Bounds(0.0, 1.0)] = 0.005
    """Moving-average rate of the target critics."""
    vae: VAEConfig = field(default_factory=VAEConfig)


class Params(NamedTuple):
    """What gradients move."""

    actor: TanhGaussian
    critic: MLP  # two, stacked
    log_alpha: Array
    vae: VAE


class State(NamedTuple):
    """Everything that resuming needs."""

    params: Params
    target_critic: MLP
    opt: Any
    key: Array
    step: Array


class Arrays(NamedTuple):
    """What is fixed during training and lives on the device."""

    weight: Array  # (n,): w of every transition
    vae: VAE  # at the start


class Setup(NamedTuple):
    arrays: Arrays
    norm: Normaliser


class Batch(NamedTuple):
    transitions: Transitions
    pick: Array  # their indices


class Noise(NamedTuple):
    """The random numbers of one iteration."""

    next_action: Array  # (batch, action_dim), as the next
    action: Array
    samples: Array  # (2, n, batch, action_dim): at s' and at s
    uniform: Array  # (n, batch, action_dim) in [-1, 1]
    latent: Array  # (n, batch, latent_dim), clipped
    encoded: Array  # (batch, latent_dim)


def prepare(config: Config, dataset: Dataset, seed: int, progress: Progress) -> tuple[Setup, dict[str, Any]]:
    """Normaliser, beta^ and the weights of transitions; with information for the report."""
    norm = normaliser_in(dataset, config.states, config.rewards, config.gamma)
    beta, beta_info = load_or_fit_vae(dataset, norm, config.vae, progress)
    q_beta = QBetaConfig(config.gamma, config.width, config.depth, config.vae) if config.use_q_beta else None
    search = SearchConfig(config.neighbours, config.epsilon)
    priority = PriorityConfig(search, config.zeta, config.gamma, q_beta)
    weight, weight_info = make_weights(dataset, norm, priority, progress)
    return Setup(Arrays(weight, beta), norm), {"behaviour": beta_info, "priorities": weight_info}


def draw(config: Config, data: DeviceDataset, key: Array) -> Batch:
    """The batch of one iteration."""
    pick = pick_transitions(data, key, config.batch)
    return Batch(Transitions(*(part[pick] for part in data.transitions)), pick)


def optimiser(config: Config) -> optax.GradientTransformation:
    actor = config.actor_lr
    if config.cloning_lr and config.cloning_steps:
        actor = optax.piecewise_constant_schedule(
            config.cloning_lr, {config.cloning_steps: config.actor_lr / config.cloning_lr}
        )
    alpha_lr = config.alpha_lr or config.actor_lr
    return adam_by_part(Params(actor, config.critic_lr, alpha_lr, config.actor_lr))  # pyright: ignore[reportArgumentType]


def init(config: Config, setup: Setup, data: DeviceDataset, key: Array) -> State:
    key, actor_key, critic_key = jax.random.split(key, 3)
    inputs, columns, hidden = layer_sizes(config, setup.norm, data)
    actor = TanhGaussian(mlp(actor_key, [inputs, *hidden, 2 * columns], "relu", init="rlkit-actor"))
    critic = mlp_stack(critic_key, 2, [inputs + columns, *hidden, 1], activation="relu", init="rlkit-critic")
    params = Params(actor, critic, jnp.float32(0.0), setup.arrays.vae)
    return State(params, critic, optimiser(config).init(params), key, jnp.int32(0))  # pyright: ignore[reportArgumentType]


def draw_noise(config: Config, shape: tuple[int, ...], latent_dim: int, key: Array) -> Noise:
    k_next, k_action, k_samples, k_uniform, k_latent, k_encoded = jax.random.split(key, 6)
    normal, n = jax.random.normal, config.samples
    return Noise(
        next_action=normal(k_next, shape),
        action=normal(k_action, shape),
        samples=normal(k_samples, (2, n, *shape)),
        uniform=jax.random.uniform(k_uniform, (n, *shape), minval=-1.0, maxval=1.0),
        latent=jnp.clip(normal(k_latent, (n, shape[0], latent_dim)), -LATENT_MAX, LATENT_MAX),
        encoded=normal(k_encoded, (shape[0], latent_dim)),
    )


def log_behaviour(config: Config, net: VAE, features: Array, u: Array, latent: Array) -> Array:
    """(n, batch): log beta^(tanh u|s) = -|v(s, z) - u|^2, v being the decoded action before its tanh, up to a constant.

    u (n, batch, action_dim), latent (n, batch, latent_dim): the k-th z is for the k-th action, or all are for all.
    """
    wide = jnp.broadcast_to(features, (*latent.shape[:-1], features.shape[-1]))
    decoded = net.decoder(jnp.concatenate([wide, latent], axis=-1))
    if not config.logsum:
        return -jnp.square(decoded - u).sum(-1)
    return jax.nn.logsumexp(-jnp.square(decoded[:, None] - u[None]).sum(-1), axis=0)


def adaptation_factor(config: Config, log_beta: Array, action_dim: int) -> Array:
    """f(s) (batch,): 1 where the policy's actions have no support, falling towards 0 the more they have."""
    threshold = -config.support_threshold * action_dim * math.log(2.0)
    excess = jnp.maximum(log_beta - threshold, 0.0)
    return jax.lax.stop_gradient(jnp.exp(-excess / config.ratio_temperature).mean(0))


def factor_at(config: Config, params: Params, features: Array, noise: Noise) -> Array:
    """f(s) of the very actions that the log-sum-exp takes from the policy at s."""
    mean, log_std = params.actor.moments(features)
    u = mean + jnp.exp(log_std) * noise.samples[1]
    return adaptation_factor(config, log_behaviour(config, params.vae, features, u, noise.latent), u.shape[-1])


def penalty_weight(config: Config, weight: Array, factor: Array) -> Array:
    """max(w f(s), floor)."""
    return jnp.maximum(weight * factor, config.penalty_floor)


def update(
    config: Config, setup: Setup, context: None, state: State, batch: Batch, key: Array
) -> tuple[State, dict[str, Array]]:
    """One fused step of critics, actor, temperature and VAE."""
    real, weight = batch.transitions, setup.arrays.weight[batch.pick]
    features, next_features = setup.norm.encode(real.obs), setup.norm.encode(real.next_obs)
    old = state.params
    noise = draw_noise(config, real.action.shape, old.vae.latent_dim, key)
    target = sampled_target(old.actor, state.target_critic, next_features, real, noise.next_action, config.gamma)
    sampled = proposals(old.actor, features, next_features, noise.samples, noise.uniform)
    factor = factor_at(config, old, features, noise)
    push_weight = penalty_weight(config, weight, factor)
    cloning = state.step < config.cloning_steps if config.cloning_steps else None

    def loss(moving: Params) -> tuple[Array, tuple[Array, ...]]:
        real_q = q_values(moving.critic, features, real.action)
        error = td_loss(real_q, target, jnp.maximum(weight, config.c_min))
        gaps = pushed_down(moving.critic, features, sampled) - real_q
        push = config.conservatism * (push_weight * gaps).mean(-1).sum()
        actor, log_prob = soft_or_cloning_loss(
            moving.actor,
            old.critic,
            log_alpha=old.log_alpha,
            features=features,
            real_action=real.action,
            noise=noise.action,
            cloning=cloning,
        )
        temperature = temperature_loss(moving.log_alpha, log_prob, real.action.shape[-1])
        behaviour = vae_loss(moving.vae, features, real.action, noise.encoded)
        return error + push + actor + temperature + behaviour, (error, gaps, actor, log_prob, real_q, behaviour)

    grads, (error, gaps, actor, log_prob, q, behaviour) = jax.grad(loss, has_aux=True)(old)
    params, opt = descend(optimiser(config), grads, state.opt, old)
    target_critic = moving_average(state.target_critic, params.critic, config.target_tau)
    return State(params, target_critic, opt, state.key, state.step + 1), {
        "critic_loss": error,
        "conservative_gap": gaps.mean(),
        "adaptation_factor": factor.mean(),
        "penalty_weight": push_weight.mean(),
        "actor_loss": actor,
        "vae_loss": behaviour,
        "entropy": -log_prob.mean(),
        "alpha": jnp.exp(old.log_alpha),
        **q_range(q),
    }


def policies(state: State) -> dict[str, TanhGaussian]:
    return {"policy": state.params.actor}
