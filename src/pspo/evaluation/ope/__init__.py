"""Off-policy evaluation: the return of a policy from the dataset alone, with intervals and warnings.

registry.py is the table of estimators, estimator.py what one is given and has to offer; estimate_run.py is the whole of
`pspo ope`, selection.py that of `pspo select`. Called by evaluation and cli. Nothing here needs a simulator.
"""

from pspo.evaluation.ope.registry import ESTIMATORS, EstimatorInfo

__all__ = ["ESTIMATORS", "EstimatorInfo"]
