"""Which discrete actions are available in a state: rules over columns of the observation.

    sell: stock >= 1        a rule: the label is available only where the comparison holds
    can_*                   columns of 0 and 1 that end in a label: `sell` is available only where can_sell is 1

Masks are rules over the observation and nothing else, so that they hold wherever a policy acts: at logged states, at
states that a model predicts, and where the policy is served.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from pspo.core.column_names import listed
from pspo.core.errors import UserError
from pspo.data.discrete import Label, shown

LARGEST = float(np.finfo(np.float32).max)  # stands for no bound: infinity is not allowed in files
RULE = re.compile(r"(?P<label>.+?)\s*:\s*(?P<column>.+?)\s*(?P<operator>>=|<=|==|=|>|<)\s*(?P<number>[^<>=]+)")
HOW = "give rules such as 'sell: stock >= 1', or columns of 0 and 1 that end in a label, such as 'can_*'"


class MaskRule(NamedTuple):
    """The action is available only where the column lies within the bounds."""

    action: int  # index of its label
    column: int  # of the observation
    low: float
    high: float


def parse_mask(
    given: Sequence[str], labels: Sequence[Label], names: Sequence[str], columns: int
) -> tuple[MaskRule, ...]:
    """Rules from what the user gives; `names` are those of the observation's `columns`, if it has any."""
    if given and not labels:
        raise UserError("only discrete actions can be masked, and these are quantities: leave --mask out.")
    known = {name: column for column, name in enumerate(names)} or {str(column): column for column in range(columns)}
    rules: list[MaskRule] = []
    for text in given:
        match = RULE.fullmatch(text)
        rules += [_rule(match, labels, known)] if match else _flags(text, labels, known)
    return require_rules(rules, len(labels), columns)


def with_mask(dataset: Any, given: Sequence[str]) -> Any:
    """The dataset with the masks that the user gives."""
    if not given:
        return dataset
    rules = parse_mask(given, dataset.action_labels, dataset.obs_names, dataset.obs_dim)
    return dataclasses.replace(dataset, action_mask=rules)


def require_rules(rules: Any, labels: int, columns: int) -> tuple[MaskRule, ...]:
    """Rules, also from a file, where they are rows of four numbers; refused where they fit no column or label."""
    try:
        made = tuple(MaskRule(int(a), int(c), float(low), float(high)) for a, c, low, high in rules)
    except (TypeError, ValueError):
        raise UserError(f"the mask of the actions is {str(rules)[:60]!r}: {HOW}.") from None
    if not all(0 <= rule.action < labels and 0 <= rule.column < columns for rule in made):
        raise UserError("the mask of the actions names a label or a column that the data do not have: correct it.")
    return made


def available(rules: Sequence[MaskRule], obs: np.ndarray, labels: int) -> np.ndarray:
    """(rows, labels) bool."""
    allowed = np.ones((len(obs), labels), bool)
    for rule in rules:
        values = obs[:, rule.column]
        allowed[:, rule.action] &= (values >= np.float32(rule.low)) & (values <= np.float32(rule.high))
    return allowed


def _rule(match: re.Match[str], labels: Sequence[Label], known: dict[str, int]) -> MaskRule:
    words = {name: word.strip() for name, word in match.groupdict().items()}
    label = [code for code, label in enumerate(labels) if str(label) == words["label"]]
    if not label:
        raise UserError(f"the mask names the action '{words['label']}', and the labels are {shown(labels)}: name one.")
    if words["column"] not in known:
        raise UserError(
            f"the mask needs the column '{words['column']}', which is not in the observation ({listed(known)}): add it "
            "to --obs, as the policy has to know what is available."
        )
    try:
        number = np.float32(words["number"])
    except ValueError:
        raise UserError(f"the mask compares with '{words['number']}', which is not a number: {HOW}.") from None
    low, high = -LARGEST, LARGEST
    operator = words["operator"]
    if operator in (">=", ">", "=", "=="):
        low = float(np.nextafter(number, np.float32(np.inf)) if operator == ">" else number)
    if operator in ("<=", "<", "=", "=="):
        high = float(np.nextafter(number, np.float32(-np.inf)) if operator == "<" else number)
    return MaskRule(label[0], known[words["column"]], low, high)


def _flags(pattern: str, labels: Sequence[Label], known: dict[str, int]) -> list[MaskRule]:
    expression = re.compile(re.escape(pattern).replace(r"\*", ".*").replace(r"\?", "."))
    members = [name for name in known if expression.fullmatch(name)]
    if not members:
        raise UserError(
            f"no column of the observation fits the mask '{pattern}' ({listed(known)}): {HOW}; columns of the mask "
            "belong to --obs, as the policy has to know what is available."
        )
    rules = []
    for name in members:
        ends = [code for code, label in enumerate(labels) if name.endswith(str(label))]
        if not ends:
            raise UserError(f"the column '{name}' of the mask ends in no label ({shown(labels)}): {HOW}.")
        longest = max(ends, key=lambda code: len(str(labels[code])))
        rules.append(MaskRule(longest, known[name], 0.5, LARGEST))
    return rules
