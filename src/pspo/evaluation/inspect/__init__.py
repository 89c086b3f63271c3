"""One state in detail: what the policy does there, and why. inspection.py is the whole of `pspo inspect`.

Each part has a file: coverage (where the state lies in the data), action, action_values (Q), model_predictions,
disagreement and verdict; networks.py loads the models and critics. Called by cli.
"""

from pspo.evaluation.inspect.inspection import Inspection, inspect_policy

__all__ = ["Inspection", "inspect_policy"]
