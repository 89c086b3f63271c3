"""ORAAC (Urpi, Curi and Krause 2021, "Risk-Averse Offline Reinforcement Learning").

The critic learns the whole distribution of returns, and the actor is trained to raise its lower part, not its mean.
The action is an imitation of the behaviour (decoded by a VAE from a random latent z), moved by at most lambda:

    pi(s) = clip(b + lambda tanh f(s, b), -1, 1),   b = decode(s, z),   z ~ clip(N(0, I), -1/2, 1/2)
    L_vae = (a^ - a)^2 + KL / 2
    y_m   = r + gamma Z'(s', pi'(s'); tau'_m),      tau' ~ U(0, 1)
    L_Z   = |tau_n - 1[delta <= 0]| huber(delta),   delta = y_m - Z(s, a; tau_n),   tau ~ U(0, 1)
    L_pi  = -Z(s, pi(s); g(u_k)),                   u ~ U(0, 1), g the distortion of the risk measure

As in the authors' code the steps follow each other (VAE, critic, actor in every second iteration), levels are drawn
once per iteration for the whole batch, and there is one critic, no twin. Differences from the authors:
- The VAE trains for a fixed number of iterations. Theirs stops once the last fifty recorded losses are close together.
- Transitions are taken as they are: the authors add a random cost to rewards, and read s' across ends of episodes.
- Every evaluation decodes z = 0; during training the authors evaluate with a random z.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import Array
from jax.scipy.special import ndtr, ndtri

from pspo.algorithms.common.losses import bellman_target, q_range, quantile_huber_loss
from pspo.algorithms.common.model_free import Setup, begin_chunk, delayed, descend, draw, prepare
from pspo.algorithms.common.settings import BatchConfig
from pspo.core.config import Bounds
from pspo.data.batches import DeviceDataset, Transitions
from pspo.nets.actors import Perturbed
from pspo.nets.bounds import LATENT_MAX
from pspo.nets.mlp import MLP, mlp, moving_average
from pspo.nets.quantiles import QuantileCritic, quantile_critic
from pspo.nets.vae import VAE, vae, vae_loss

__all__ = ["HEADLINE", "Config", "begin_chunk", "draw", "init", "policies", "prepare", "update"]

HEADLINE = ("critic_loss",)

LATENTS_PER_COLUMN = 2  # latent dimensions for each column of the action


@dataclass(frozen=True)
class Config(BatchConfig):
    batch: Annotated[int, Bounds(1, 65536)] = 128
    """Transitions per iteration."""
    width: Annotated[int, Bounds(4, 4096)] = 256
    """Units in each of the critic's two branches, of state and of action."""
    depth: Annotated[int, Bounds(1, 8)] = 2
    """Hidden layers of the VAE's two networks; the shapes of critic and actor are the authors'."""
    risk: Literal["cvar", "wang", "cpw", "neutral"] = "cvar"
    """Risk measure that the actor raises: mean of the worst returns, a mean with smoothly shifted
    weights (Wang), one as people weigh chances (CPW: both tails count more), or the plain mean."""
    risk_level: Annotated[float, Bounds(1e-6, 1.0)] = 0.1
    """alpha of cvar: the worst fraction that counts; 1 is the plain mean."""
    risk_shift: Annotated[float, Bounds(-10.0, 10.0)] = 0.75
    """Of wang: how many standard deviations levels are shifted down; below 0 is risk-seeking."""
    risk_power: Annotated[float, Bounds(0.28, 1.0)] = 0.71
    """eta of cpw; 1 is the plain mean, and below 0.28 its weights would no longer be positive."""
    reach: Annotated[float, Bounds(0.0, 2.0)] = 0.25
    """lambda: how far an action may be moved away from the imitated one; 0 is imitation, 2 the whole range."""
    quantiles: Annotated[int, Bounds(1, 1024)] = 32
    """N: levels at which the critic is trained, and as many of its target."""
    risk_quantiles: Annotated[int, Bounds(1, 1024)] = 8
    """K: levels at which the actor is evaluated."""
    vae_steps: Annotated[int, Bounds(0, 1_000_000_000)] = 20_000
    """Iterations in which the VAE trains; then it stays fixed. The authors' rule stops it after 16,000 or later."""
    vae_width: Annotated[int, Bounds(4, 4096)] = 750
    """Units in a hidden layer of the VAE."""
    vae_lr: Annotated[float, Bounds(0.0, 1.0)] = 1e-3
    """Learning rate of the VAE."""
    actor_width: Annotated[int, Bounds(4, 4096)] = 400
    """Units in the actor's first hidden layer; the second has three quarters of them."""
    actor_period: Annotated[int, Bounds(1, 1000)] = 2
    """Critic steps per actor step; the target networks move with the actor."""
    critic_lr: Annotated[float, Bounds(0.0, 1.0)] = 1e-3
    """Learning rate of the critic."""
    actor_lr: Annotated[float, Bounds(0.0, 1.0)] = 1e-4
    """Learning rate of the actor."""
    tau: Annotated[float, Bounds(0.0, 1.0)] = 0.005
    """Moving-average rate of the target networks, per actor step."""


