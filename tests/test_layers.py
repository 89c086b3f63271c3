"""The layers of src/pspo: imports point only to layers above, lazy imports included. Nothing is imported for it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "pspo"

LAYERS = (
    "core",
    "envs",
    "data",
    "nets",
    "dynamics",
    "algorithms",
    "collecting",
    "policies",
    "runs",
    "report",
    "evaluation",
    "training",
    "experiments",
    "cli",
)
"""Each may import from itself and from those before it. docs/architecture.md says why they stand in this order."""

ALONE = "theory"  # imports nothing of pspo, and nothing imports it
TOP = {"__init__", "__main__"}
MOST_TOP_MODULES = 4
MODULE_NAME = re.compile(r"pspo(\.[a-z_0-9]+)+")


def imported(source: str) -> list[tuple[int, str]]:
    """Line and dotted name of everything that a source imports from pspo, wherever the import stands."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.level == 0 and (node.module or "").split(".")[0] == "pspo":
            # `from pspo import x` may name a package
            names = [f"pspo.{alias.name}" for alias in node.names] if node.module == "pspo" else [node.module or ""]
            found += [(node.lineno, name) for name in names]
        elif isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names if alias.name.split(".")[0] == "pspo"]
        elif isinstance(node, ast.ImportFrom) and node.level:
            found.append((node.lineno, "a relative import"))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and MODULE_NAME.fullmatch(node.value):
            found.append((node.lineno, node.value))  # for importlib, as in a registry
    return found


def violations(place: str, source: str) -> list[str]:
    """Imports that point down, one line each; `place` is a path below src/pspo such as core/files.py."""
    layer = place.split("/")[0]
    found = []
    for line, name in imported(source):
        target = [*name.split("."), ""][1]
        if name == "a relative import":
            found.append(f"{place}:{line} uses a relative import")
        elif target in LAYERS and layer in LAYERS and LAYERS.index(target) > LAYERS.index(layer):
            found.append(f"{place}:{line} imports {name}, which lies below {layer}")
        elif ALONE in (target, layer) and target != layer and target in (*LAYERS, ALONE):
            found.append(f"{place}:{line} imports {name}, but {ALONE} stands alone")
    return found


def places() -> dict[str, str]:
    return {path.relative_to(SOURCE).as_posix(): path.read_text() for path in sorted(SOURCE.rglob("*.py"))}


def test_every_import_points_to_a_layer_above() -> None:
    found = [problem for place, source in places().items() if "/" in place for problem in violations(place, source)]
    assert not found, "\n".join(found)


def test_every_package_is_a_known_layer() -> None:
    packages = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    assert packages == {*LAYERS, ALONE}


def test_few_modules_at_the_top_level() -> None:
    modules = {path.stem for path in SOURCE.glob("*.py")}
    assert len(modules) <= MOST_TOP_MODULES
    assert modules == TOP


def test_nothing_imports_the_command_line() -> None:
    found = [
        f"{place}:{line} imports {name}"
        for place, source in places().items()
        if not place.startswith("cli/") and place != "__main__.py"
        for line, name in imported(source)
        if name.split(".")[:2] == ["pspo", "cli"]
    ]
    assert not found, "\n".join(found)


def test_algorithms_do_not_import_each_other() -> None:
    """What two of them need lies in common/; only the registry and what surrounds it know several."""
    shared = {"common", "registry", "contract", "sharing", "presets"}
    found = []
    for place, source in places().items():
        parts = place.removesuffix(".py").split("/")
        if parts[0] != "algorithms" or parts[1] in {*shared, "__init__"}:
            continue
        for line, name in imported(source):
            target = name.split(".")
            if target[1:2] == ["algorithms"] and len(target) > 2 and target[2] not in {*shared, parts[1]}:
                found.append(f"{place}:{line} imports {name}")
    assert not found, "\n".join(found)


def test_every_package_says_what_lives_in_it() -> None:
    """A docstring, and what it exports."""
    silent = []
    for path in SOURCE.rglob("__init__.py"):
        tree = ast.parse(path.read_text())
        names = {
            target.id
            for node in tree.body
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        place = path.relative_to(SOURCE).as_posix()
        if len(ast.get_docstring(tree) or "") < 40 or (
            "__all__" not in names and place != "algorithms/presets/__init__.py"
        ):
            silent.append(place)
    assert not silent, f"no docstring or no __all__: {', '.join(silent)}"


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("from pspo.cli.main import main", "core/files.py:1 imports pspo.cli.main, which lies below core"),
        (
            "def f():\n    import pspo.training.loop",
            "core/files.py:2 imports pspo.training.loop, which lies below core",
        ),
        ("from pspo import experiments", "core/files.py:1 imports pspo.experiments, which lies below core"),
        ("from pspo.theory import x", "core/files.py:1 imports pspo.theory, but theory stands alone"),
        ("MODULE = 'pspo.report.page'", "core/files.py:1 imports pspo.report.page, which lies below core"),
        ("from .errors import UserError", "core/files.py:1 uses a relative import"),
    ],
)
def test_a_planted_import_is_named_with_its_line(source: str, problem: str) -> None:
    assert violations("core/files.py", source) == [problem]


def test_imports_upwards_are_allowed() -> None:
    assert violations("cli/main.py", "from pspo.core.errors import UserError\nimport pspo.training.train") == []
    assert violations("core/files.py", "from pspo import __version__") == []
