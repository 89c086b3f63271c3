"""Why the posterior leaves a corrupted half so much of its mass: `python -m benchmarks.corruption RUNS`.

RUNS is what `python -m benchmarks.liquidation corrupted pspo --runs RUNS` left. At logged states with the
final policy's actions, rows are sorted into fifths by how far the two halves' backups lie apart, and for each:

- mass: what the corrupted half keeps
- side: where the critic stands between the halves, 0 with the clean, 1 with the corrupted one
- mass if the critic had learned from clean models (of the run on the untouched pool with the same seed)
- mass at ten times beta, with the run's own critic and with the clean one
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.restore import restore

RESULT = Path(__file__).parent / "results" / "corruption.json"
ROWS, FIFTHS = 20_000, 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path)
    parser.add_argument("--result", type=Path, default=RESULT)
    options = parser.parse_args()
    seeds = sorted(path.name for path in (options.runs / "corrupted").glob("seed-*"))
    found = [look(options.runs, seed) for seed in seeds]
    summary = {name: np.mean([one[name] for one in found], axis=0).tolist() for name in found[0]}
    spread = {name: np.std([one[name] for one in found], axis=0).tolist() for name in found[0]}
    result = {"command": "python -m benchmarks.corruption RUNS", "seeds": seeds, "mean": summary, "std": spread}
    options.result.write_text(json.dumps(result, indent=2) + "\n")
    print(table(summary))


def table(mean: dict[str, list[float]]) -> str:
    """One line per fifth, then all rows."""
    lines = ["| rows by distance of the halves | " + " | ".join(mean) + " |", "|---|" + "---|" * len(mean)]
    names = [f"fifth {i + 1}" for i in range(FIFTHS)] + ["all"]
    for i, name in enumerate(names):
        lines.append(f"| {name} | " + " | ".join(f"{values[i]:.3f}" for values in mean.values()) + " |")
    return "\n".join(lines)


def look(runs: Path, seed: str) -> dict[str, np.ndarray]:
    os.environ["PSPO_CACHE"] = str(runs / "corrupted-cache")
    config, setup, state, log, _ = restore(runs / "corrupted" / seed)
    # The critic's shape does not depend on the pool, which is not in this cache.
    clean_state = restore(runs / "pspo" / seed, same_pool=False).state
    return measure(config, setup, state, clean_state, log)


def measure(config: Any, setup: Any, state: Any, clean_state: Any, log: Any) -> dict[str, np.ndarray]:
    from pspo.algorithms.pspo import algorithm as pspo
    from pspo.algorithms.pspo.diagnostics import whole_pool
    from pspo.data.batches import sample_transitions
    from pspo.data.normalise import squash

    k_rows, k_action, k_weigh = jax.random.split(jax.random.PRNGKey(2), 3)
    obs = sample_transitions(log, k_rows, ROWS).obs
    action = squash(state.params.policy(setup.norm.encode(obs)).sample(k_action, 1)[0])
    half = setup.arrays.pool.size // 2

    def weigh(critic: Any, beta: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        judged = state._replace(target_critic=critic)
        setting = config.__class__(**{**vars(config), "beta": beta})
        weighed = pspo.posterior(setting, setup, whole_pool(setup), judged, obs, action, k_weigh)
        q = pspo.q_values(config, critic, setup.norm.encode(obs), action)
        return np.asarray(jnp.exp(weighed.log_weight)[half:].sum(0)), np.asarray(weighed.backup), np.asarray(q)

    mass, backup, q = weigh(state.target_critic, config.beta)
    clean, corrupted = backup[:half].mean(0), backup[half:].mean(0)
    apart = np.abs(corrupted - clean)
    fifth = np.digitize(apart, np.quantile(apart, np.linspace(0, 1, FIFTHS + 1)[1:-1]))

    def by_fifth(values: np.ndarray, middle=np.mean) -> np.ndarray:
        return np.array([*(middle(values[fifth == i]) for i in range(FIFTHS)), middle(values)])

    clean_critic, ten = clean_state.target_critic, 10.0 * config.beta
    return {
        "distance": by_fifth(apart),
        "mass": by_fifth(mass),
        "side": by_fifth((q - clean) / (corrupted - clean), np.median),
        "mass, clean critic": by_fifth(weigh(clean_critic, config.beta)[0]),
        "mass, beta x 10": by_fifth(weigh(state.target_critic, ten)[0]),
        "mass, clean critic, beta x 10": by_fifth(weigh(clean_critic, ten)[0]),
    }


if __name__ == "__main__":
    main()