class Move(eqx.Module):
    """The actor's network; with the VAE's decoder it is a policy."""

    net: MLP
    reach: float = eqx.field(static=True)

    def around(self, imitation: VAE) -> Perturbed:
        return Perturbed(imitation.decoder, self.net, imitation.latent_dim, self.reach)


class Params(NamedTuple):
    """What has a moving average."""

    actor: Move
    critic: QuantileCritic


class State(NamedTuple):
    """Everything that resuming needs."""

    vae: VAE
    params: Params
    target: Params
    vae_opt: Any
    actor_opt: Any
    critic_opt: Any
    key: Array
    step: Array


class Noise(NamedTuple):
    """The random numbers of one iteration. Levels are the same for the whole batch."""

    vae: Array  # (batch, latent_dim), standard normal
    next_latent: Array  # (batch, latent_dim), clipped, as the next
    latent: Array
    levels: Array  # (N,) in [0, 1), as the next two
    target_levels: Array
    risk: Array  # (K,)


def init(config: Config, setup: Setup, data: DeviceDataset, key: Array) -> State:
    key, vae_key, actor_key, critic_key = jax.random.split(key, 4)
    inputs, columns = setup.norm.features, data.transitions.action.shape[-1]
    imitation = vae(vae_key, inputs, columns, LATENTS_PER_COLUMN * columns, config.vae_width, config.depth)
    sizes = [inputs + columns, config.actor_width, 3 * config.actor_width // 4, columns]
    actor = Move(mlp(actor_key, sizes, "relu", init="torch"), config.reach)
    params = Params(actor, quantile_critic(critic_key, inputs, columns, config.width))
    nets: Any = (imitation, *params)
    lrs = config.vae_lr, config.actor_lr, config.critic_lr
    vae_opt, actor_opt, critic_opt = (optax.adam(lr).init(net) for lr, net in zip(lrs, nets, strict=True))
    return State(imitation, params, params, vae_opt, actor_opt, critic_opt, key, jnp.int32(0))


def draw_noise(config: Config, shape: tuple[int, ...], key: Array) -> Noise:
    """For latents of the shape (batch, latent_dim)."""
    k_vae, k_next, k_latent, k_levels, k_target, k_risk = jax.random.split(key, 6)
    normal, uniform = jax.random.normal, jax.random.uniform
    next_latent, latent = (jnp.clip(normal(k, shape), -LATENT_MAX, LATENT_MAX) for k in (k_next, k_latent))
    levels, target_levels = (uniform(k, (config.quantiles,)) for k in (k_levels, k_target))
    return Noise(
        normal(k_vae, shape), next_latent, latent, levels, target_levels, uniform(k_risk, (config.risk_quantiles,))
    )


def distorted(config: Config, u: Array) -> Array:
    """g: uniform levels to those whose mean quantile is the risk measure."""
    match config.risk:
        case "cvar":
            return config.risk_level * u
        case "wang":
            return ndtr(ndtri(u) - config.risk_shift)
        case "cpw":
            up, down = u**config.risk_power, (1.0 - u) ** config.risk_power
            return up / (up + down) ** (1.0 / config.risk_power)
        case "neutral":
            return u


def critic_target(
    config: Config, target: Params, imitation: VAE, next_features: Array, batch: Transitions, noise: Noise
) -> Array:
    """y (N, batch): r + gamma Z'(s', pi'(s'); tau'); pi' moves what the present VAE decodes."""
    imitated = imitation.decode(next_features, noise.next_latent)
    action = target.actor.around(imitation).perturb(next_features, imitated)
    next_value = target.critic(next_features, action, noise.target_levels)
    return bellman_target(batch.reward, batch.terminal, next_value, config.gamma)


def critic_loss(
    critic: QuantileCritic, features: Array, real_action: Array, levels: Array, target: Array
) -> tuple[Array, Array]:
    """L_Z: quantile regression of y at the levels of Z(s, a); also those quantiles (N, batch)."""
    quantiles = critic(features, real_action, levels)
    return quantile_huber_loss(quantiles, levels, target), quantiles


def actor_loss(
    config: Config, actor: Move, imitation: VAE, critic: QuantileCritic, features: Array, noise: Noise
) -> Array:
    """L_pi: minus the risk measure of Z(s, pi(s)), estimated at K levels. The VAE gets no gradient."""
    imitated = jax.lax.stop_gradient(imitation.decode(features, noise.latent))
    action = actor.around(imitation).perturb(features, imitated)
    return -critic(features, action, distorted(config, noise.risk)).mean()


def imitate(config: Config, state: State, features: Array, real_action: Array, noise: Array) -> tuple[State, Array]:
    """One step of the VAE and its loss; once it is fixed nothing, and zero."""

    def change(state: State) -> tuple[State, Array]:
        loss, grads = jax.value_and_grad(vae_loss)(state.vae, features, real_action, noise)
        net, opt = descend(optax.adam(config.vae_lr), grads, state.vae_opt, state.vae)
        return state._replace(vae=net, vae_opt=opt), loss

    return jax.lax.cond(state.step < config.vae_steps, change, lambda state: (state, jnp.float32(0.0)), state)


def update(
    config: Config, setup: Setup, context: None, state: State, batch: Transitions, key: Array
) -> tuple[State, dict[str, Array]]:
    """One step of the VAE and of the critic; in every second iteration also of the actor and the target networks."""
    features, next_features = setup.norm.encode(batch.obs), setup.norm.encode(batch.next_obs)
    noise = draw_noise(config, (batch.action.shape[0], state.vae.latent_dim), key)
    state, loss_vae = imitate(config, state, features, batch.action, noise.vae)
    target = critic_target(config, state.target, state.vae, next_features, batch, noise)
    (loss_critic, quantiles), grads = jax.value_and_grad(critic_loss, has_aux=True)(
        state.params.critic, features, batch.action, noise.levels, target
    )
    critic, critic_opt = descend(optax.adam(config.critic_lr), grads, state.critic_opt, state.params.critic)
    state = state._replace(params=state.params._replace(critic=critic), critic_opt=critic_opt)

    def improve(state: State) -> tuple[State, Array]:
        loss, grads = jax.value_and_grad(
            lambda actor: actor_loss(config, actor, state.vae, state.params.critic, features, noise)
        )(state.params.actor)
        actor, actor_opt = descend(optax.adam(config.actor_lr), grads, state.actor_opt, state.params.actor)
        params = state.params._replace(actor=actor)
        target = moving_average(state.target, params, config.tau)
        return state._replace(params=params, target=target, actor_opt=actor_opt), loss

    state, loss_actor = delayed(state.step, config.actor_period, improve, state)
    q = quantiles.mean(0)
    return state._replace(step=state.step + 1), {
        "vae_loss": loss_vae,
        "critic_loss": loss_critic,
        "actor_loss": loss_actor * config.actor_period,  # its mean over a chunk counts the iterations without one
        **q_range(q),
    }


def policies(state: State) -> dict[str, Perturbed]:
    return {"policy": state.params.actor.around(state.vae)}
