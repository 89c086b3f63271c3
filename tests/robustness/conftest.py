"""One finished run for all tests here: training takes seconds."""

from __future__ import annotations

from pathlib import Path

import pytest

from pspo.cli.main import main
from tests.robustness.training_process import TRAIN


@pytest.fixture(scope="session")
def whole(tmp_path_factory) -> Path:
    """A run that was never interrupted. Tests copy it before they write to it."""
    run = tmp_path_factory.mktemp("whole") / "run"
    assert main([*TRAIN, "--out", str(run)]) == 0
    return run
