"""Tasks with a simulator: liquidation (gymnasium and JAX versions, and its exact optimum) and MuJoCo locomotion.

All later layers may call this package, most of them through `get_task`. Importing it registers the liquidation
environment with gymnasium: gymnasium 1.x has no plug-in entry point. The environment is imported when it is made.
"""

from __future__ import annotations

from gymnasium.envs.registration import register, registry

from pspo.envs.task import Simulation, Task, get_task, known_tasks

__all__ = ["Simulation", "Task", "get_task", "known_tasks"]

# The guard keeps a module reload quiet. No max_episode_steps: the horizon is part of the task, a true terminal.
if "pspo/Liquidation-v0" not in registry:
    register(id="pspo/Liquidation-v0", entry_point="pspo.envs.liquidation:LiquidationEnv")
