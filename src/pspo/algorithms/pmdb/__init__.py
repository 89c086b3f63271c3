"""PMDB: config.py, values.py (estimates from sampled actions), game.py (the models' part), algorithm.py (the update).

Called through the registry.
"""

from pspo.algorithms.pmdb.algorithm import Config

__all__ = ["Config"]
