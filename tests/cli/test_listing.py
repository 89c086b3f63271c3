"""`pspo list` and the pages about algorithms: what they name must exist, and all that exists must be named."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pspo.algorithms import ALGORITHMS, TITLES
from pspo.cli import main
from pspo.config import keys, preset_table
from pspo.data.d4rl_files import NAMES

PAGES = Path(__file__).parents[2] / "docs" / "algorithms"
SOURCE = Path(__file__).parents[2] / "src" / "pspo"


def test_everything_there_is_gets_listed(capsys) -> None:
    assert main(["list"]) == 0
    said = capsys.readouterr().out
    for name in (*ALGORITHMS, "liquidation", *NAMES, "laptop", "paper", "smoke"):
        assert re.search(rf"^  {re.escape(name)} ", said, re.MULTILINE), name


def test_the_list_as_json_says_the_same(capsys) -> None:
    assert main(["list", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["algorithms"] == TITLES
    assert set(said["presets"]) == set(preset_table("pspo"))
    assert set(NAMES) < set(said["datasets"])


def test_listing_needs_no_jax() -> None:
    code = "import sys; sys.modules['jax'] = None\nfrom pspo.cli import main; sys.exit(main(['list']))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


def test_every_algorithm_has_a_title() -> None:
    assert list(TITLES) == list(ALGORITHMS)


def test_config_shows_the_numbers_of_one_dataset(capsys) -> None:
    for dataset, tau in (("hopper-medium-v2", "0.2"), ("halfcheetah-medium", "10.0")):
        assert main(["config", "--algo", "epq", "--preset", "paper", "--dataset", dataset]) == 0
        assert f"\ntau={tau}\n" in capsys.readouterr().out


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_the_page_of_an_algorithm_names_functions_and_settings_that_exist(algo: str) -> None:
    page = (PAGES / f"{algo}.md").read_text()
    code = "".join(path.read_text() for path in SOURCE.rglob("*.py"))
    table = [line for line in page.splitlines() if line.startswith("|")]
    functions = {name for line in table for name in re.findall(r"`([a-z_]+|[A-Z]\w+)`", line.split("|")[-2])}
    settings = set(keys(__import__(ALGORITHMS[algo], fromlist=["Config"]).Config))
    assert functions
    for name in functions - {n.split(".")[0] for n in settings}:
        assert re.search(rf"(def|class) {name}\b", code), name
    assert f"--algo {algo}" in page


@pytest.mark.parametrize("page", sorted(PAGES.glob("*.md")), ids=lambda path: path.name)
def test_links_of_the_pages_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        if not link.startswith("http"):
            assert (page.parent / link).exists(), link
