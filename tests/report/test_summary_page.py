"""The summary page as a document, and its tables as Markdown and LaTeX: complete, safe, with the same numbers."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from pspo.core.errors import UserError
from pspo.report.records import Record, Results, load, save
from pspo.report.summary.page import SECTIONS, sections, summary, write_summary
from pspo.report.summary.rendering import LATEX, as_latex, as_markdown
from pspo.report.summary.section import Cell, Column, ReportTable, Section
from pspo.report.write import write_reports
from tests.report import summary_cases as cases
from tests.report.reading import Page

COSTS = {"pspo": {"iteration_milliseconds": {"median": 64.4, "low": 60.0, "high": 70.0}}}


def full(**replaced) -> Results:
    return cases.made_up(
        shows=list(SECTIONS), published=cases.PUBLISHED | {"spearman": -0.2995}, costs=COSTS, **replaced
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("summary")
    results = full()
    cases.write_run_page(results, folder)
    written = write_summary(results, folder)
    assert [path.name for path in written] == ["report.html", "table.md", "table.tex"]
    return folder


def read(source: str) -> Page:
    """Without the page's one script, which is not text."""
    before, script, after = re.split(r"<script>|</script>", source)
    assert "</" not in script
    return Page(before + after)


@pytest.fixture(scope="module")
def page(folder: Path) -> Page:
    return read((folder / "report.html").read_text())


def check_self_contained(page: Page) -> None:
    assert len(page.ids) == len(set(page.ids)), "an id occurs twice"
    for name, value in page.attributes:
        if name in ("href", "src", "xlink:href"):
            assert value.startswith(("#", "data:image/png;", "./")), value
            assert not value.startswith("#") or value[1:] in page.ids, value
        assert not name.startswith("on"), "a script in an attribute"
    assert not re.search(r"https?://|@import", page.source)
    assert any(name == "content" and value.startswith("default-src 'none';") for name, value in page.attributes)


def test_the_page_is_complete_and_self_contained(folder: Path, page: Page):
    check_self_contained(page)
    assert page.tags.count("svg") == 6  # two of the comparison, one learning curve, three scatter plots
    assert len(page.source.encode()) < 1_500_000
    assert sorted(path.name for path in folder.iterdir()) == ["report.html", "runs", "table.md", "table.tex"]


def test_header_and_titles(page: Page):
    for words in (
        "pspo experiment table1",
        f"Table 1: {cases.HOSTILE}",
        "preset smoke",
        "pspo 0.1.0 · Python 3.11.7 · JAX 0.10.2 · Linux · 2 cores",
        "pspo experiment table1 --seeds 4",
        "Every seed is one run.",
        "6 missing",
        "the run diverged at iteration 3",
    ):
        assert words in page.text
    titles = re.findall(r"<h2>(.*?)</h2>", page.source)
    assert titles == [
        *("Scores", "Comparison", "Ablations", "Model-estimated return and true score"),
        *("Uncertainty against the TD target", "Overhead", "Missing runs", "Runs"),
    ]


def test_every_run_is_listed_with_its_command_and_its_page(page: Page):
    results = full()
    for index, record in enumerate(results.records):
        row = re.search(rf'<tr id="run-{index}".*?</tr>', page.source)
        assert row
        words = Page(row[0]).text
        assert f"{record.dataset}{cases.METHODS[record.method]}{record.seed}{record.status}" in words
        assert record.command in words
        assert ("Page of this run" in words) == (index == 0)  # the only one that exists
    assert page.source.count('href="./runs/hopper-medium-pspo-0/report.html"') == 1


def test_every_score_links_to_its_runs(page: Page):
    for i, dataset in enumerate(cases.DATASETS):
        for j, method in enumerate(cases.METHODS):
            if any(score is not None for score in cases.SCORES[dataset, method]):
                assert f'<a href="#runs-{i}-{j}">' in page.source
            anchor = re.search(
                rf'<tr [^>]*data-group="runs-{i}-{j}"[^>]*><th[^>]*><span id="runs-{i}-{j}"', page.source
            )
            assert anchor, "the first run of the group has the anchor"
            assert page.source.count(f'data-group="runs-{i}-{j}"') == 5  # four runs and the anchor


def test_numbers_carry_their_values_and_missing_ones_none(page: Page):
    table = page.source[page.source.index('<table class="sortable" id="table-scores">') :].partition("</table>")[0]
    assert re.findall(r"<th[^>]*data-kind=.(\w+)", table) == ["text", "number", "number", "number", "number"]
    values = [float(value) for value in re.findall(r'data-value="([^"]+)"', table)]
    assert values[:2] == [102.0, 52.0]
    assert '<td class="number none"><a href="#runs-2-2">missing</a></td>' in table
    assert '<td class="number best" data-value="102.0">' in table
    assert "<button" not in page.source  # the script makes them


