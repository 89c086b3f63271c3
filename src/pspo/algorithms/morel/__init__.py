"""MOReL: algorithm.py has models and rollouts that halt, npg.py the natural policy gradient. Called through the
registry."""

from pspo.algorithms.morel.algorithm import Config

__all__ = ["Config"]
