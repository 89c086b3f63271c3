"""Two runs of seconds that all tests of inspections share: PSPO and TD3+BC on one table with two action columns."""

from __future__ import annotations

from pathlib import Path

import pytest
from inspecting_cases import COLUMNS, ROW, Looked, write_table

from pspo.cli import main
from pspo.inspecting import inspection
from pspo.inspecting.judges import Judges, find_judges


@pytest.fixture(scope="session")
def runs(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("inspecting")
    write_table(folder / "table.csv")
    write_table(folder / "later.csv", rows=100, seed=1)
    names = [word for role, columns in COLUMNS.items() for word in (f"--{role}", columns)]
    plain = ["--set", "model_noise=0", "--set", "beta=50"]  # weights that can be told by hand, and that differ
    for algo, settings in (("pspo", plain), ("td3bc", [])):
        words = [str(folder / "table.csv"), "--algo", algo, *names, *settings, "--preset", "smoke", "--quiet"]
        assert main(["train", *words, "--out", str(folder / algo)]) == 0
    return folder


@pytest.fixture(scope="session")
def looked(runs) -> dict[str, Looked]:
    """Row ROW of both, and who spoke of it."""
    found, kept = {}, []

    def keeping(*words) -> Judges:
        kept.append(find_judges(*words))
        return kept[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inspection, "find_judges", keeping)
        for algo in ("pspo", "td3bc"):
            found[algo] = Looked(runs / algo, inspection.inspect_policy(runs / algo, row=ROW), kept.pop())
    return found
