"""Names of columns with quotes, line breaks and control characters: written as what they are, never interpreted."""

from __future__ import annotations

import contextlib
import io
import tempfile
import tomllib
import unicodedata
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pspo.cli.main import main
from pspo.data import load_dataset
from pspo.data.load import describe_source
from pspo.training.monitor import Monitor

HOSTILE = "\x1b\n\r\t\x00\x08\x0c\x7f\x85\x9b\u202e\u2066\u2028\"'\\#=[]{},.:*?ab 1é😀"
NAMES = st.text(HOSTILE, min_size=1, max_size=8).filter(lambda name: name == name.strip())
ROWS = 60


def table(names: list[str]) -> pa.Table:
    """Five columns: state, another one, action, reward, episode."""
    state, other, action, reward, episode = names
    return pa.table(
        [
            pa.array([0.5 * (i % 7) for i in range(ROWS)]),
            pa.array([0.25 * (i % 5) for i in range(ROWS)]),
            pa.array([(i % 9) / 10 for i in range(ROWS)]),
            pa.array([0.1 * (i % 11) for i in range(ROWS)]),
            pa.array([f"e{i // 10}" for i in range(ROWS)]),
        ],
        names=[state, other, action, reward, episode],
    )


@settings(max_examples=60, deadline=None)
@given(st.lists(NAMES, min_size=5, max_size=5, unique=True))
def test_a_column_map_names_the_columns_whatever_they_are_called(names: list[str]) -> None:
    state, other, action, reward, episode = names
    roles = {"obs": [state, other], "action": [action], "reward": [reward], "episode": [episode]}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.feather"
        pyarrow.feather.write_feather(table(names), path)
        text = describe_source(path, roles)
        assert {c for c in text if unicodedata.category(c) in ("Cc", "Cf")} <= {"\n", "\t"}
        written = tomllib.loads(text)["columns"]
        assert {role: [written[role]] if isinstance(written[role], str) else written[role] for role in roles} == roles
        path.with_suffix(".toml").write_text(text)
        data = load_dataset(path)
    assert data.obs_names == (state, other)
    assert data.action_names == (action,)
    assert len(data.episode_starts) == 6


def test_describing_a_column_with_an_escape_sequence_shows_it(tmp_path: Path, capsys) -> None:
    """And a line break in a name or in a file's name adds no line to the map."""
    names = ["obs_\x1b[31m", "obs_b\nignore = ['r']", "action", "reward", "episode\x7f"]
    path = tmp_path / "x\nignore = 1\x1b.parquet"
    pyarrow.parquet.write_table(table(names), path)
    assert main(["data", "describe", str(path), "--episode", "episode\x7f"]) == 0
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert "obs_\\u001b[31m" in shown
    columns = tomllib.loads(shown)["columns"]
    assert columns["obs"] == names[:1]
    assert columns["episode"] == ["episode\x7f"]
    assert "ignore" not in columns


def test_messages_of_python_calls_are_escaped_too() -> None:
    with contextlib.redirect_stdout(io.StringIO()) as shown:
        Monitor().message("column 'a\x1b[2J'")
    assert shown.getvalue() == "column 'a\\x1b[2J'\n"


@pytest.mark.parametrize("name", ["a,b", 'a"b', "a\\b", "a#b", "x*"])
def test_a_reward_with_an_unusual_name(name: str, tmp_path: Path) -> None:
    """A text with a comma would be two columns: such a name is written as a list of one."""
    path = tmp_path / "log.parquet"
    pyarrow.parquet.write_table(table(["x1", "x2", "u", name, "id"]), path)
    text = describe_source(path, {"obs": ["x1", "x2"], "action": ["u"], "reward": [name]})
    (tmp_path / "log.toml").write_text(text)
    assert load_dataset(path).reward.max() == np.float32(1.0)
