"""EPQ's weights, penalty and losses against the equations, computed by hand in double precision."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pspo.algorithms import epq, epq_behaviour
from pspo.algorithms.epq import Arrays, Batch, Config, Learned, Parts, State
from pspo.algorithms.epq_behaviour import PriorityConfig, QBetaConfig, VAEConfig
from pspo.config import build, preset, preset_table
from pspo.data import Dataset
from pspo.data.batches import Rows, device_log
from pspo.data.normalise import normaliser_in
from pspo.display import silent
from pspo.errors import Diverged, UserError
from pspo.nets.actors import TanhGaussian
from pspo.nets.mlp import MLP
from pspo.nets.vae import VAE

OBS, ACT, LATENT, BATCH, N, LOG = 3, 2, 6, 5, 4, 12


def f32(array: Any) -> jax.Array:
    return jnp.asarray(np.asarray(array, np.float32))


def made_mlp(rng: np.random.Generator, sizes: list[int], members: tuple[int, ...] = ()) -> MLP:
    weights = [f32(rng.normal(scale=0.5, size=(*members, a, b))) for a, b in pairwise(sizes)]
    return MLP(weights, [f32(rng.normal(scale=0.3, size=(*members, size))) for size in sizes[1:]], "relu")


def made_config(**changes: Any) -> Config:
    tiny = {"gamma": 0.9, "samples": N, "tau": 0.7, "ratio_temperature": 1.5, "conservatism": 3.0, "c_min": 0.4}
    tiny |= {"penalty_floor": 0.1, "cloning_steps": 3, "batch": BATCH, "width": 4, "depth": 1}
    return build(Config, tiny, changes)


def made_log(**changes: Any) -> Dataset:
    """Three episodes of four rows: one ends, one is cut, one has no end."""
    rng = np.random.default_rng(5)
    obs = rng.normal(size=(LOG + 1, OBS)).astype(np.float32)
    fields = {
        "obs": obs[:-1],
        "next_obs": obs[1:],
        "action": rng.uniform(-0.9, 0.9, (LOG, ACT)).astype(np.float32),
        "reward": rng.normal(size=LOG).astype(np.float32),
        "terminal": np.arange(LOG) == 3,
        "timeout": np.arange(LOG) == 7,
        "action_low": np.full(ACT, -1.0, np.float32),
        "action_high": np.ones(ACT, np.float32),
    }
    return Dataset(**(fields | changes))


def made_learned() -> Learned:
    rng = np.random.default_rng(1)
    coder = VAE(made_mlp(rng, [OBS + ACT, 5, 2 * LATENT]), made_mlp(rng, [OBS + LATENT, 5, ACT]))
    actor = TanhGaussian(made_mlp(rng, [OBS, 6, 2 * ACT]))
    return Learned(actor, made_mlp(rng, [OBS + ACT, 6, 1], (2,)), jnp.float32(-0.4), coder)


# The networks by hand


def doubled(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), tree)


def net_by_hand(net: MLP, x: np.ndarray) -> np.ndarray:
    for layer, (w, b) in enumerate(zip(net.weights, net.biases, strict=True)):
        x = x @ w + b
        x = np.maximum(x, 0.0) if layer < len(net.weights) - 1 else x
    return x


def joined(features: np.ndarray, other: np.ndarray) -> np.ndarray:
    return np.concatenate([np.broadcast_to(features, (*other.shape[:-1], features.shape[-1])), other], axis=-1)


def q_by_hand(critic: MLP, features: np.ndarray, action: np.ndarray) -> np.ndarray:
    members = [jax.tree.map(lambda leaf, j=j: leaf[j], critic) for j in range(2)]
    return np.stack([net_by_hand(member, joined(features, action))[..., 0] for member in members])


def density_by_hand(actor: TanhGaussian, features: np.ndarray, u: np.ndarray) -> np.ndarray:
    """log pi(tanh u|s)."""
    mean, log_std = np.split(net_by_hand(actor.net, features), 2, axis=-1)
    std = np.exp(np.clip(log_std, -5.0, 2.0))
    normal = np.exp(-0.5 * ((u - mean) / std) ** 2) / (std * np.sqrt(2.0 * np.pi))
    return np.log(normal / (1.0 - np.tanh(u) ** 2)).sum(-1)


def drawn_by_hand(actor: TanhGaussian, features: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """u before the tanh."""
    mean, log_std = np.split(net_by_hand(actor.net, features), 2, axis=-1)
    return mean + np.exp(np.clip(log_std, -5.0, 2.0)) * noise


# The losses by hand, each as a function of the parameters that it may move


def setting_by_hand(case: SimpleNamespace) -> SimpleNamespace:
    """What is fixed within an iteration: y, the sampled actions, f and the weights."""
    config, now, rows, noise = case.config, doubled(case.state.learned), doubled(case.batch.rows), doubled(case.noise)
    s, after = rows.obs, rows.next_obs
    a_after = np.tanh(drawn_by_hand(now.actor, after, noise.next_action))
    value = q_by_hand(doubled(case.state.target_critic), after, a_after).min(0)
    u_after = drawn_by_hand(now.actor, after, noise.samples[0])
    u_now = drawn_by_hand(now.actor, s, noise.samples[1])
    actions = np.concatenate([noise.uniform, np.tanh(u_after), np.tanh(u_now)])
    uniform = np.full((N, BATCH), np.log(0.5**ACT))
    density = [uniform, density_by_hand(now.actor, after, u_after), density_by_hand(now.actor, s, u_now)]
    decoded = net_by_hand(now.vae.decoder, joined(s, noise.latent))
    log_beta = -((decoded - u_now) ** 2).sum(-1)
    threshold = config.tau * np.log(0.5**ACT)
    factor = np.exp(-np.maximum(0.0, log_beta - threshold) / config.ratio_temperature).mean(0)
    weight = np.asarray(case.parts.arrays.weight, np.float64)[np.asarray(case.batch.pick)]
    return SimpleNamespace(
        rows=rows,
        noise=noise,
        y=np.where(rows.terminal, rows.reward, rows.reward + config.gamma * value),
        actions=actions,
        log_density=np.concatenate(density),
        factor=factor,
        td_weight=np.maximum(weight, config.c_min),
        push_weight=np.maximum(weight * factor, config.penalty_floor),
    )


def gaps_by_hand(fixed: SimpleNamespace, critic: MLP) -> np.ndarray:
    sampled = q_by_hand(critic, fixed.rows.obs, fixed.actions) - fixed.log_density
    return np.log(np.exp(sampled).sum(1)) - q_by_hand(critic, fixed.rows.obs, fixed.rows.action)


def td_by_hand(fixed: SimpleNamespace, critic: MLP) -> float:
    error = (q_by_hand(critic, fixed.rows.obs, fixed.rows.action) - fixed.y) ** 2
    return sum((fixed.td_weight * one).mean() for one in error)


def critic_loss_by_hand(case: SimpleNamespace, fixed: SimpleNamespace, critic: MLP) -> float:
    gaps = gaps_by_hand(fixed, critic)
    return td_by_hand(fixed, critic) + case.config.conservatism * sum((fixed.push_weight * one).mean() for one in gaps)


def actor_loss_by_hand(case: SimpleNamespace, fixed: SimpleNamespace, actor: TanhGaussian) -> float:
    s, alpha = fixed.rows.obs, np.exp(float(case.state.learned.log_alpha))
    u = drawn_by_hand(actor, s, fixed.noise.action)
    log_prob = density_by_hand(actor, s, u)
    if int(case.state.step) < case.config.cloning_steps:
        return (alpha * log_prob - density_by_hand(actor, s, np.arctanh(fixed.rows.action))).mean()
    return (alpha * log_prob - q_by_hand(doubled(case.state.learned.critic), s, np.tanh(u)).min(0)).mean()


def vae_loss_by_hand(fixed: SimpleNamespace, coder: VAE) -> float:
    s, a = fixed.rows.obs, fixed.rows.action
    mean, log_std = np.split(net_by_hand(coder.encoder, joined(s, a)), 2, axis=-1)
    std = np.exp(np.clip(log_std, -4.0, 15.0))
    found = np.tanh(net_by_hand(coder.decoder, joined(s, mean + std * fixed.noise.encoded)))
    divergence = -0.5 * (1.0 + np.log(std**2) - mean**2 - std**2)
    return ((found - a) ** 2).mean() + 0.5 * divergence.mean()


def slope_by_hand(loss: Any, at: Any, towards: Any, reach: float = 1e-6) -> float:
    """The derivative of a loss along a direction."""
    ahead, behind = (jax.tree.map(lambda x, d, r=r: x + r * d, at, towards) for r in (reach, -reach))
    return (loss(ahead) - loss(behind)) / (2.0 * reach)


# One iteration


@pytest.fixture(scope="module")
def iterate():
    """A compiled iteration whose optimiser goes straight down the gradient: before minus after is the gradient."""
    config, data = made_config(), made_log()
    norm = normaliser_in(data, "raw", "raw", config.gamma)
    weight = f32(np.random.default_rng(2).uniform(0.01, 1.0, LOG))
    log, learned = device_log(data, norm, config.gamma), made_learned()
    parts = Parts(Arrays(weight, learned.vae), norm)
    key = jax.random.PRNGKey(4)
    pick = jnp.array([3, 8, 1, 7, 10])
    batch = Batch(Rows(*(part[pick] for part in log.rows)), pick)
    noise = epq.draw_noise(config, (BATCH, ACT), LATENT, key)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(epq, "optimiser", lambda config: optax.sgd(1.0))
        update = jax.jit(lambda state: epq.update(config, parts, None, state, batch, key))

        def call(step: int) -> SimpleNamespace:
            rng = np.random.default_rng(9)
            target = jax.tree.map(lambda leaf: leaf + f32(rng.normal(scale=0.2, size=leaf.shape)), learned.critic)
            opt = optax.sgd(1.0).init(learned)  # pyright: ignore[reportArgumentType]
            state = State(learned, target, opt, jax.random.PRNGKey(0), jnp.int32(step))
            after, metrics = update(state)
            grads = jax.tree.map(lambda x, y: np.asarray(x, np.float64) - np.asarray(y), learned, after.learned)
            return SimpleNamespace(
                config=config,
                parts=parts,
                state=state,
                batch=batch,
                noise=noise,
                after=after,
                metrics=metrics,
                grads=grads,
            )

        yield call


@pytest.fixture(scope="module")
def one(iterate) -> SimpleNamespace:
    return iterate(step=3)


def test_what_an_iteration_reports_is_what_the_equations_say(one) -> None:
    fixed, now = setting_by_hand(one), doubled(one.state.learned)
    assert 0.0 < fixed.factor.min() < 0.9 < fixed.factor.max() <= 1.0
    assert (fixed.td_weight == 0.4).any()
    assert (fixed.td_weight > 0.4).any()
    assert (fixed.push_weight == 0.1).any()
    assert (fixed.push_weight > 0.1).any()
    wanted = {
        "critic_loss": td_by_hand(fixed, now.critic),
        "conservative_gap": gaps_by_hand(fixed, now.critic).mean(),
        "adaptation_factor": fixed.factor.mean(),
        "penalty_weight": fixed.push_weight.mean(),
        "actor_loss": actor_loss_by_hand(one, fixed, now.actor),
        "vae_loss": vae_loss_by_hand(fixed, now.vae),
    }
    for name, value in wanted.items():
        assert float(one.metrics[name]) == pytest.approx(value, rel=2e-5), name


@pytest.mark.parametrize("seed", [0, 1])
def test_each_network_goes_down_its_own_loss_and_the_penalty_moves_neither_actor_nor_vae(one, seed: int) -> None:
    """The slopes by hand hold f, the sampled actions and y still."""
    fixed, now, rng = setting_by_hand(one), doubled(one.state.learned), np.random.default_rng(seed)
    losses = {
        "critic": lambda net: critic_loss_by_hand(one, fixed, net),
        "actor": lambda net: actor_loss_by_hand(one, fixed, net),
        "vae": lambda net: vae_loss_by_hand(fixed, net),
    }
    for name, loss in losses.items():
        at = getattr(now, name)
        towards = jax.tree.map(lambda leaf: rng.normal(size=leaf.shape), at)
        found = jax.tree.map(lambda g, d: (g * d).sum(), getattr(one.grads, name), towards)
        assert sum(jax.tree.leaves(found)) == pytest.approx(slope_by_hand(loss, at, towards), rel=1e-3, abs=1e-4), name


def test_the_actor_follows_the_log_at_first(iterate, one) -> None:
    first = iterate(step=2)
    fixed = setting_by_hand(first)
    wanted = actor_loss_by_hand(first, fixed, doubled(first.state.learned.actor))
    assert float(first.metrics["actor_loss"]) == pytest.approx(wanted, rel=2e-5)
    assert float(first.metrics["actor_loss"]) != pytest.approx(float(one.metrics["actor_loss"]), rel=1e-2)
    assert int(first.after.step) == 3


def test_rows_come_with_their_numbers() -> None:
    config, data = made_config(), made_log()
    log = device_log(data, normaliser_in(data, "raw", "raw", 0.9), 0.9)
    batch = epq.draw(config, log, jax.random.PRNGKey(0))
    np.testing.assert_array_equal(batch.rows.reward, data.reward[np.asarray(batch.pick)])
    np.testing.assert_array_equal(batch.rows.obs, data.obs[np.asarray(batch.pick)])


# The penalty adaptation factor


def test_log_beta_is_minus_the_squared_distance_to_one_decoded_action_or_a_log_sum_over_all() -> None:
    rng, coder = np.random.default_rng(3), made_learned().vae
    s, u, z = rng.normal(size=(BATCH, OBS)), rng.normal(size=(N, BATCH, ACT)), rng.normal(size=(N, BATCH, LATENT))
    decoded = net_by_hand(doubled(coder.decoder), joined(s, z))
    found = epq.log_behaviour(made_config(), coder, f32(s), f32(u), f32(z))
    np.testing.assert_allclose(found, -((decoded - u) ** 2).sum(-1), rtol=1e-4, atol=1e-5)
    wanted = np.empty((N, BATCH))
    for k in range(N):
        for b in range(BATCH):
            wanted[k, b] = np.log(np.exp(-((decoded[:, b] - u[k, b]) ** 2).sum(-1)).sum())
    summed = epq.log_behaviour(made_config(logsum=True), coder, f32(s), f32(u), f32(z))
    np.testing.assert_allclose(summed, wanted, rtol=1e-4, atol=1e-5)


def test_the_factor_is_one_below_the_threshold_and_falls_exponentially_above() -> None:
    config = made_config(tau=2.0, ratio_temperature=0.5)
    threshold = -2.0 * 3 * np.log(2.0)
    log_beta = threshold + np.array([[-5.0, 0.0, 1.0, 4.0], [-1e4, -0.1, 2.0, 0.0]])
    wanted = [1.0, 1.0, (np.exp(-2.0) + np.exp(-4.0)) / 2, (np.exp(-8.0) + 1.0) / 2]
    np.testing.assert_allclose(epq.adaptation_factor(config, f32(log_beta), 3), wanted, rtol=1e-5)


@pytest.mark.parametrize(("away", "wanted"), [(0.0, "floor"), (6.0, "full")])
def test_a_supported_policy_is_spared_and_another_one_pays_in_full(away: float, wanted: str) -> None:
    """The behaviour always decodes the same action; the policy's own is there, or far from it."""
    config, action = made_config(tau=10.0, ratio_temperature=1.0, penalty_floor=0.005), np.array([0.3, -0.6])
    still = lambda net, bias: MLP([jnp.zeros_like(w) for w in net.weights], [*net.biases[:-1], f32(bias)], "relu")  # noqa: E731
    learned = made_learned()
    learned = learned._replace(
        actor=TanhGaussian(still(learned.actor.net, [*(action + away), -5.0, -5.0])),
        vae=VAE(learned.vae.encoder, still(learned.vae.decoder, action)),
    )
    noise = epq.draw_noise(config, (BATCH, ACT), LATENT, jax.random.PRNGKey(0))
    factor = epq.factor_at(config, learned, jnp.ones((BATCH, OBS)), noise)
    weight = f32([0.1, 0.3, 0.5, 0.8, 1.0])
    found = np.asarray(epq.penalty_weight(config, weight, factor))
    np.testing.assert_allclose(found, np.full(BATCH, 0.005) if wanted == "floor" else weight, rtol=1e-5)


