"""Progress lines for logs and pipes."""

from __future__ import annotations

import time

from pspo.core.progress import Lines


def test_the_speed_counts_from_the_first_report(monkeypatch, capsys) -> None:
    """A resumed run begins at 5000: those steps were not made now."""
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    with Lines() as show:
        for seconds, done in ((0.0, 5000), (5.0, 5500), (20.0, 7000), (30.0, 10_000)):
            now[0] = 100.0 + seconds
            show("training", done, 10_000, {"score": 1.5})
    assert capsys.readouterr().err.splitlines() == [
        "training: 5000/10000  score 1.5",
        "training: 7000/10000  100/s  score 1.5",
        "training: 10000/10000  167/s  score 1.5",
    ]
