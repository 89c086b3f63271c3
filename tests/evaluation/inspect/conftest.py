"""Two smoke runs that all tests of inspections share: PSPO and TD3+BC on one table with two action columns."""

from __future__ import annotations

from pathlib import Path

import pytest

from pspo.cli.main import main
from pspo.evaluation.inspect import inspection
from pspo.evaluation.inspect.networks import Networks, load_networks
from tests.evaluation.inspect.inspect_cases import COLUMNS, ROW, InspectedRun, write_table

PLAIN = ["--set", "model_noise=0", "--set", "beta=50"]  # weights that can be computed by hand, and that differ
SETTINGS = {"pspo": PLAIN, "td3bc": []}


class Runs:
    """TD3+BC is trained and inspected only if a test needs it: most of the time goes into compiling."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._inspected: dict[str, InspectedRun] = {}
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

    def __getitem__(self, algo: str) -> InspectedRun:
        """Row ROW of a run, and the networks behind it."""
        if algo not in self._inspected:
            kept = []

            def keeping(*words) -> Networks:
                kept.append(load_networks(*words))
                return kept[-1]

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(inspection, "load_networks", keeping)
                found = inspection.inspect_policy(self / algo, row=ROW)
            self._inspected[algo] = InspectedRun(self / algo, found, kept.pop())
        return self._inspected[algo]


@pytest.fixture(scope="session")
def runs(tmp_path_factory) -> Runs:
    made = Runs(tmp_path_factory.mktemp("inspect"))
    assert made["pspo"]  # now, so that no test captures what training prints
    return made


@pytest.fixture(scope="session")
def inspected(runs) -> Runs:
    return runs