def test_latents_are_clipped_and_fresh_for_each_sampled_action() -> None:
    noise = epq.draw_noise(made_config(), (BATCH, ACT), LATENT, jax.random.PRNGKey(0))
    assert noise.latent.shape == (N, BATCH, LATENT)
    assert float(jnp.abs(noise.latent).max()) == 0.5
    assert not np.array_equal(noise.latent[0], noise.latent[1])


# The weights of rows


def priority(**changes: Any) -> PriorityConfig:
    return PriorityConfig(**({"neighbours": 6, "epsilon": 1.5, "zeta": 0.7, "gamma": 0.9, "q_beta": None} | changes))


def weights(obs: np.ndarray, value: Any, **changes: Any) -> np.ndarray:
    found, _ = epq_behaviour.priority_weights(obs, np.asarray(value), priority(**changes), lambda *_: None)
    return found


def test_a_weight_is_a_softmax_of_returns_over_the_neighbourhood() -> None:
    rng = np.random.default_rng(0)
    obs = rng.normal(size=(60, 2)).astype(np.float32)
    obs[40:50] = obs[:10]  # copies
    value = rng.normal(size=60)
    every = np.sqrt(((obs[:, None].astype(np.float64) - obs[None]) ** 2).sum(-1))
    spacing = np.mean([row[row > 1e-5].min() for row in every])
    wanted, sizes = [], []
    for i in range(60):
        near = [k for k in np.argsort(every[i], kind="stable")[:6] if every[i, k] <= 1.5 * spacing]
        wanted.append(np.exp(value[i] / 0.7) / np.exp(value[near] / 0.7).sum())
        sizes.append(len(near))
    assert min(sizes) == 1
    assert max(sizes) == 6
    np.testing.assert_allclose(weights(obs, value), wanted, rtol=1e-5)


