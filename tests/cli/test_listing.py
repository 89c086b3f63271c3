"""`pspo list` and the pages about algorithms: they name what exists, and all of it."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pspo.algorithms import ALGORITHMS, preset_table
from pspo.cli.main import main
from pspo.core.config import keys
from pspo.data.readers.d4rl import NAMES

PAGES = Path(__file__).parents[2] / "docs" / "algorithms"
SOURCE = Path(__file__).parents[2] / "src" / "pspo"


def test_all_algorithms_datasets_and_presets_are_listed(capsys) -> None:
    assert main(["list"]) == 0
    output = capsys.readouterr().out
    for name in (*ALGORITHMS, "liquidation", *NAMES, "laptop", "paper", "smoke"):
        assert re.search(rf"^  {re.escape(name)} ", output, re.MULTILINE), name


def test_the_list_as_json_holds_the_same(capsys) -> None:
    assert main(["list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert listed["algorithms"] == {name: info.title for name, info in ALGORITHMS.items()}
    assert set(listed["presets"]) == set(preset_table("pspo"))
    assert set(NAMES) < set(listed["datasets"])


def test_listing_does_not_import_jax() -> None:
    code = "import sys; sys.modules['jax'] = None\nfrom pspo.cli.main import main; sys.exit(main(['list']))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


def test_every_algorithm_has_a_title() -> None:
    assert all(info.title for info in ALGORITHMS.values())


def test_config_shows_the_numbers_of_one_dataset(capsys) -> None:
    for dataset, threshold in (("hopper-medium-v2", "0.2"), ("halfcheetah-medium", "10.0")):
        assert main(["config", "--algo", "epq", "--preset", "paper", "--dataset", dataset]) == 0
        assert f"\nsupport_threshold={threshold}\n" in capsys.readouterr().out


def tables(page: str) -> list[list[list[str]]]:
    """The cells of every table, its header first and without the line below it."""
    blocks = re.findall(r"(?:^\|.*\n)+", page, re.MULTILINE)
    rows = [[re.split(r"(?<!\\)\|", line)[1:-1] for line in block.splitlines()] for block in blocks]
    return [[*block[:1], *block[2:]] for block in rows]


NAME = r"`([a-z_]+|[A-Z]\w+)`"
PLACE = r"(?:of|in) (?:\[[\w/.]+\]\((?P<link>[^)]+)\)|`?(?P<plain>[\w/]+\.py))"


def source_of(place: re.Match[str]) -> Path:
    """The file that a link leads to, or the one that is called so."""
    if place["link"]:
        return PAGES / place["link"]
    (found,) = (path for path in SOURCE.rglob("*.py") if path.as_posix().endswith(f"/{place['plain']}"))
    return found


def functions_named(cell: str, usual: Path) -> list[tuple[str, Path]]:
    """(name, file): `a`, `b` of FILE are both of that file; what has none is of the usual one."""
    found, last = [], 0
    for group in re.finditer(rf"{NAME}(?:, {NAME})* {PLACE}", cell):
        found += [(name, usual) for name in re.findall(NAME, cell[last : group.start()])]
        found += [(name, source_of(group)) for name in re.findall(NAME, group[0])]
        last = group.end()
    return found + [(name, usual) for name in re.findall(NAME, cell[last:])]


def test_a_function_is_looked_up_in_the_file_named_after_it() -> None:
    common = SOURCE / "algorithms" / "common"
    own, losses, model_free = SOURCE / "algorithms" / "a.py", common / "losses.py", common / "model_free.py"
    link = "`x`, `Yes` of [model_free.py](../../src/pspo/algorithms/common/model_free.py), `z`"
    found = [(name, path.resolve()) for name, path in functions_named(link, own)]
    assert found == [("x", model_free), ("Yes", model_free), ("z", own)]
    assert functions_named("`a`, with `b`, `c` of losses.py; `d` in `losses.py`", own) == [
        ("a", own),
        *((name, losses) for name in "bcd"),
    ]


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_the_page_of_an_algorithm_names_functions_and_settings_that_exist(algo: str) -> None:
    page, module = (PAGES / f"{algo}.md").read_text(), importlib.import_module(ALGORITHMS[algo].module)
    settings = {part for name in keys(module.Config) for part in (name, name.split(".")[0])}
    functions = []
    for header, *rows in tables(page):
        if "function" in header[-1]:
            place = re.search(PLACE, header[-1])
            usual = source_of(place) if place else Path(module.__file__)
            functions += [pair for row in rows for pair in functions_named(row[-1], usual)]
        if header[0].strip() == "setting":
            named = [name for row in rows for name in re.findall(r"`([\w.]+?)(?:\.\*)?`", row[0])]
            assert set(named) <= settings
    assert functions
    for name, path in functions:
        if name not in settings:
            assert re.search(rf"^ *(def|class) {name}\b", path.read_text(), re.MULTILINE), f"{name} in {path.name}"
    assert f"--algo {algo}" in page


@pytest.mark.parametrize("page", sorted(PAGES.glob("*.md")), ids=lambda path: path.name)
def test_links_of_the_pages_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        if not link.startswith("http"):
            assert (page.parent / link).exists(), link
