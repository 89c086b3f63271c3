"""The claims about PSPO on optimal liquidation: `python -m benchmarks.liquidation [VARIANT ...]`.

Each variant is `pspo train liquidation --seeds 4` with one switch changed; final policies, 100,000
episodes each. What is kept: benchmarks/results/liquidation-VARIANT.json with the command, mean,
standard deviation and every seed's numbers. Seeds start at 20; docs/lab/liquidation.md says how the preset was chosen.

The corrupted variants replace half of the pool by members that were fitted to data whose price moves and
rewards had been shuffled between transitions, and test whether the posterior notices.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import claims

VARIANTS: dict[str, list[str]] = {
    "pspo": [],
    "own-pools": ["model.seed=-1"],
    "uniform-posterior": ["posterior=uniform"],
    "no-reference": ["reference_term=false"],
    "corrupted": [],
    "corrupted-uniform-posterior": ["posterior=uniform"],
    "corrupted-likelihood-prior": ["prior=likelihood"],
}


def main() -> None:
    parser = claims.claim_parser(__doc__)
    parser.add_argument("variants", nargs="*", metavar="VARIANT", help=f"default: all of {', '.join(VARIANTS)}")
    parser.add_argument("--episodes", type=int, default=100_000)
    parser.add_argument("--preset", default="laptop")
    options = claims.parse(parser, table)
    claims.require_variants(parser, options.variants, VARIANTS)
    runs = claims.runs_folder(options, "liquidation")
    for variant in options.variants or VARIANTS:
        measure(variant, options, runs / variant)


def measure(variant: str, options: argparse.Namespace, folder: Path) -> None:
    what = ["liquidation", "--preset", options.preset]
    words = claims.train_words(what, options, options.episodes, VARIANTS[variant])
    environment = dict(os.environ)
    corrupted = variant.startswith("corrupted")
    if corrupted:
        # A separate cache: the corrupted pool has the key of the clean one and must not be used elsewhere.
        environment["PSPO_CACHE"] = str(folder.parent / "corrupted-cache")
        code = f"from benchmarks.liquidation import corrupt_pool; corrupt_pool({options.preset!r})"
        subprocess.run([sys.executable, "-c", code], check=True, env=environment)
    summary = claims.run(words, folder, environment)
    if corrupted:
        mass = [corrupted_mass(folder / f"seed-{seed}") for seed in summary["seeds"]]
        summary["mass_on_corrupted_half"] = {"mean": float(np.mean(mass)), "each": mass}
    result = {
        "variant": variant,
        "command": f"python -m benchmarks.liquidation {variant}",
        "runs": shlex.join(["pspo", *words]),
        "manifest": claims.manifest(folder, summary),
        "summary": summary,
    }
    claims.keep(result, options.results, f"liquidation-{variant}")


def table(results: Path) -> str:
    """The kept results as a Markdown table."""
    lines = [
        "| variant | score, 100,000 episodes | score by exact regret | each seed, by regret | posterior entropy |",
        "|---|---|---|---|---|",
    ]
    for variant in VARIANTS:
        path = results / f"liquidation-{variant}.json"
        if not path.exists():
            continue
        result = json.loads(path.read_text())["summary"]
        score, exact, entropy = result["score"], result["score_by_regret"], result["posterior_entropy"]
        each = ", ".join(f"{value:.2f}" for value in exact["each"])
        lines.append(
            f"| {variant} | {score['mean']:.2f} ± {score['std']:.2f} | {exact['mean']:.2f} ± {exact['std']:.2f} "
            f"| {each} | {entropy['mean']:.3f} |"
        )
    return "\n".join(lines)


def corrupted_mass(run: Path) -> float:
    """Mean posterior weight of the corrupted half, over dataset states with the policy's actions."""
    from pspo.core.files import read_arrays

    weight = read_arrays(run / "diagnostics.safetensors")[0]["member_weight"]
    return float(weight[len(weight) // 2 :].sum())


def corrupt_pool(preset_name: str) -> None:
    """Put a pool into the cache whose second half was fitted to shuffled outcomes."""
    import jax
    import jax.numpy as jnp

    from pspo.algorithms.pspo.algorithm import Config
    from pspo.algorithms.registry import preset
    from pspo.core.cache import store
    from pspo.core.config import build
    from pspo.core.progress import Lines
    from pspo.data import load_dataset
    from pspo.data.normalise import fit_normaliser
    from pspo.dynamics.pool import Pool, load_or_fit_pool
    from pspo.dynamics.quality import holdout_nll

    config = build(Config, preset("pspo", preset_name, "liquidation"))
    clean = load_dataset("liquidation")
    shuffled = shuffle_outcomes(clean)
    norm = fit_normaliser(clean, config.gamma)
    show = Lines()
    pools = [
        load_or_fit_pool(data, norm, config.model, 0, lambda *a, name=name: show(name, *a))
        for name, data in (("clean members", clean), ("corrupted members", shuffled))
    ]
    good, bad = (pool.models for pool, _ in pools)
    # Shuffling within a column keeps its mean and standard deviation, so both halves share the scale of their targets.
    np.testing.assert_allclose(good.target_std, bad.target_std, rtol=1e-4)
    half = config.model.pool // 2
    models = dataclasses.replace(
        good,
        net=jax.tree.map(lambda a, b: jnp.concatenate([a[:half], b[half:]]), good.net, bad.net),
        log_std_low=jnp.concatenate([good.log_std_low[:half], bad.log_std_low[half:]]),
        log_std_high=jnp.concatenate([good.log_std_high[:half], bad.log_std_high[half:]]),
    )
    nll = holdout_nll(clean, norm, models, clean.split(config.model.holdout, config.model.seed)[1])
    info = pools[0][1]
    store(info["key"], Pool(models, nll), {k: v for k, v in info.items() if k not in ("key", "cached", "digest")})
    print("hold-out NLL per member:", np.asarray(nll).round(3).tolist())


def shuffle_outcomes(dataset: Any) -> Any:
    """The dataset with price moves and rewards moved to other transitions."""
    order = np.random.default_rng(0).permutation(dataset.size)
    next_obs = np.array(dataset.next_obs)
    next_obs[:, 2] = dataset.obs[:, 2] + (dataset.next_obs - dataset.obs)[order, 2]
    return dataclasses.replace(dataset, next_obs=next_obs, reward=dataset.reward[order])


if __name__ == "__main__":
    main()