def test_a_state_without_neighbours_has_the_weight_one() -> None:
    obs = np.array([[0.0], [0.1], [100.0]], np.float32)
    found = weights(obs, [0.0, 1.0, -50.0], epsilon=0.5)
    assert found[2] == 1.0
    np.testing.assert_array_equal(weights(obs, [0.0, 1.0, -50.0], neighbours=1), np.ones(3))


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), st.floats(-20, 20)), min_size=1, max_size=20), st.floats(0.0, 5.0))
def test_weights_lie_between_zero_and_one(rows: list[tuple[int, float]], epsilon: float) -> None:
    state, value = np.array(rows).T
    found = weights(state[:, None].astype(np.float32), value, epsilon=epsilon)
    assert (found > 0.0).all()
    assert (found <= 1.0).all()


def test_weights_of_one_neighbourhood_add_up_to_one_however_large_the_returns() -> None:
    value = np.array([1e8, 1e8 - 0.7, -1e8, 3.0])
    found = weights(np.zeros((4, 2), np.float32), value)
    assert found.sum() == pytest.approx(1.0)
    assert found[1] / found[0] == pytest.approx(np.exp(-1.0), rel=1e-5)


def test_returns_do_not_leak_across_a_time_out() -> None:
    data, other = made_log(), np.array(made_log().reward)
    other[8:] += 1e3
    changed = made_log(reward=other)
    norm = normaliser_in(data, "raw", "raw", 0.9)
    before, after = (epq_behaviour.row_values(d, norm, priority(), silent) for d in (data, changed))
    np.testing.assert_array_equal(before[:8], after[:8])
    r = np.asarray(data.reward, np.float64)
    np.testing.assert_allclose(before[4:8], [r[i:8] @ 0.9 ** np.arange(8 - i) for i in range(4, 8)])


