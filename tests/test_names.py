"""Names in the code: the field's words, one meaning per class name, and calls with many arguments by keyword."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "pspo"

CONTRACT = {"Arrays", "Batch", "Config", "Noise", "Params", "Setup", "State"}
"""Parts that every algorithm has: the same role in each, so the same name."""

MOST_POSITIONAL = 2  # of a function with more parameters than MANY
MANY = 6
AS_IN_VERSION_0_1 = {"training/train.py": "train"}  # (dataset, algo, preset, ...), which users call by position
LONGEST_TEST_NAME = 79

BANNED = {
    "anew": "again",
    "belief": "posterior, distribution",
    "centre": "target_policy, mean",
    "chains": "rollouts",
    "clone": "bc, behaviour",
    "doubt": "warning, uncertainty",
    "facts": "metadata",
    "foreseen": "prediction",
    "found": "what it is: result, estimate, matches",
    "judge": "evaluate",
    "judgement": "evaluation",
    "promise": "model_return",
    "rival": "baseline",
    "rivals": "baselines",
    "said": "message",
    "spread": "std, range, disagreement",
    "weighed": "posterior, backup",
    "world": "env",
}
BANNED_CLASSES = {
    "Learned": "Params",
    "Log": "DeviceDataset",
    "Parts": "Setup",
    "Rows": "Transitions",
    "Seen": "StateQuery",
}
"""Names of classes in version 0.1 whose words are right elsewhere."""
IN_MEMORY = ("algorithms", "collecting", "dynamics")
"""Packages that see transitions, and no file: there is no row in them."""
OF_A_TABLE = {"algorithms/registry.py", "algorithms/sharing.py", "collecting/store.py"}  # of algorithms, of a file
ROWS = {"row": "transition, index", "rows": "transitions, index"}

OLD = {"facts", "judge_run"}  # names of version 0.1 that still work
OLD_IN = {"evaluation/ope/estimate_run.py", "policies/policy.py", "policies/onnx/runtime.py"}


def sources(folder: Path = SOURCE) -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(folder.rglob("*.py")):
        yield path.relative_to(folder).as_posix(), ast.parse(path.read_text())


def defined(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and name of every variable, field, parameter, function and class."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg


def banned_names(name: str, tree: ast.Module) -> list[str]:
    problems = []
    banned = BANNED | ROWS if name.startswith(IN_MEMORY) and name not in OF_A_TABLE else BANNED
    for line, identifier in defined(tree):
        if name in OLD_IN and identifier in OLD:
            continue
        if instead := BANNED_CLASSES.get(identifier):
            problems.append(f"{name}:{line} {identifier}: say {instead}")
        for word in re.findall(r"[A-Z]?[a-z]+", identifier):
            if instead := banned.get(word.lower()):
                problems.append(f"{name}:{line} {identifier}: say {instead}")
    return problems


def by_position(name: str, tree: ast.Module) -> list[str]:
    """Functions with many parameters of which too many may be given by position."""
    problems = []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            positional = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args)]
            positional = positional[1:] if positional[:1] in (["self"], ["cls"]) else positional
            if (
                len(positional) + len(node.args.kwonlyargs) > MANY
                and len(positional) > MOST_POSITIONAL
                and AS_IN_VERSION_0_1.get(name) != node.name
            ):
                problems.append(f"{name}:{node.lineno} {node.name} has many parameters: use keywords")
    return problems


@pytest.mark.parametrize("folder", ["src/pspo", "benchmarks", "examples"])
def test_identifiers_use_the_words_of_the_field(folder: str) -> None:
    problems = [problem for name, tree in sources(ROOT / folder) for problem in banned_names(name, tree)]
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("folder", ["src/pspo", "benchmarks", "examples"])
def test_functions_with_many_parameters_take_keywords(folder: str) -> None:
    problems = [problem for name, tree in sources(ROOT / folder) for problem in by_position(name, tree)]
    assert not problems, "\n".join(problems)


def test_a_class_name_has_one_meaning() -> None:
    where = defaultdict(list)
    for name, tree in sources():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                where[node.name].append(name)
    assert {cls: names for cls, names in where.items() if len(names) > 1 and cls not in CONTRACT} == {}


def test_test_names_are_short() -> None:
    long = [
        f"{name}:{node.lineno} {node.name}"
        for name, tree in sources(ROOT / "tests")
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and len(node.name) > LONGEST_TEST_NAME
    ]
    assert not long, "\n".join(long)


def test_rows_are_reported_where_there_is_no_file() -> None:
    tree = ast.parse("class Buffer:\n    rows: int\nfor row in pairs: pass")
    assert len(banned_names("dynamics/buffer.py", tree)) == len(banned_names("algorithms/epq/behaviour.py", tree)) == 2
    assert banned_names("data/load.py", tree) == banned_names("algorithms/registry.py", tree) == []


def test_planted_names_are_reported() -> None:
    tree = ast.parse("def judge(world, *, found): pass\nclass Seen: pass\nlearned_centre = 1")
    assert [problem.split(":")[1] for problem in banned_names("x.py", tree)] == [
        "1 judge",
        "2 Seen",
        "3 learned_centre",
        "1 world",
        "1 found",
    ]


@pytest.mark.parametrize(
    ("parameters", "reported"),
    [
        ("a, b, c, d, e, f, g", True),
        ("a, b, c, *, d, e, f, g", True),
        ("a, b, *, c, d, e, f, g", False),
        ("a, b, c, d, e, f", False),
    ],
)
def test_too_many_positional_parameters_are_reported(parameters: str, reported: bool) -> None:
    assert bool(by_position("x.py", ast.parse(f"def f({parameters}): pass"))) == reported
