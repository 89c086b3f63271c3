"""Two runs of seconds that all tests of inspections share: PSPO and TD3+BC on one table with two action columns."""

from __future__ import annotations

from pathlib import Path

import pytest

from pspo.cli.main import main
from pspo.evaluation.inspect import inspection
from pspo.evaluation.inspect.judges import Judges, find_judges
from tests.evaluation.inspect.inspecting_cases import COLUMNS, ROW, Looked, write_table

PLAIN = ["--set", "model_noise=0", "--set", "beta=50"]  # weights that can be told by hand, and that differ
SETTINGS = {"pspo": PLAIN, "td3bc": []}


class Runs:
    """TD3+BC is trained, and looked at, only if a test asks for it: most of it is compiling."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._looked: dict[str, Looked] = {}
        write_table(folder / "table.csv")
        write_table(folder / "later.csv", rows=100, seed=1)

    def __truediv__(self, name: str) -> Path:
        """A file of the folder, or a run."""
        path = self.folder / name
        if name in SETTINGS and not path.exists():
            names = [word for role, columns in COLUMNS.items() for word in (f"--{role}", columns)]
            words = ["--algo", name, *names, *SETTINGS[name], "--preset", "smoke", "--quiet"]
            assert main(["train", str(self.folder / "table.csv"), *words, "--out", str(path)]) == 0
        return path

    def __getitem__(self, algo: str) -> Looked:
        """Row ROW of a run, and who spoke of it."""
        if algo not in self._looked:
            kept = []

            def keeping(*words) -> Judges:
                kept.append(find_judges(*words))
                return kept[-1]

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(inspection, "find_judges", keeping)
                found = inspection.inspect_policy(self / algo, row=ROW)
            self._looked[algo] = Looked(self / algo, found, kept.pop())
        return self._looked[algo]


@pytest.fixture(scope="session")
def runs(tmp_path_factory) -> Runs:
    made = Runs(tmp_path_factory.mktemp("inspecting"))
    assert made["pspo"]  # at once: what training prints is not what a test wants to read
    return made


@pytest.fixture(scope="session")
def looked(runs) -> Runs:
    return runs