def test_returns_are_in_the_units_of_the_critics() -> None:
    data = made_log()
    norm = normaliser_in(data, "raw", "spread", 0.9)
    found = epq_behaviour.row_values(data, norm, priority(), silent)
    np.testing.assert_allclose(found, data.returns_to_go(0.9) / norm.reward_scale, rtol=1e-6)


# The behaviour


def test_the_value_of_the_behaviour_learns_from_actions_that_followed() -> None:
    data = made_log()
    rows = epq_behaviour.sarsa_rows(data, normaliser_in(data, "raw", "raw", 0.9))
    kept = [0, 1, 2, 3, 4, 5, 6, 8, 9, 10]  # neither row 7, which was cut, nor the last one
    np.testing.assert_array_equal(rows.features, data.obs[kept])
    alive = np.array(kept) != 3
    np.testing.assert_allclose(np.asarray(rows.next_action)[alive], data.action[np.array(kept) + 1][alive], atol=1e-6)
    with pytest.raises(UserError, match="use_q_beta"):
        epq_behaviour.sarsa_rows(
            made_log(terminal=np.zeros(LOG, bool), timeout=np.ones(LOG, bool)), normaliser_in(data, "raw", "raw", 0.9)
        )


def test_the_value_of_the_behaviour_is_its_return_where_everything_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(epq_behaviour, "TARGET_RATE", 1.0)
    data = made_log(terminal=np.arange(LOG) % 2 == 1, timeout=np.zeros(LOG, bool))
    recipe = VAEConfig(steps=600, batch=32, rate=1e-2, evaluate_every=300)
    config = priority(q_beta=QBetaConfig(0.9, 32, 1, recipe))
    found = epq_behaviour.row_values(data, normaliser_in(data, "raw", "raw", 0.9), config, silent)
    np.testing.assert_allclose(found, data.returns_to_go(0.9), atol=0.1)


