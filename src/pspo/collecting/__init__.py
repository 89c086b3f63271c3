"""Data collection: behaviour policies, their episodes, and an online SAC learner that provides such policies.

The command line, benchmarks and users call `collect`; the other modules are its parts. `behaviour` defines the file
format of behaviour policies.
"""

from pspo.collecting.behaviour import Behaviour, Gaussian, Uniform, load_behaviour, save_behaviour
from pspo.collecting.collection import collect
from pspo.collecting.store import Summary

__all__ = ["Behaviour", "Gaussian", "Summary", "Uniform", "collect", "load_behaviour", "save_behaviour"]
