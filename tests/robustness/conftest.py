"""One finished run for all tests here: training takes seconds, what is done to it afterwards does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from pspo.cli.main import main
from tests.robustness.at_work import TRAIN


@pytest.fixture(scope="session")
def whole(tmp_path_factory) -> Path:
    """The run that nobody disturbs. Tests copy it before they write to it."""
    run = tmp_path_factory.mktemp("whole") / "run"
    assert main([*TRAIN, "--out", str(run)]) == 0
    return run