def test_links_to_runs_are_paths_whatever_a_run_is_called(tmp_path: Path):
    names = ["javascript:alert(1)", 'a"b<c>&#/../x', "../elsewhere", "sp ace?query#hash"]
    for name in names:
        (tmp_path / "page" / name).mkdir(parents=True)
        (tmp_path / "page" / name / "report.html").write_text("")
    records = [Record("a", "b", i, status="finished", run=name) for i, name in enumerate(names)]
    outside = Record("a", "b", 9, status="finished", run="//example.org/x")
    source = summary(Results("t", ["a"], {"b": "B"}, [*records, outside]), tmp_path / "page")
    check_self_contained(read(source))
    assert re.findall(r'class="page" href="([^"]+)"', source) == [
        "./javascript%3Aalert%281%29/report.html",
        "./a%22b%3Cc%3E%26%23/../x/report.html",
        "./../elsewhere/report.html",
        "./sp%20ace%3Fquery%23hash/report.html",
    ]


def test_hostile_names_stay_text_in_all_forms(folder: Path, page: Page):
    assert page.text.count(cases.HOSTILE) > 10
    assert page.text.count(cases.AWKWARD) > 10
    markdown, latex = ((folder / name).read_text() for name in ("table.md", "table.tex"))
    assert "<script" not in markdown
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in markdown
    body = "".join(line for line in latex.splitlines() if not line.startswith("%"))
    assert r"\textless{}script\textgreater{}alert(1)" in body
    assert not re.search(r"(?<!\\)[#_]|(?<!\\)%", body)
    assert body.count(r"\begin{tabular}") == body.count(r"\end{tabular}") == 7
    assert re.sub(r"\\[{}]", "", body).count("{") == re.sub(r"\\[{}]", "", body).count("}")
    assert len(re.findall(r"(?<!\\)\$", body)) % 2 == 0


def test_every_field_of_the_results_is_escaped(tmp_path: Path):
    bad = cases.HOSTILE
    result = {"task": bad, "score": 1.0, "uncertainty_td_spearman": 0.5}
    words = (0, bad, bad, {bad: bad}, "finished", bad, bad, bad, result)
    done = [Record(bad, method, *words, uncertainty=cases.uncertainty_sample(0)) for method in "ab"]
    lost = Record(bad, "a", 1, bad, bad, {}, "failed", bad, bad, bad)
    machine = {"pspo": bad, "python": bad, "platform": bad, "libraries": {"jax": bad}}
    results = Results(
        *(bad, [bad, "other"], {"a": bad, "b": f"{bad}2", "c": bad}, [*done, lost], bad, list(SECTIONS), "a", bad),
        **{"notes": [bad], "machine": machine, "costs": COSTS | {"a": COSTS["pspo"]}, "published": {bad: {"a": [1.0]}}},
    )
    page = read(summary(results))
    check_self_contained(page)
    assert page.text.count(bad) > 25
    markdown = write_summary(results, tmp_path)[1].read_text()
    assert [line for line in markdown.splitlines() if "<script" in line] == [f"    {bad}"]  # code: the command


def markdown_cells(line: str) -> list[str]:
    inside = re.split(r"(?<!\\)\|", line)[1:-1]
    return [unescape(re.sub(r"\\(.)", r"\1", cell.strip().replace("**", ""))) for cell in inside]


def latex_cells(line: str) -> list[str]:
    back = {escaped: letter for letter, escaped in LATEX.items()}
    escapes = "|".join(map(re.escape, sorted(back, key=len, reverse=True)))
    cells = []
    for cell in re.split(r"(?<!\\)&", line.removesuffix(r"\\")):
        cell = re.sub(r"\\textbf\{(.*?)\}", r"\1", cell.strip())
        cell = re.sub(r"\{\\footnotesize\[(.*?)\]\}", r"[\1]", cell)
        cells.append(re.sub(escapes, lambda found: back[found[0]], cell))
    return cells


def test_markdown_and_latex_hold_the_same_cells(folder: Path):
    markdown, latex = ((folder / name).read_text() for name in ("table.md", "table.tex"))
    ours = [table for section in sections(full()) for table in section.tables]
    blocks = markdown.split("\n## ")[1:]
    tabulars = re.findall(r"\\toprule\n(.*?)\\bottomrule", latex, flags=re.DOTALL)
    assert len(ours) == len(blocks) == len(tabulars) == 7
    for table, block, tabular in zip(ours, blocks, tabulars, strict=True):
        expected = [[column.title for column in table.columns]]
        for row in [*table.rows, *table.foot]:
            expected.append([" ".join(_words(cell).split()) for cell in row])
        lines = [markdown_cells(line) for line in block.splitlines() if line.startswith("|")]
        assert [lines[0], *lines[2:]] == expected
        lines = [latex_cells(line) for line in tabular.splitlines() if line.endswith(r"\\")]
        assert [[" ".join(cell.split()) for cell in line] for line in lines] == expected


