"""ADM: windows.py, model.py and fit.py make the any-step model, algorithm.py trains. Called through the registry."""

from pspo.algorithms.adm.algorithm import Config

__all__ = ["Config"]
