"""Small behaviour policies, and their actions computed in another way than by the library."""

from __future__ import annotations

import math

import numpy as np

OBS_DIM, ACTION_DIM = 11, 3  # of the hopper


def policy_arrays(
    noise: str = "state", squash: str = "tanh", activation: str = "relu", scaled: bool = False, seed: int = 0
) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)

    def normal(*shape: int) -> np.ndarray:
        return rng.normal(0, 0.5, shape).astype(np.float32)

    arrays = {"w0": normal(OBS_DIM, 5), "b0": normal(5), "w1": normal(5, 4), "b1": normal(4)}
    arrays |= {"mean_w": normal(4, ACTION_DIM), "mean_b": normal(ACTION_DIM)}
    if noise == "state":
        arrays |= {"log_std_w": normal(4, ACTION_DIM), "log_std_b": normal(ACTION_DIM)}
    else:
        arrays["log_std"] = normal(ACTION_DIM)
    if scaled:
        # A tiny standard deviation in one column, so that the clip at 10 has an effect.
        arrays |= {"obs_mean": normal(OBS_DIM), "obs_std": np.abs(normal(OBS_DIM)) + 0.5}
        arrays["obs_std"][2] = 1e-3
    return arrays | {"activation": np.array(activation), "squash": np.array(squash)}


def expected_action(arrays: dict[str, np.ndarray], obs: np.ndarray, noise: np.ndarray | None) -> list[float]:
    """One action by plain sums over numbers; no noise is the mode."""
    x = [float(value) for value in obs]
    if "obs_mean" in arrays:
        scale = zip(x, arrays["obs_mean"].tolist(), arrays["obs_std"].tolist(), strict=True)
        x = [min(max((value - mean) / std, -10.0), 10.0) for value, mean, std in scale]

    def layer(x: list[float], w: str, b: str) -> list[float]:
        weights, bias = arrays[w].tolist(), arrays[b].tolist()
        return [sum(x[i] * weights[i][j] for i in range(len(x))) + bias[j] for j in range(len(bias))]

    for i in range(2):
        x = layer(x, f"w{i}", f"b{i}")
        x = [math.tanh(v) if arrays["activation"].item() == "tanh" else max(v, 0.0) for v in x]
    u = layer(x, "mean_w", "mean_b")
    if noise is not None:
        log_std = arrays["log_std"].tolist() if "log_std" in arrays else layer(x, "log_std_w", "log_std_b")
        std = [math.exp(min(max(value, -20.0), 2.0)) for value in log_std]
        u = [mean + s * float(e) for mean, s, e in zip(u, std, noise, strict=True)]
    return [math.tanh(v) if arrays["squash"].item() == "tanh" else min(max(v, -1.0), 1.0) for v in u]
