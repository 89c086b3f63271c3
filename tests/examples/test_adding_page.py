"""docs/adding.md and docs/examples.md show what the files contain."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pspo
from pspo.algorithms.contract import Extras, missing_names
from pspo.data.load import describe_source
from pspo.data.readers.several import TABLE_READERS
from tests.examples.example_cases import ROOT, registered
from tests.examples.test_awac import LEARNER

__all__ = ["registered"]

PAGE = (ROOT / "docs" / "adding.md").read_text()
EXAMPLES = (ROOT / "docs" / "examples.md").read_text()


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)\n```$", page, re.MULTILINE | re.DOTALL)


def test_code_blocks_of_the_page_add_up_to_the_file() -> None:
    *pieces, _ = blocks(PAGE[: PAGE.index("## A data reader")], "python")  # the last one shows how to use it
    assert len(pieces) >= 6
    assert "\n\n\n".join(pieces) + "\n" == (ROOT / "examples" / "awac.py").read_text()


def test_the_table_names_the_whole_contract() -> None:
    named = re.findall(r"^\| `(\w+)`", PAGE, re.MULTILINE)
    optional = re.findall(r"^\| `(\w+)` \(optional", PAGE, re.MULTILINE)
    assert set(missing_names(object())) <= set(named)
    assert set(optional) == {option.name for option in dataclasses.fields(Extras)}


def test_the_reader_of_the_page_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its module and its row are all that a format of tables needs: files, folders, and damaged ones."""
    orc = pytest.importorskip("pyarrow.orc")
    (source,) = blocks(PAGE[PAGE.index("## A data reader") :], "python")
    module: dict[str, Any] = {}
    exec(source, module)
    monkeypatch.setitem(TABLE_READERS, ".orc", module["orc_table"])
    table = pa.table({"obs_x": [0.0, 1.0, 2.0, 3.0], "action_u": [0.5, -0.5, 0.1, 0.2], "reward": [1.0, 2.0, 3.0, 4.0]})
    table = table.append_column("terminal", [[0, 1, 0, 1]])
    (tmp_path / "days").mkdir()
    orc.write_table(table, tmp_path / "days" / "1.orc")
    pq.write_table(table, tmp_path / "1.parquet")
    wanted = pspo.load_dataset(tmp_path / "1.parquet").hash
    assert pspo.load_dataset(tmp_path / "days" / "1.orc").hash == wanted
    assert pspo.load_dataset(tmp_path / "days").hash == wanted
    assert 'obs = ["obs_x"]' in describe_source(tmp_path / "days")  # which --sql reads in the same way
    (tmp_path / "days" / "1.orc").write_bytes((tmp_path / "days" / "1.orc").read_bytes()[:50])
    with pytest.raises(pspo.UserError, match=r"1\.orc', the file is no ORC file, or is damaged"):
        pspo.load_dataset(tmp_path / "days" / "1.orc")


@pytest.mark.parametrize("row", re.findall(r"^\| \[(?:a|an) .*", PAGE, re.MULTILINE))
def test_files_of_the_first_table_exist(row: str) -> None:
    named = re.findall(r"`([a-z/_]+\.py)`", row)
    assert named
    assert all((ROOT / "src" / "pspo" / name).exists() for name in named)


def test_the_quoted_learner_is_the_one_of_the_tests() -> None:
    (line,) = (block for block in blocks(PAGE, "text") if block.startswith("LEARNER"))
    made = {"Learner": lambda *given, **named: (given, named)}
    exec(line, made)
    given, named = made["LEARNER"]
    assert given == (LEARNER.settings, LEARNER.broken, LEARNER.at_least)
    assert named == {"chunks": LEARNER.chunks}


def test_every_script_is_on_the_examples_page() -> None:
    scripts = sorted(path.name for path in (ROOT / "examples").glob("*.py") if path.stem not in ("__init__", "awac"))
    assert scripts == sorted(re.findall(r"^## \[(\w+\.py)\]", EXAMPLES, re.MULTILINE))


def test_the_examples_page_shows_what_the_scripts_print() -> None:
    """The fixed words of the last line that each script prints."""
    shown = "\n".join(blocks(EXAMPLES, "text"))
    for name in ("own_csv", "compare_two", "export_and_serve"):
        text = (ROOT / "examples" / f"{name}.py").read_text()
        *_, last = re.findall(r'print\(f"(.*)"\)', text)
        constant = [part for part in re.split(r"\{[^}]*\}", last) if len(part) > 12]
        assert constant
        for part in constant:
            assert part.strip() in shown, part
