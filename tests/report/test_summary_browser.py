"""The summary page in a real browser: tables sort, numbers link to their runs, and the console stays silent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

from pspo.report.records import Results
from pspo.report.summary.page import write_summary
from tests.report import summary_cases as cases
from tests.report.browser import NAMES, Browser, browse, find_browser

pytestmark = pytest.mark.skipif(
    find_browser() is None,
    reason=f"no browser ({', '.join(NAMES)}): on Debian `apt-get install chromium` brings one",
)


@pytest.fixture(scope="module")
def results() -> Results:
    shows = ["scores", "ablation", "pessimism", "uncertainty"]
    return cases.made_up(shows=shows, published=cases.PUBLISHED | {"spearman": -0.2995})


@pytest.fixture(scope="module")
def folder(results: Results, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("summary")
    cases.write_run_page(results, folder)
    write_summary(results, folder)
    return folder


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    program = find_browser()
    assert program
    with browse(program, tmp_path_factory.mktemp("browser") / "profile") as browser:
        yield browser


@pytest.fixture
def browser(chromium: Browser, folder: Path) -> Iterator[Browser]:
    """The page, newly opened; nothing may be on the console when the test ends."""
    chromium.complaints.clear()
    chromium.open(folder / "report.html")
    yield chromium
    assert chromium.complaints == []


def head(table: str, column: int) -> str:
    return f"#table-{table} thead th:nth-child({column}) button"


def column(browser: Browser, table: str, number: int) -> list[str]:
    rows = f"[...document.querySelectorAll('#table-{table} tbody tr')]"
    shown = browser.ask(f"{rows}.map(row => row.cells[{number - 1}].textContent)")
    return [" ".join(words.split()) for words in shown]


def direction(browser: Browser, table: str) -> list[str]:
    heads = f"[...document.querySelectorAll('#table-{table} thead th')]"
    return browser.ask(f"{heads}.map(h => h.getAttribute('aria-sort') || 'fixed')")


def test_console_errors_are_noticed(chromium: Browser, tmp_path: Path):
    """Otherwise a silent console would prove nothing."""
    page = tmp_path / "broken.html"
    page.write_text("<!DOCTYPE html><script>nonsense()</script>")
    chromium.complaints.clear()
    chromium.open(page)
    assert "nonsense is not defined" in "".join(chromium.complaints)


def test_a_click_sorts_by_value_and_another_one_reverses(browser: Browser):
    assert column(browser, "scores", 1) == cases.DATASETS
    browser.click(head("scores", 3))  # means 52, 80.25 and 90.125
    assert column(browser, "scores", 1) == ["hopper-medium", "walker2d-medium", "liquidation"]
    assert direction(browser, "scores") == ["none", "none", "ascending", "none", "none"]
    browser.click(head("scores", 3))
    assert column(browser, "scores", 1) == ["liquidation", "walker2d-medium", "hopper-medium"]
    assert direction(browser, "scores") == ["none", "none", "descending", "none", "none"]
    browser.click(head("scores", 1))  # by name
    assert column(browser, "scores", 1) == sorted(cases.DATASETS)
    assert direction(browser, "scores") == ["ascending", "none", "none", "none", "none"]
    assert browser.ask("document.querySelector('#table-scores tfoot').textContent").startswith("Average of 2")


def test_numbers_are_sorted_as_numbers_and_missing_ones_stay_last(browser: Browser):
    scores = [score for row in cases.SCORES.values() for score in row if score is not None]
    missing = ["–"] * (36 - len(scores))
    shown = [f"{score:.2f}".replace("-", "−") for score in sorted(scores)]
    browser.click(head("runs", 5))
    assert column(browser, "runs", 5) == shown + missing
    browser.click(head("runs", 5))
    assert column(browser, "runs", 5) == shown[::-1] + missing
    browser.click(head("scores", 4))
    assert column(browser, "scores", 4) == ["32.9 ± 58.3", "102.0 ± 0.0", "missing"]
    browser.click(head("scores", 4))
    assert column(browser, "scores", 4) == ["102.0 ± 0.0", "32.9 ± 58.3", "missing"]
    assert direction(browser, "runs")[-1] == "fixed"  # commands have no order


def test_heads_are_buttons_for_the_keyboard(browser: Browser):
    browser.ask(f"document.querySelector({head('scores', 3)!r}).focus()")
    assert browser.ask("document.activeElement.tagName") == "BUTTON"
    browser.press_enter()
    browser.press_enter()
    assert column(browser, "scores", 1)[0] == "liquidation"


def test_a_number_links_to_its_runs_commands_and_page(browser: Browser):
    browser.click("#table-scores tbody tr:first-child td:nth-child(2) a")
    browser.wait_for("location.hash === '#runs-0-0'")
    browser.wait_for("document.querySelectorAll('tr.selected').length === 4")
    marked = "[...document.querySelectorAll('tr.selected')].map(r => r.cells[1].textContent + r.cells[2].textContent)"
    assert browser.ask(marked) == ["PSPO0", "PSPO1", "PSPO2", "PSPO3"]
    seen = "(b => b.top >= 0 && b.bottom <= innerHeight)(document.querySelector('#run-0').getBoundingClientRect())"
    browser.wait_for(seen)
    colour = "getComputedStyle(document.querySelector('#run-3 td')).backgroundColor"
    assert browser.ask(colour) != browser.ask(colour.replace("run-3", "run-4"))
    assert not browser.ask("document.querySelector('#run-0 details').open")
    browser.click("#run-0 summary")
    assert browser.ask("document.querySelector('#run-0 details').open")
    command = browser.ask("document.querySelector('#run-0 code').innerText")
    assert command == "pspo train hopper-medium --algo pspo --preset smoke --seed 0 --set 'name=<b>&'"
    assert browser.ask("document.querySelectorAll('a.page').length") == 1  # the only run whose page exists
    browser.click("#run-0 a.page")
    browser.wait_for("document.title === 'The run itself'")


def test_hostile_names_are_text(browser: Browser):
    assert browser.ask("document.querySelectorAll('script').length") == 1
    assert browser.ask("document.querySelector('h1').textContent") == f"Table 1: {cases.HOSTILE}"
    names = "[...document.querySelectorAll('#table-scores thead th')].map(h => h.textContent)"
    assert browser.ask(names) == ["Dataset", "PSPO", cases.HOSTILE, cases.AWKWARD, "Optimum"]


@pytest.mark.parametrize("width", [1280, 420])
def test_the_page_fits_its_window_and_is_not_blank(browser: Browser, folder: Path, width: int, tmp_path: Path):
    browser.open(folder / "report.html", width)
    assert browser.ask("document.documentElement.scrollWidth") <= width  # wide tables scroll by themselves
    with Image.open(browser.screenshot(tmp_path / "page.png")) as picture:
        assert picture.format == "PNG"
        assert picture.size == (width, 900)
        colours = picture.convert("RGB").getcolors(maxcolors=1 << 24)
    assert len(colours) > 50  # text and lines, smoothed; a blank page has one
    spilled = browser.ask(
        "[...document.querySelectorAll('.panel svg text')].filter(t => { const b = t.getBoundingClientRect();"
        "return b.left < 0 || b.right > innerWidth; }).map(t => t.textContent)"
    )
    assert spilled == []
