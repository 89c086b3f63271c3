"""Tasks with a simulator: the liquidation environment, its batched JAX twin and its exact optimum.

Importing this package registers the environments with gymnasium. Gymnasium 1.x has no plug-in entry point, and its
import is cheap next to NumPy's; the environment itself is imported only when it is made.
"""

from __future__ import annotations

from gymnasium.envs.registration import register, registry

# The guard keeps a module reload quiet. No max_episode_steps: the horizon is part of the task, a true terminal.
if "pspo/Liquidation-v0" not in registry:
    register(id="pspo/Liquidation-v0", entry_point="pspo.envs.liquidation:LiquidationEnv")
