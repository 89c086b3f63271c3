"""Policies to evaluate off-policy, good ones and collapsed ones: `python -m benchmarks.ope_policies DATA-FOLDER OUT`.

For every DATASET.hdf5 in DATA-FOLDER (or those that are named) short trainings of several algorithms are stopped at
several steps, and every stop becomes OUT/DATASET/NAME.safetensors. They are no baselines: all are far shorter than the
presets, and `pspo-loose` has no limit on the distance to the reference, and `mopo-0` no penalty, to get policies that
exploit the models. `perturbed-X` is the reference policy with noise of X standard deviations on the weights of each
layer. `--checkpoints RUN ...` adds the policies in the checkpoints of PSPO runs, finished or not, instead of training
anything. Finished runs can be put beside them: `python -m benchmarks.ope_locomotion` takes both. Existing files are
kept, so that the same command continues.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from pspo.algorithms.common.behaviour import load_or_fit_reference
from pspo.algorithms.registry import get_algorithm_for, preset
from pspo.core.config import build
from pspo.core.files import read_arrays
from pspo.core.progress import Progress, silent
from pspo.core.trees import from_arrays
from pspo.data import load_dataset
from pspo.data.batches import device_dataset
from pspo.data.dataset import Dataset
from pspo.data.normalise import fit_normaliser
from pspo.evaluation.config import evaluation_config
from pspo.policies.policy import from_network
from pspo.training.loop import compile_chunk

SEED = 600  # no other benchmark has it
PREFIX = ".params.policy"  # of the policy's arrays in a checkpoint of PSPO


class Recipe(NamedTuple):
    """One training, and the steps after which its policy is kept."""

    name: str
    algo: str
    settings: dict[str, Any]
    stops: tuple[int, ...]


RECIPES = (
    Recipe("bc", "bc", {}, (200, 3000)),
    Recipe("td3bc", "td3bc", {}, (1000, 5000)),
    Recipe("td3bc-greedy", "td3bc", {"alpha": 50.0}, (3000,)),
    Recipe("iql", "iql", {}, (1000, 5000)),
    Recipe("cql", "cql", {"samples": 4}, (2000,)),
    Recipe("pspo-loose", "pspo", {"kl_limit": 0.0, "alpha": 1e-4, "policy_lr": 2e-4}, (500, 1000, 2000)),
    Recipe("mopo-0", "mopo", {"penalty": 0.0}, (1000, 3000)),
)
MODELS_OF_PSPO = ("mopo",)
"""Trained in PSPO's models of the dataset, as its own would have to be fitted first."""
PERTURBED = (0.05, 0.1, 0.2, 0.4)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, metavar="DATA-FOLDER")
    parser.add_argument("out", type=Path, metavar="OUT")
    parser.add_argument("datasets", nargs="*", metavar="DATASET", help="default: all in DATA-FOLDER")
    every = [*(recipe.name for recipe in RECIPES), "perturbed"]
    parser.add_argument("--recipes", nargs="+", default=every, choices=every, metavar="NAME", help=", ".join(every))
    parser.add_argument("--checkpoints", nargs="+", type=Path, default=[], metavar="RUN", help="of PSPO, on DATASET")
    options = parser.parse_args(arguments)
    if options.checkpoints:
        return from_checkpoints(options)
    names = options.datasets or sorted(path.stem for path in options.data.glob("*.hdf5"))
    if missing := [name for name in names if not (options.data / f"{name}.hdf5").exists()]:
        parser.error(f"there is no {missing[0]}.hdf5 in {options.data}.")
    for name in names:
        make_policies(options.data / f"{name}.hdf5", options.out / name, options.recipes)


def from_checkpoints(options: argparse.Namespace) -> None:
    """The policies in all checkpoints of PSPO runs on one dataset."""
    data = load_dataset(options.data / f"{options.datasets[0]}.hdf5", task=options.datasets[0].split("-")[0])
    like, _ = reference(data)
    for run in options.checkpoints:
        config = json.loads((run / "config.json").read_text())
        norm = fit_normaliser(data, config["settings"]["gamma"])
        for file in sorted((run / "checkpoints").glob("*.safetensors")):
            arrays, _ = read_arrays(file)
            of_policy = {name.removeprefix(PREFIX): a for name, a in arrays.items() if name.startswith(PREFIX)}
            path = options.out / options.datasets[0] / f"{run.name}-{int(file.stem)}.safetensors"
            if not path.exists():
                save(path, from_arrays(like, of_policy), norm, data, "pspo", int(file.stem))


