"""`pspo evaluate`."""

from __future__ import annotations

import argparse
import json
from typing import Any

from pspo.cli import common
from pspo.core.terminal import show


def add_evaluate(commands: Any) -> None:
    help = "Evaluate the policy of a run in its simulator, without exploration noise."
    parser = common.add_command(commands, "evaluate", _evaluate, help)
    parser.add_argument("run", metavar="DIR", help="a run directory or a policy file")
    parser.add_argument("--episodes", type=int, metavar="N", help="number of episodes (default: depends on the task)")
    parser.add_argument("--seed", type=int, default=0, help="random seed of the episodes (default: %(default)s)")
    parser.add_argument("--task", help="simulator, for a policy whose data named none, such as liquidation")
    common.add_json(parser)


def _evaluate(arguments: argparse.Namespace) -> None:
    from pspo.policies.policy import load_policy

    policy = load_policy(arguments.run)
    from pspo.evaluation.simulator import evaluate

    result = evaluate(policy, arguments.episodes, arguments.seed, arguments.task).as_dict()
    if arguments.json:
        show(json.dumps(result, indent=2))
    else:
        common.print_result(result)
