"""The numbers that authors publish, written out once more: what a preset gives for a dataset must be them.

A table is a published one: which algorithm, in which presets, which settings, and what they are for each dataset.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import pytest

from pspo.algorithms import get_algorithm
from pspo.algorithms.registry import preset
from pspo.core.config import build, flatten
from pspo.data.readers.d4rl import NAMES

DATASETS = [name.removesuffix("-v2") for name in NAMES]
BOTH = ("laptop", "paper")


class Table(NamedTuple):
    algo: str
    presets: tuple[str, ...]
    settings: str
    """Their names, as the columns of `numbers`."""
    numbers: dict[str, tuple[Any, ...]]
    """By dataset."""


def everywhere(algo: str, presets: tuple[str, ...], **numbers: Any) -> Table:
    """What is the same for all datasets."""
    return Table(algo, presets, " ".join(numbers), dict.fromkeys(DATASETS, tuple(numbers.values())))


EPQ = {  # support_threshold, epsilon, zeta, c_min, logsum, use_q_beta
    "halfcheetah-random": (10.0, 2.0, 2.0, 0.2, False, False),
    "halfcheetah-medium": (10.0, 0.5, 2.0, 0.2, False, False),
    "halfcheetah-expert": (1.0, 0.5, 2.0, 0.2, False, False),
    "halfcheetah-medium-expert": (1.5, 0.5, 2.0, 0.2, False, False),
    "halfcheetah-medium-replay": (2.0, 0.5, 2.0, 0.2, False, False),
    "halfcheetah-full-replay": (1.5, 0.5, 2.0, 0.2, False, False),
    "hopper-random": (1.0, 2.0, 2.0, 0.2, False, False),
    "hopper-medium": (0.2, 2.0, 5.0, 0.5, False, True),
    "hopper-expert": (1.0, 0.5, 2.0, 0.2, False, False),
    "hopper-medium-expert": (0.2, 0.5, 2.0, 0.2, False, False),
    "hopper-medium-replay": (1.0, 0.5, 2.0, 0.2, False, False),
    "hopper-full-replay": (1.5, 0.5, 2.0, 0.2, False, False),
    "walker2d-random": (0.2, 2.0, 0.5, 0.2, True, True),
    "walker2d-medium": (1.0, 2.0, 2.0, 0.5, True, True),
    "walker2d-expert": (1.0, 2.0, 0.5, 0.2, False, False),
    "walker2d-medium-expert": (1.0, 0.5, 2.0, 0.2, False, False),
    "walker2d-medium-replay": (0.2, 1.0, 2.0, 0.5, False, False),
    "walker2d-full-replay": (1.0, 0.5, 2.0, 0.2, False, False),
}

MOPO = {  # rollout_horizon, penalty
    "halfcheetah-random": (5, 0.5),
    "halfcheetah-medium": (1, 1.0),
    "halfcheetah-medium-replay": (5, 1.0),
    "halfcheetah-medium-expert": (5, 5.0),
    "hopper-random": (5, 1.0),
    "hopper-medium": (5, 5.0),
    "hopper-medium-replay": (5, 1.0),
    "hopper-medium-expert": (5, 1.0),
    "walker2d-random": (1, 1.0),
    "walker2d-medium": (5, 5.0),
    "walker2d-medium-replay": (1, 1.0),
    "walker2d-medium-expert": (1, 2.0),
}

ORAAC = {  # gamma, tau, reach; then the critic's width
    "halfcheetah-medium": (0.99, 0.005, 0.5, 256),
    "halfcheetah-expert": (0.99, 0.005, 0.25, 256),
    "hopper-medium": (0.9, 0.05, 0.25, 128),
    "hopper-expert": (0.9, 0.05, 0.25, 128),
    "walker2d-medium": (0.99, 0.005, 0.25, 256),
    "walker2d-expert": (0.99, 0.005, 0.25, 256),
}

COMBO = {  # rollout_horizon, conservatism; OfflineRL-Kit's, as the authors published no code
    "halfcheetah-medium": (5, 0.5),
    "halfcheetah-medium-replay": (5, 0.5),
    "halfcheetah-medium-expert": (5, 5.0),
    "hopper-medium": (5, 5.0),
    "hopper-medium-replay": (5, 0.5),
    "hopper-medium-expert": (5, 5.0),
    "walker2d-medium": (1, 5.0),
    "walker2d-medium-replay": (1, 0.5),
    "walker2d-medium-expert": (1, 5.0),
}

RAMBO = {  # rollout_horizon, adversary_weight
    "halfcheetah-random": (5, 0.0),
    "halfcheetah-medium": (5, 3e-4),
    "halfcheetah-medium-replay": (5, 3e-4),
    "halfcheetah-medium-expert": (5, 3e-4),
    "hopper-random": (2, 3e-4),
    "hopper-medium": (5, 3e-4),
    "hopper-medium-replay": (2, 3e-4),
    "hopper-medium-expert": (5, 3e-4),
    "walker2d-random": (5, 0.0),
    "walker2d-medium": (5, 0.0),
    "walker2d-medium-replay": (5, 0.0),
    "walker2d-medium-expert": (2, 3e-4),
}

ONE_RISK = {  # cvar_alpha, wang_eta, rollout_horizon
    "halfcheetah-random": (0.9, 0.1, 5),
    "halfcheetah-medium": (0.9, 0.1, 5),
    "halfcheetah-medium-replay": (0.9, 0.1, 5),
    "halfcheetah-medium-expert": (0.9, 0.1, 5),
    "hopper-random": (0.7, 0.5, 5),
    "hopper-medium": (0.9, 0.1, 5),
    "hopper-medium-replay": (0.5, 0.75, 1),
    "hopper-medium-expert": (0.9, 0.1, 5),
    "walker2d-random": (0.9, 0.1, 5),
    "walker2d-medium": (0.9, 0.1, 5),
    "walker2d-medium-replay": (0.9, 0.1, 1),
    "walker2d-medium-expert": (0.7, 0.5, 1),
}

ADM = {  # model.max_lag, rollout_horizon, penalty, real_ratio, alpha
    "halfcheetah-random": (2, 10, 2.5, 0.05, 0.1),
    "halfcheetah-medium": (2, 5, 2.5, 0.05, 0.1),
    "halfcheetah-medium-replay": (2, 5, 2.5, 0.05, 0.1),
    "halfcheetah-medium-expert": (2, 20, 9.16, 0.5, 0.05),
    "hopper-random": (5, 50, 5.0, 0.05, 1.0),
    "hopper-medium": (5, 10, 1.0, 0.05, 0.05),
    "hopper-medium-replay": (5, 5, 0.1, 0.5, 0.05),
    "hopper-medium-expert": (2, 20, 20.0, 0.5, 0.05),
    "walker2d-random": (2, 50, 2.5, 0.05, 1.0),
    "walker2d-medium": (5, 10, 5.0, 0.05, 0.01),
    "walker2d-medium-replay": (5, 5, 0.1, 0.5, 0.1),
    "walker2d-medium-expert": (3, 2, 6.0, 0.5, 0.011),
}

ENTROPY = {"halfcheetah": -3.0 / 6, "hopper": -3.0 / 3, "walker2d": -3.0 / 6}  # MOPO's -3, for each action column
NARROW = ("expert", "medium-expert")  # ours: DMG's authors publish one dataset's number

RAW = {"states": "raw", "rewards": "raw", "gamma": 0.99, "tau": 0.005}
STANDARDISED = RAW | {"states": "zscore", "width": 256, "depth": 2, "batch": 256, "steps": 1_000_000}
SAC_RATES = {"actor_lr": 1e-4, "critic_lr": 3e-4}
ONE_RATE = {"actor_lr": 3e-4, "critic_lr": 3e-4}

TABLES = [
    everywhere("cql", BOTH, gap_limit=0.0, gamma=0.99, tau=0.005, critic_lr=3e-4),
    everywhere("cql", ("laptop",), conservatism=10.0, actor_lr=1e-4, samples=10, depth=3, batch=256, **RAW),  # d3rlpy's
    everywhere("cql", ("laptop",), cloning_steps=0),
    everywhere(
        "cql",
        ("paper",),
        conservatism=5.0,
        actor_lr=1e-4,
        samples=10,
        cloning_steps=40_000,
        width=256,
        depth=3,
        batch=256,
        **RAW,
    ),
    everywhere("iql", BOTH, expectile=0.7, temperature=3.0, weight_max=100.0, rewards="range", **ONE_RATE),
    everywhere("iql", ("paper",), **STANDARDISED | {"states": "raw", "rewards": "range"}),
    everywhere("td3bc", BOTH, alpha=2.5, noise=0.2, noise_clip=0.5, actor_period=2, **ONE_RATE),
    everywhere("td3bc", ("paper",), **STANDARDISED),
    everywhere("dmg", BOTH, mixture=0.25, expectile=0.7, temperature=3.0, weight_max=3.0, **ONE_RATE),
    everywhere("dmg", BOTH, noise=0.2, noise_clip=0.5, actor_period=2),
    everywhere("dmg", ("paper",), **STANDARDISED),
    Table("dmg", BOTH, "imitation", {d: (10.0 if d.split("-", 1)[1] in NARROW else 0.1,) for d in DATASETS}),
    everywhere("oraac", BOTH, risk="cvar", risk_level=0.1, quantiles=32, risk_quantiles=8, batch=128, actor_period=2),
    everywhere("oraac", BOTH, critic_lr=1e-3, actor_lr=1e-4, vae_lr=1e-3),
    everywhere("oraac", ("paper",), states="raw", rewards="raw", depth=2, vae_width=750, actor_width=400),
    Table("oraac", ("laptop",), "gamma tau reach", {d: row[:3] for d, row in ORAAC.items()}),
    Table("oraac", ("paper",), "gamma tau reach width", ORAAC),
    everywhere("epq", BOTH, conservatism=20.0, samples=10, penalty_floor=0.005, ratio_temperature=1.0, neighbours=50),
    everywhere("epq", BOTH, gamma=0.99, **SAC_RATES),
    everywhere("epq", ("paper",), width=256, depth=3, batch=512, steps=3_000_000, cloning_steps=10_000),
    everywhere("epq", ("paper",), states="raw", rewards="raw", gamma=0.99, target_tau=0.005),
    Table("epq", ("laptop",), "support_threshold epsilon zeta c_min logsum", {d: row[:5] for d, row in EPQ.items()}),
    everywhere("epq", ("laptop",), states="zscore", cloning_steps=10_000, cloning_lr=1e-3, target_tau=0.02),
    everywhere("epq", ("laptop",), use_q_beta=False),  # far too few steps for it
    Table("epq", ("paper",), "support_threshold epsilon zeta c_min logsum use_q_beta", EPQ),
    Table("combo", BOTH, "rollout_horizon conservatism", COMBO),
    everywhere("combo", BOTH, penalised="mix", depth=3, samples=10),  # the kit's, as are its weights
    everywhere("combo", BOTH, real_ratio=0.5, retain=5, **SAC_RATES),
    Table("rambo", BOTH, "rollout_horizon adversary_weight", RAMBO),
    everywhere("rambo", ("laptop",), chunk=500, adversary_steps=500, alpha=0.2, cloning_lr=1e-3),  # 1:1, as the authors
    everywhere("rambo", ("paper",), adversary_steps=1000, real_ratio=0.5, retain=5, states="zscore", **SAC_RATES),
    Table("1r2r", BOTH, "cvar_alpha wang_eta rollout_horizon", ONE_RISK),
    everywhere("1r2r", BOTH, candidates=10, real_ratio=0.5),
    everywhere("adm", ("laptop",), **SAC_RATES),
    everywhere("morel", ("laptop",), gamma=0.999, rollout_horizon=700, paths=50),
    Table("adm", BOTH, "model.max_lag rollout_horizon penalty real_ratio alpha", ADM),
    everywhere("pmdb", BOTH, active=10, order=2, kl_target=5.0, explore=0.1),
    everywhere("pmdb", ("laptop",), tau=0.05, reference_tau=1e-4),  # critics settle before the reference follows
    everywhere("pmdb", ("paper",), reference_tau=1e-5, next_pairs=5, action_samples=20, actor_lr=3e-5),
    Table("mopo", BOTH, "rollout_horizon penalty", MOPO),
    everywhere("mopo", ("laptop",), actor_decay=True, **SAC_RATES),  # the kit's
    Table("mopo", BOTH, "entropy_goal", {d: (ENTROPY[d.split("-", 1)[0]],) for d in DATASETS}),
]


@cache
def numbers_of(algo: str, name: str, dataset: str) -> dict[str, Any]:
    return flatten(build(get_algorithm(algo).Config, preset(algo, name, dataset.split("-")[0], f"{dataset}-v2")))


@pytest.mark.parametrize("table", TABLES, ids=lambda table: f"{table.algo} {'+'.join(table.presets)} {table.settings}")
def test_a_preset_has_the_published_numbers_of_every_dataset(table: Table) -> None:
    names = table.settings.split()
    assert set(table.numbers) <= set(DATASETS)
    for name in table.presets:
        for dataset, wanted in table.numbers.items():
            found = numbers_of(table.algo, name, dataset)
            assert {setting: found[setting] for setting in names} == dict(zip(names, wanted, strict=True)), (
                f"{name}, {dataset}"
            )


def test_epqs_authors_chose_for_every_dataset() -> None:
    assert set(EPQ) == set(DATASETS)
