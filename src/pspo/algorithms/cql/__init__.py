"""CQL: algorithm.py learns quantities with an actor, discrete.py learns labels without one. Called through the
registry."""

from pspo.algorithms.cql.algorithm import Config

__all__ = ["Config"]
