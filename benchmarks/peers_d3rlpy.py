"""One run of d3rlpy, in its own environment (pip install d3rlpy): called by `python -m benchmarks.peers`.

    python benchmarks/peers_d3rlpy.py DATA.hdf5 ALGO SEED STEPS EVERY OUT-FOLDER

Writes the policy as OUT-FOLDER/STEP.npz every EVERY steps, in the format of docs/collecting.md, so that pspo evaluates
it in the same simulator as its own. It imports nothing of pspo. Hyperparameters are those of benchmarks/peers.py.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import d3rlpy
import h5py
import numpy as np
import torch
from d3rlpy.dataset import MDPDataset
from d3rlpy.models.encoders import VectorEncoderFactory
from d3rlpy.preprocessing import ReturnBasedRewardScaler, StandardObservationScaler


def read(path: str) -> tuple[MDPDataset, dict[str, np.ndarray]]:
    with h5py.File(path) as file:
        names = ("observations", "actions", "rewards", "terminals", "timeouts")
        data = {name: np.asarray(file[name]) for name in names}
    dataset = MDPDataset(
        data["observations"],
        data["actions"],
        data["rewards"],
        data["terminals"].astype(np.float32),
        data["timeouts"].astype(np.float32) * ~data["terminals"].astype(bool),
    )
    return dataset, data


def returns(data: dict[str, np.ndarray]) -> np.ndarray:
    """Of all episodes."""
    ends = np.flatnonzero(data["terminals"].astype(bool) | data["timeouts"].astype(bool))
    return np.diff(np.concatenate([[0.0], np.cumsum(data["rewards"], dtype=np.float64)[ends]]))


def make(algo: str, data: dict[str, np.ndarray]) -> tuple[Any, np.ndarray, np.ndarray]:
    """The algorithm, with the mean and the standard deviation by which it scales observations."""
    mean, std = data["observations"].mean(0, dtype=np.float64), data["observations"].std(0, dtype=np.float64) + 1e-3
    scaler = StandardObservationScaler(mean=mean.astype(np.float32), std=std.astype(np.float32), eps=0.0)
    wide, narrow = VectorEncoderFactory([256, 256]), VectorEncoderFactory([128, 128])
    if algo == "td3bc":
        config: Any = d3rlpy.algos.TD3PlusBCConfig(
            observation_scaler=scaler, actor_encoder_factory=wide, critic_encoder_factory=wide
        )
    elif algo == "iql":
        total = returns(data)
        config = d3rlpy.algos.IQLConfig(
            observation_scaler=scaler,
            reward_scaler=ReturnBasedRewardScaler(float(total.max()), float(total.min()), multiplier=1000.0),
            actor_encoder_factory=wide,
            critic_encoder_factory=wide,
            value_encoder_factory=wide,
        )
    else:
        config = d3rlpy.algos.CQLConfig(
            observation_scaler=scaler,
            actor_learning_rate=1e-4,
            critic_learning_rate=3e-4,
            temp_learning_rate=1e-4,
            alpha_learning_rate=0.0,
            conservative_weight=10.0,
            n_action_samples=4,
            batch_size=128,
            actor_encoder_factory=narrow,
            critic_encoder_factory=narrow,
        )
    return config.create(device="cpu:0"), mean, std


def _require_same(algorithm: Any, arrays: dict[str, Any], mean: np.ndarray, std: np.ndarray, obs: np.ndarray) -> None:
    """What is written must act as d3rlpy itself does."""
    x = np.clip((obs - mean) / std, -10.0, 10.0)
    for i in range(len(arrays) // 2 - 1):
        x = np.maximum(x @ arrays[f"w{i}"] + arrays[f"b{i}"], 0.0)
    difference = np.abs(np.tanh(x @ arrays["mean_w"] + arrays["mean_b"]) - algorithm.predict(obs)).max()
    if difference > 1e-3:
        raise SystemExit(f"the written policy differs from d3rlpy's by {difference}")


def write_policy(algorithm: Any, mean: np.ndarray, std: np.ndarray, obs: np.ndarray, path: Path) -> None:
    """Its deterministic policy: hidden layers of ReLU, then the tanh of the mean."""
    layers = [m for m in algorithm.impl.policy.modules() if isinstance(m, torch.nn.Linear)]
    if hasattr(algorithm.impl.policy, "_logstd") and isinstance(algorithm.impl.policy._logstd, torch.nn.Linear):
        layers = [layer for layer in layers if layer is not algorithm.impl.policy._logstd]
    arrays: dict[str, Any] = {}
    for i, layer in enumerate(layers):
        names = ("mean_w", "mean_b") if i == len(layers) - 1 else (f"w{i}", f"b{i}")
        arrays |= {names[0]: layer.weight.detach().numpy().T, names[1]: layer.bias.detach().numpy()}
    _require_same(algorithm, arrays, mean, std, obs)
    columns = len(arrays["mean_b"])
    np.savez(
        path,
        **arrays,
        log_std=np.full(columns, -20.0, np.float32),
        obs_mean=mean.astype(np.float32),
        obs_std=std.astype(np.float32),
        activation="relu",
        squash="tanh",
    )


def main(words: list[str]) -> None:
    path, algo, seed, steps, every, out = words
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    d3rlpy.seed(int(seed))
    dataset, data = read(path)
    algorithm, mean, std = make(algo, data)
    algorithm.build_with_dataset(dataset)
    started = time.monotonic()
    fitter = algorithm.fitter(
        dataset,
        n_steps=int(steps),
        n_steps_per_epoch=int(every),
        show_progress=False,
        logger_adapter=d3rlpy.logging.NoopAdapterFactory(),
    )
    for epoch, _ in fitter:
        write_policy(algorithm, mean, std, data["observations"][:200], folder / f"{epoch * int(every)}.npz")
    (folder / "seconds.txt").write_text(f"{time.monotonic() - started:.1f}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
