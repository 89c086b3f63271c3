"""TD3+BC's step here and in plain PyTorch, side by side in one process: `python -m benchmarks.td3bc_in_torch`.

Needs PyTorch beside pspo (`pip install torch`), which nothing else here does. Both take the authors' networks and
batch (2 x 256 units, 256 rows, Hopper's size), draw from the same dataset, and are timed in turn; the PyTorch step is
written as the authors wrote it (sfujim/TD3_BC), with Adam's `foreach` form, PyTorch's default.
"""

from __future__ import annotations

import copy
import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np

STEPS, ROUNDS, ROWS = 500, 7, 100_000
OBS, ACTIONS, WIDTH, BATCH = 11, 3, 256, 256


class TorchLearner:
    """The authors' update: one critic step per call, the actor and the targets in every second one."""

    def __init__(self, device_data: dict[str, np.ndarray]) -> None:
        import torch

        self.torch = torch
        nn = torch.nn

        def net(inputs: int, outputs: int, *last: Any) -> Any:
            layers = [
                nn.Linear(inputs, WIDTH),
                nn.ReLU(),
                nn.Linear(WIDTH, WIDTH),
                nn.ReLU(),
                nn.Linear(WIDTH, outputs),
            ]
            return nn.Sequential(*layers, *last)

        self.device_data = {name: torch.from_numpy(np.array(part)) for name, part in device_data.items()}
        self.actor = net(OBS, ACTIONS, nn.Tanh())
        self.critics = nn.ModuleList([net(OBS + ACTIONS, 1) for _ in range(2)])
        self.targets = copy.deepcopy(self.actor), copy.deepcopy(self.critics)
        self.actor_rule = torch.optim.Adam(self.actor.parameters(), lr=3e-4)
        self.critic_rule = torch.optim.Adam(self.critics.parameters(), lr=3e-4)
        self.step = 0

    def update(self) -> None:
        torch, f = self.torch, self.torch.nn.functional
        self.step += 1
        pick = torch.randint(0, ROWS, (BATCH,))
        obs, action, reward, next_obs, keeps = (
            self.device_data[n][pick] for n in ("obs", "action", "reward", "next", "keeps")
        )
        with torch.no_grad():
            noise = (torch.randn_like(action) * 0.2).clamp(-0.5, 0.5)
            after = torch.cat([next_obs, (self.targets[0](next_obs) + noise).clamp(-1, 1)], 1)
            target = reward + 0.99 * keeps * torch.min(*(critic(after) for critic in self.targets[1]))
        both = torch.cat([obs, action], 1)
        loss = sum(f.mse_loss(critic(both), target) for critic in self.critics)
        self.critic_rule.zero_grad()
        loss.backward()
        self.critic_rule.step()
        if self.step % 2 == 0:
            chosen = self.actor(obs)
            q = self.critics[0](torch.cat([obs, chosen], 1))
            loss = -2.5 / q.abs().mean().detach() * q.mean() + f.mse_loss(chosen, action)
            self.actor_rule.zero_grad()
            loss.backward()
            self.actor_rule.step()
            with torch.no_grad():
                for target, online in zip(self.targets, (self.actor, self.critics), strict=True):
                    for t, o in zip(target.parameters(), online.parameters(), strict=True):
                        t.mul_(0.995).add_(0.005 * o)

    def run(self) -> None:
        for _ in range(STEPS):
            self.update()


def ours(data: Any) -> Any:
    """A call that does `STEPS` iterations of `--algo td3bc --preset paper`."""
    import jax

    from pspo.algorithms import td3bc
    from pspo.algorithms.registry import preset
    from pspo.core.config import build
    from pspo.core.progress import silent
    from pspo.data.batches import device_dataset
    from pspo.training.loop import compile_chunk

    config = build(td3bc.Config, preset("td3bc", "paper", "hopper", "hopper-medium"))
    setup, _ = td3bc.prepare(config, data, 0, silent)
    device_data = device_dataset(data, setup.norm, config.gamma)
    state = jax.jit(lambda device_data, key: td3bc.init(config, setup, device_data, key))(
        device_data, jax.random.PRNGKey(0)
    )
    chunk = compile_chunk(td3bc, config, setup)
    return lambda: jax.block_until_ready(chunk(state, setup.arrays, device_data, length=STEPS))


def main() -> None:
    threads = int(os.environ.setdefault("NPROC", "1"))
    import torch

    from pspo.runs.manifest import describe_machine
    from pspo.training.cost import Shape, random_dataset

    torch.set_num_threads(threads)
    data = random_dataset(Shape(ROWS, OBS, ACTIONS))
    rows = {"obs": data.obs, "action": data.action, "reward": data.reward[:, None], "next": data.next_obs}
    rows["keeps"] = 1.0 - data.terminal[:, None].astype(np.float32)
    works = {"pspo": ours(data), "torch": TorchLearner(rows).run}
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for work in works.values():
        work()  # compiles, warms up
    for _ in range(ROUNDS):
        for name, work in works.items():
            started = time.perf_counter()
            work()
            seconds[name].append((time.perf_counter() - started) / STEPS)
    ratio = float(np.median(np.array(seconds["torch"]) / np.array(seconds["pspo"])))
    content = {
        "command": "python -m benchmarks.td3bc_in_torch",
        "machine": describe_machine() | {"torch": torch.__version__, "threads": threads},
        "milliseconds": {name: [round(1e3 * s, 4) for s in each] for name, each in seconds.items()},
        "median_ratio_torch_over_pspo": ratio,
    }
    Path("benchmarks/results/td3bc-in-torch.json").write_text(json.dumps(content, indent=1) + "\n")
    for name, each in seconds.items():
        print(f"{name}: {1e3 * float(np.median(each)):.2f} ms a step")
    print(f"PyTorch takes {ratio:.2f} times as long, with {threads} thread{'s' * (threads > 1)}")


if __name__ == "__main__":
    main()
