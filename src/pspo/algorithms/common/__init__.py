"""What several algorithms share: losses, SAC's step, natural gradients, settings, the reference policy.

model_free.py and model_based.py hold the parts of the contract that most baselines take as they are. Called by the
algorithms and by pspo.collecting; algorithms of other packages may use it too (docs/adding.md).
"""

from pspo.algorithms.common.settings import BatchConfig, LoopConfig

__all__ = ["BatchConfig", "LoopConfig"]
