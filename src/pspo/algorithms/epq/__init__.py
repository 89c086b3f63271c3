"""EPQ: behaviour.py fits the behaviour model and the weights of transitions, algorithm.py trains. Called through the
registry."""

from pspo.algorithms.epq.algorithm import Config

__all__ = ["Config"]
