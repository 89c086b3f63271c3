"""Packages whose names are imported when they are first used."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import pspo
from pspo.core.lazy import lazy_names

SOURCE = Path(pspo.__file__).parent
LAZY = sorted(
    ".".join(("pspo", *path.relative_to(SOURCE).parts[:-1]))
    for path in SOURCE.rglob("__init__.py")
    if "__getattr__" in path.read_text()
)


def test_a_name_is_imported_when_it_is_first_used(monkeypatch, tmp_path: Path) -> None:
    (tmp_path / "lazy_box").mkdir()
    (tmp_path / "lazy_box" / "__init__.py").write_text("")
    (tmp_path / "lazy_box" / "inner.py").write_text("thing = 7")
    monkeypatch.syspath_prepend(tmp_path)
    find = lazy_names("lazy_box", {"thing": "inner"})
    assert "lazy_box.inner" not in sys.modules
    assert find("thing") == 7
    with pytest.raises(AttributeError, match=r"^module 'lazy_box' has no attribute 'other'$"):
        find("other")
    with pytest.raises(AttributeError, match=r"^module 'lazy_box' has no attribute '__path__'$"):
        find("__path__")


@pytest.mark.parametrize("package", LAZY)
def test_every_public_name_is_found_and_an_unknown_one_is_refused(package: str) -> None:
    module = importlib.import_module(package)
    assert module.__all__
    for name in module.__all__:
        assert getattr(module, name) is not None
    with pytest.raises(AttributeError, match=rf"^module '{package}' has no attribute 'nonsense'$"):
        _ = module.nonsense


def test_no_package_writes_its_own() -> None:
    assert {"pspo", "pspo.nets", "pspo.policies", "pspo.report"} <= set(LAZY)
    own = [path for path in SOURCE.rglob("__init__.py") if "def __getattr__" in path.read_text()]
    assert own == []


def test_no_public_name_is_also_a_module_of_its_package() -> None:
    """Importing the module would put it in the place of the name."""
    for package in LAZY:
        module = importlib.import_module(package)
        modules = {path.stem for path in Path(str(module.__file__)).parent.iterdir()}
        assert not modules & set(module.__all__), package


@pytest.mark.parametrize("package", ["pspo", "pspo.training", "pspo.experiments", "pspo.evaluation"])
def test_the_package_itself_loads_no_array_library(package: str) -> None:
    code = f"import sys, {package}; print(sorted({{'jax', 'numpy', 'scipy', 'equinox', 'rich'}} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