def test_a_behaviour_model_that_diverges_says_so() -> None:
    config = VAEConfig(width=4, depth=1, steps=2, batch=2, evaluate_every=2)
    rows = f32(np.full((4, OBS), np.nan)), jnp.zeros((4, ACT))
    with pytest.raises(Diverged, match=r"vae\.rate"):
        epq_behaviour.fit_vae(made_learned().vae, rows, config, lambda *_: None)


def test_what_was_prepared_is_found_again_and_only_what_changed_is_made_anew(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("PSPO_CACHE", str(tmp_path))
    small = {"vae.width": 4, "vae.steps": 20, "vae.batch": 4, "vae.evaluate_every": 20, "vae.rate": 1e-2}
    seen: list[str] = []
    runs = []
    for zeta in (1.0, 1.0, 3.0):
        parts, facts = epq.prepare(
            made_config(zeta=zeta, epsilon=3.0, **small), made_log(), 0, lambda stage, *_: seen.append(stage)
        )
        assert parts.arrays.weight.shape == (LOG,)
        runs.append(facts)
    assert {"behaviour VAE", "nearest states"} == set(seen)
    assert [facts["behaviour"]["cached"] for facts in runs] == [False, True, True]
    assert [facts["priorities"]["cached"] for facts in runs] == [False, True, False]
    assert runs[0]["priorities"]["digest"] == runs[1]["priorities"]["digest"] != runs[2]["priorities"]["digest"]
    assert runs[0]["behaviour"]["digest"] == runs[2]["behaviour"]["digest"]


# The presets


@pytest.mark.parametrize("name", ["smoke", "laptop", "paper"])
def test_every_table_of_the_preset_is_read(name: str) -> None:
    for table in preset_table("epq")[name]:
        task, _, quality = table.partition("-")
        values = preset("epq", name, task, f"{task}-{quality}-v2") if quality else preset("epq", name, task)
        build(Config, values)
    found = build(Config, preset("epq", "paper", "walker2d", "walker2d-medium-v2"))
    assert (found.tau, found.epsilon, found.zeta, found.c_min) == (1.0, 2.0, 2.0, 0.5)
    assert found.use_q_beta
    assert found.logsum
