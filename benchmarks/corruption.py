"""Why the posterior leaves a corrupted half so much of its mass: `python -m benchmarks.corruption RUNS`.

RUNS is what `python -m benchmarks.liquidation corrupted pspo --runs RUNS` left. At states of the dataset
with the final policy's actions, states are sorted into fifths by the distance of the two halves' backups, and for each:

- mass: posterior weight of the corrupted half
- side: where the critic is between the halves, 0 with the clean, 1 with the corrupted one
- mass with the critic of the run on the clean pool with the same seed
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
STATES, FIFTHS = 20_000, 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path)
    parser.add_argument("--result", type=Path, default=RESULT)
    options = parser.parse_args()
    seeds = sorted(path.name for path in (options.runs / "corrupted").glob("seed-*"))
    measured = [measure_seed(options.runs, seed) for seed in seeds]
    summary = {name: np.mean([one[name] for one in measured], axis=0).tolist() for name in measured[0]}
    std = {name: np.std([one[name] for one in measured], axis=0).tolist() for name in measured[0]}
    result = {"command": "python -m benchmarks.corruption RUNS", "seeds": seeds, "mean": summary, "std": std}
    options.result.write_text(json.dumps(result, indent=2) + "\n")
    print(table(summary))


def table(mean: dict[str, list[float]]) -> str:
    """One line per fifth, then all states."""
    lines = ["| states by distance of the halves | " + " | ".join(mean) + " |", "|---|" + "---|" * len(mean)]
    names = [f"fifth {i + 1}" for i in range(FIFTHS)] + ["all"]
    for i, name in enumerate(names):
        lines.append(f"| {name} | " + " | ".join(f"{values[i]:.3f}" for values in mean.values()) + " |")
    return "\n".join(lines)


def measure_seed(runs: Path, seed: str) -> dict[str, np.ndarray]:
    os.environ["PSPO_CACHE"] = str(runs / "corrupted-cache")
    config, setup, state, data, _ = restore(runs / "corrupted" / seed)
    # The critic's shape does not depend on the pool, which is not in this cache.
    clean_state = restore(runs / "pspo" / seed, same_pool=False).state
    return measure(config, setup, state, clean_state, data)


def measure(config: Any, setup: Any, state: Any, clean_state: Any, data: Any) -> dict[str, np.ndarray]:
    from pspo.algorithms.pspo.diagnostics import whole_pool
    from pspo.algorithms.pspo.evaluation import q_values
    from pspo.algorithms.pspo.rollout import active_posterior
    from pspo.data.batches import sample_transitions
    from pspo.data.normalise import squash

    k_states, k_action, k_backup = jax.random.split(jax.random.PRNGKey(2), 3)
    obs = sample_transitions(data, k_states, STATES).obs
    action = squash(state.params.policy(setup.norm.encode(obs)).sample(k_action, 1)[0])
    half = setup.arrays.pool.size // 2

    def posterior(critic: Any, beta: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        changed = state._replace(target_critic=critic)
        setting = config.__class__(**{**vars(config), "beta": beta})
        backup = active_posterior(
            setting, setup, context=whole_pool(setup), state=changed, obs=obs, action=action, key=k_backup
        )
        q = q_values(config, critic, setup.norm.encode(obs), action)
        return np.asarray(jnp.exp(backup.log_weight)[half:].sum(0)), np.asarray(backup.backup), np.asarray(q)

    mass, backup, q = posterior(state.target_critic, config.beta)
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
        "mass, clean critic": by_fifth(posterior(clean_critic, config.beta)[0]),
        "mass, beta x 10": by_fifth(posterior(state.target_critic, ten)[0]),
        "mass, clean critic, beta x 10": by_fifth(posterior(clean_critic, ten)[0]),
    }


if __name__ == "__main__":
    main()