def make_policies(file: Path, folder: Path, recipes: Sequence[str]) -> None:
    data = load_dataset(file, task=file.stem.split("-")[0])
    folder.mkdir(parents=True, exist_ok=True)
    for recipe in RECIPES:
        wanted = {stop: folder / f"{recipe.name}-{stop}.safetensors" for stop in recipe.stops}
        if recipe.name in recipes and not all(path.exists() for path in wanted.values()):
            for stop, network, norm in train(data, recipe):
                save(wanted[stop], network, norm, data, recipe.algo, stop)
    paths = {scale: folder / f"perturbed-{scale:g}.safetensors" for scale in (0.0, *PERTURBED)}
    if "perturbed" in recipes and not all(path.exists() for path in paths.values()):
        mu, norm = reference(data)
        for scale, path in paths.items():
            save(path, perturb(mu, scale), norm, data, "perturbed reference", 0)


def settings_of(data: Dataset, recipe: Recipe) -> dict[str, Any]:
    """The preset, with what the recipe changes."""
    settings = preset(recipe.algo, "laptop", data.task, data.name) | {"steps": recipe.stops[-1]}
    if recipe.algo in MODELS_OF_PSPO:
        pspo = evaluation_config(data).pspo
        settings |= {"states": "features", "rewards": "std", "gamma": pspo.gamma}
        settings |= {f"model.{field.name}": getattr(pspo.model, field.name) for field in dataclasses.fields(pspo.model)}
    return settings | recipe.settings


def train(data: Dataset, recipe: Recipe) -> Any:
    """(stop, network, normaliser) at every stop of the recipe."""
    algorithm = get_algorithm_for(data, recipe.algo)
    config = build(algorithm.Config, settings_of(data, recipe), algo=recipe.algo)
    setup, _ = algorithm.prepare(config, data, SEED, progress_of(data, recipe.name))
    device_data = device_dataset(data, setup.norm, config.gamma)
    state = jax.jit(lambda data, key: algorithm.init(config, setup, data, key))(device_data, jax.random.PRNGKey(SEED))
    chunk, done = compile_chunk(algorithm, config, setup), 0
    length = int(np.gcd.reduce([*recipe.stops, config.chunk]))
    while done < recipe.stops[-1]:
        state, _ = chunk(state, setup.arrays, device_data, length=length)
        done += length
        if done in recipe.stops:
            yield done, algorithm.policies(state)["policy"], setup.norm


def reference(data: Dataset) -> tuple[Any, Any]:
    """The policy that PSPO starts from, which weights the dataset's actions by their advantages."""
    config = evaluation_config(data).pspo
    norm = fit_normaliser(data, config.gamma)
    show = progress_of(data, "reference")
    mu, _ = load_or_fit_reference(data, norm, config.reference, 0, lambda *a: show("", *a), config.gamma)
    return mu, norm


def perturb(network: Any, scale: float) -> Any:
    """Every layer's weights with Gaussian noise, in standard deviations of that layer's weights."""
    rng = np.random.default_rng(SEED)

    def noisy(leaf: Any) -> Any:
        if not hasattr(leaf, "ndim") or leaf.ndim < 2:
            return leaf
        return leaf + scale * leaf.std() * rng.standard_normal(leaf.shape).astype(np.float32)

    return jax.tree.map(noisy, network)


def save(path: Path, network: Any, norm: Any, data: Dataset, algo: str, step: int) -> None:
    metadata = {"algo": algo, "dataset": data.name, "task": data.task, "seed": SEED, "step": step}
    from_network(network, norm, metadata).save(path)
    print(path, flush=True)


def progress_of(data: Dataset, name: str) -> Progress:
    print(f"{data.name}: {name}", flush=True)
    return silent


if __name__ == "__main__":
    main()