def _words(cell: Cell) -> str:
    beside = f" [{cell.beside}]" if cell.beside else ""
    return cell.shown + beside + (f" ({cell.incomplete})" if cell.incomplete else "")


def test_the_best_is_bold_in_all_forms():
    row = [Cell("a"), Cell("1.0 ± 0.1", 1.0, best=True), Cell("−0.5", -0.5)]
    table = ReportTable("t", "T", [Column("*Name", "text"), Column("x"), Column("y")], [row])
    assert "| a | **1.0 ± 0.1** | −0.5 |" in as_markdown(table)
    assert r"a & \textbf{1.0 $\pm$ 0.1} & $-$0.5 \\" in as_latex(table)
    assert r"{*}Name & x & y \\" in as_latex(table)
    assert r"\begin{tabular}{lrr}" in as_latex(table)


def test_nothing_missing_is_not_mentioned():
    results = cases.made_up({pair: [1.0, 2.0] for pair in cases.SCORES})
    source = summary(results)
    check_self_contained(read(source))
    assert "issing" not in read(source).text
    assert "section-missing" not in source


def test_a_page_without_runs_and_one_where_all_are_missing():
    empty = read(summary(Results("Nothing yet", [], {}, [], shows=list(SECTIONS))))
    check_self_contained(empty)
    lost = read(summary(full(records=[replace(r, status="missing", result={}) for r in full().records])))
    assert "36 of 36 runs have no result" in lost.text
    assert not re.search(r"\b(nan|None|inf)\b", empty.text + lost.text)


def test_saved_results_give_the_same_page(folder: Path, tmp_path: Path):
    save(full(), tmp_path)
    again = load(tmp_path)
    assert summary(again, folder) == summary(full(), folder) == (folder / "report.html").read_text()


def test_an_unknown_section_is_refused(tmp_path: Path):
    with pytest.raises(UserError, match="unknown section of a page 'score': did you mean 'scores'"):
        write_summary(cases.made_up(shows=["score"]), tmp_path)
    assert list(tmp_path.iterdir()) == []


# Stored results


def test_results_of_version_0_1_give_the_same_page(tmp_path: Path):
    place = save(full(), tmp_path)
    content = json.loads(place.read_text())
    for record in content["records"]:
        record["said"], record["doubt"] = record.pop("message"), record.pop("uncertainty")
        record["settings"] = {"centre_rate": 0.02}
        record["result"]["imagined_return"] = 3.0
        for point in record["curve"]:
            point["imagined_return"] = point.pop("model_return")
    place.write_text(json.dumps(content))
    old = load(tmp_path)
    assert old.records[0].result["model_return"] == 3.0
    assert old.records[0].settings == {"policy_tau": 0.02}
    assert summary(old) == summary(full())


@pytest.mark.parametrize("path", sorted(Path("docs/paper").glob("*/results.json")), ids=lambda path: path.parent.name)
def test_results_kept_in_the_docs_are_read(path: Path):
    results = load(path)
    assert "model_return" in results.records[0].result if results.records and results.name == "pessimism" else True
    check_self_contained(read(summary(results)))


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("records", [5], "'records' in"),
        ("datasets", 5, "'datasets' in"),
        ("methods", {"pspo": 1}, "'methods' in"),
        ("published", {"hopper-medium": {"pspo": [[1]]}}, "'published' in"),
        ("costs", {"pspo": {"iteration_milliseconds": {"median": "fast"}}}, "'costs' in"),
        ("datasets", ["other"], "unknown dataset or method"),
        ("strange", 1, "does not hold results of this version"),
    ],
)
def test_edited_results_are_refused_in_one_sentence(key: str, value: Any, message: str, tmp_path: Path):
    place = save(full(), tmp_path)
    place.write_text(json.dumps(json.loads(place.read_text()) | {key: value}))
    with pytest.raises(UserError, match=message):
        load(tmp_path)


def test_bugs_in_a_section_raise(tmp_path: Path, monkeypatch):
    def buggy(_: Results) -> None:
        raise KeyError("a bug")

    save(full(), tmp_path)
    monkeypatch.setitem(SECTIONS, "scores", (buggy,))
    with pytest.raises(KeyError, match="a bug"):
        write_reports([tmp_path])


def test_a_new_section_is_one_row_of_the_table(monkeypatch):
    monkeypatch.setitem(SECTIONS, "mine", (lambda results: Section("mine", f"Mine: {len(results.records)} runs"),))
    assert "Mine: 36 runs" in read(summary(cases.made_up(shows=["mine"]))).text
