"""PSPO itself. Read in this order: config, state, posterior, rollout, model_returns, evaluation, improvement,
discrete, algorithm, diagnostics.

The training loop calls algorithm.py; evaluation and report call posterior.py and diagnostics.py.
"""

from pspo.algorithms.pspo.config import Config
from pspo.algorithms.pspo.state import Setup, State

__all__ = ["Config", "Setup", "State"]
