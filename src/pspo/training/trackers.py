"""Optional copies of the metrics in other tools; the run's JSONL and CSV are always written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pspo.core.errors import UserError


class Tracker:
    """Does nothing; the base class of trackers."""

    def __enter__(self) -> Tracker:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def log(self, row: dict[str, Any]) -> None:
        pass


def no_tracker(path: Path) -> Tracker:
    return Tracker()


class TensorBoard(Tracker):
    def __init__(self, path: Path) -> None:
        from tensorboardX import SummaryWriter

        self.writer = SummaryWriter(str(path / "tensorboard"))

    def __exit__(self, *_: object) -> None:
        self.writer.close()

    def log(self, row: dict[str, Any]) -> None:
        for name, value in row.items():
            if name != "step":
                self.writer.add_scalar(name, value, row["step"])


def tensorboard(path: Path) -> Tracker:
    try:
        return TensorBoard(path)
    except ImportError:
        raise UserError("--tensorboard needs the extra: pip install 'pspo[tensorboard]'.") from None
