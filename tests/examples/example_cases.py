"""The example algorithm as tests use it: registered for one test, or declared by a package as if it were installed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import pspo
from pspo.algorithms import registry

ROOT = Path(__file__).parents[2]
TINY = ["--preset", "smoke", "--quiet"]


@pytest.fixture
def registered() -> Iterator[None]:
    """`awac`, registered as a script would; removed afterwards."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "_registered", {})
        pspo.register_algorithm("awac", "examples.awac")
        yield


def install(folder: Path, name: str, points: dict[str, str], version: str = "1.2") -> None:
    """The metadata that pip writes for a package with these entry points; put the folder on the path to use it."""
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    lines = [f"{algo} = {module}" for algo, module in points.items()]
    (info / "entry_points.txt").write_text("\n".join(["[pspo.algorithms]", *lines, ""]))


def install_awac(folder: Path) -> None:
    """A package `offline-extras` whose only module is the example."""
    install(folder, "offline-extras", {"awac": "offline_extras.awac"})
    package = folder / "offline_extras"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "awac.py").write_text((ROOT / "examples" / "awac.py").read_text())
