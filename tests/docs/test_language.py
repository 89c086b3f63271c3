"""Banned phrases: pages, help texts and all texts in the source use the words of the field, not the project's old ones.

Each row of BANNED is a regular expression, what to write instead, and contexts in which the words are right.
"""

from __future__ import annotations

import argparse
import ast
import html
import io
import json
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from pspo.cli.main import _parser
from tests.docs.pages import DOCS, ROOT, name_of

SRC = ROOT / "src" / "pspo"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *DOCS.glob("*.md")]
PAGES = sorted([*PAGES, *DOCS.glob("algorithms/*.md"), *DOCS.glob("lab/*.md"), *DOCS.glob("paper/*/*.md")])
REPORTS = sorted(DOCS.glob("paper/*/*.html"))
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
DEFINED = (ast.FunctionDef, ast.ClassDef)
QUOTE_OLD_NAMES = {
    "tests/docs/test_language.py",
    "tests/test_names.py",
    "tests/core/test_renamed.py",
    "tests/cli/test_bad_input.py",
}
OLD_NAMES = "core/renamed.py"  # says what is called differently now

DETERMINERS = "a|the|this|that|each|every|one|two|another|same|own|your|whole|first|last|next|best|single|several|any"
MATHEMATICS = "densit|likelihood|prob|ratio|weight|std|standard|scale|sum|of|pi|mu|file|loss|alpha|lambda|mean|T_"

BANNED: tuple[tuple[str, str, str], ...] = (
    (rf"\b(?:{DETERMINERS}|per|of|at|between|by) looks?\b", "evaluation", r"a look inside|looks? (?:like|up)"),
    (r"\blooked at\b", "inspected, evaluated", ""),
    (r"\b(?:go|goes|going|gone|went) on\b", "continue, resume", ""),
    (r"\banew\b", "again", ""),
    (r"\bsame bits\b", "bit for bit, bit-identical", ""),
    (r"\bpromis(?:e|es|ed|ing)\b", "model-estimated return; declared", ""),
    (r"\brivals?\b", "baselines", ""),
    (r"\bjudg(?:e|es|ed|ing|ement|ements|ment|eable)\b", "evaluate, estimate", ""),
    (r"\bchains?\b", "persistent rollouts", r"Markov chains?|chain rule"),
    (r"\bdoubts?\b", "warning, uncertainty", ""),
    (r"\bclones?\b", "BC", r"fresh clone|git clone"),
    (r"\bspreads?\b", "standard deviation, range or disagreement", ""),
    (r"\bcentres?\b", "target policy", r"centre of|text-align"),
    (rf"\b(?:{DETERMINERS}) logs?\b(?! (?:{MATHEMATICS}))(?![-(])", "dataset", "a log should not repeat"),
    (r"\blog's\b", "the dataset's", ""),
    (r"\bimagin(?:e|es|ed|ation)\b", "model-generated, simulated in the models", ""),
    (r"\bbeliev(?:e|es|ed|ing)\b", "trust, weight", ""),
    (r"\btrust(?:=|_rate)", "lambda_init, lambda_lr", ""),
    (r"\b(?:centre|critic|policy|actor|target|reference|adversary|baseline|final|vae)_rate\b", "*_lr, tau", ""),
    (r"\bEqs?\.? ?\(?(?:pre|model|opt|thm):", "the printed number: Eq. (8)", ""),
    (r"\bspeaks? against\b", "without a warning", ""),
    (r"\b(?:have|has|had|having) (?:had )?its way\b", "optimised against, exploits", ""),
    (r"\bwhom\b", "which", ""),
    (r"\b(?:is|are|be) said\b|\bsays itself\b", "a message says", ""),
    (r"\bof (?:its|one's|their) own\b(?! \w)", "its own X", ""),
    (r"\bstands? on\b|\bhangs? on\b|\bstands? back\b", "depends on, waits", ""),
    (r"\btold apart\b|\btells? \w+ apart\b", "distinguish", ""),
    (r"\bnobody knows\b|\bas it is to be\b|\bat will\b", "say it plainly", ""),
    (r"\bhad enough\b|\b(?:left )?out of account\b|\bwhat training rests on\b", "say it plainly", ""),
    (r"\bbeliefs?\b", "posterior, distribution", r"Dynamics Belief"),
    (r"\bgives? itself away\b|\bone's own\b", "say it plainly", ""),
)


def findings(text: str) -> list[str]:
    """Banned phrases of a text, each with what to write instead."""
    found = []
    for pattern, instead, allowed in BANNED:
        for hit in re.finditer(pattern, text, re.IGNORECASE):
            around = text[max(0, hit.start() - 20) : hit.end() + 20]
            if not (allowed and re.search(allowed, around, re.IGNORECASE)):
                found.append(f"'{hit[0]}' in '{' '.join(around.split())}': write {instead}")
    return found


def prose(page: str) -> str:
    """A page without code blocks, code spans and addresses of links."""
    page = re.sub(r"^```(?!text)\S+\n.*?^```$", "", page, flags=re.MULTILINE | re.DOTALL)
    page = re.sub(r"`[^`\n]*`", "`code`", page)
    return re.sub(r"\]\([^)]*\)", "]", page)


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for child in action.choices.values():
                yield from parsers(child)


def texts_of(source: str) -> Iterator[tuple[int, str]]:
    """Line and text of all that a person reads in a module: docstrings, messages, texts of pages, and comments."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.lineno, re.sub(r"`[^`\n]*`", "`code`", node.value)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_pages_have_no_banned_phrase(page: Path) -> None:
    assert findings(prose(page.read_text())) == []


@pytest.mark.parametrize("report", REPORTS, ids=name_of)
def test_reports_in_the_documentation_have_no_banned_phrase(report: Path) -> None:
    """Also those that were drawn long ago: `pspo report` draws them again."""
    page = re.sub(r"<(style|script)\b.*?</\1>", " ", report.read_text(), flags=re.DOTALL)
    assert findings(html.unescape(re.sub(r"<[^>]*>", " ", page))) == []


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=name_of)
def test_notebooks_have_no_banned_phrase(notebook: Path) -> None:
    problems = []
    for cell in json.loads(notebook.read_text())["cells"]:
        source = "".join(cell["source"])
        texts = [prose(source)] if cell["cell_type"] == "markdown" else [text for _, text in texts_of(source)]
        printed = ["".join(output.get("text", [])) for output in cell.get("outputs", [])]
        problems += [problem for text in (*texts, *printed) for problem in findings(text)]
    assert problems == []


def test_help_texts_have_no_banned_phrase() -> None:
    everything = list(parsers(_parser()))
    assert len(everything) > 12
    assert {parser.prog: found for parser in everything if (found := findings(parser.format_help()))} == {}


def test_source_texts_have_no_banned_phrase() -> None:
    found = []
    for path in sorted(SRC.rglob("*.py")):
        name = path.relative_to(SRC).as_posix()
        for line, text in texts_of(path.read_text()) if name != OLD_NAMES else ():
            found += [f"{name}:{line} {problem}" for problem in findings(text)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("folder", ["tests", "benchmarks", "examples"])
def test_tests_and_scripts_have_no_banned_phrase(folder: str) -> None:
    """Their comments and docstrings, and names of functions read as sentences."""
    problems = []
    for path in sorted((ROOT / folder).rglob("*.py")):
        source, name = path.read_text(), path.relative_to(ROOT).as_posix()
        names = [(n.lineno, n.name.replace("_", " ")) for n in ast.walk(ast.parse(source)) if isinstance(n, DEFINED)]
        for line, text in [*texts_of(source), *names] if name not in QUOTE_OLD_NAMES else ():
            # A log is also a file that a user has, which tests write.
            problems += [f"{name}:{line} {problem}" for problem in findings(text) if "dataset" not in problem]
    assert not problems, "\n".join(problems)


def test_presets_have_no_banned_phrase() -> None:
    presets = sorted(SRC.rglob("*.toml"))
    assert len(presets) > 15
    assert {path.name: found for path in presets if (found := findings(path.read_text()))} == {}


PLANTED = (
    "the score at the last look",
    "Go on with a run that was stopped",
    "stopped and gone on with at will",
    "write the page anew",
    "it resumes to the same bits",
    "what the models promise",
    "beside its rivals",
    "the final judgement of a policy",
    "age of the chains",
    "an estimate with its doubts",
    "better than the clone",
    "the spread of returns",
    "KL to the centre",
    "rows of the log",
    "--set centre_rate=0.1",
    "see Eq. opt:eq2",
    "those that nothing speaks against",
    "the policy has had its way with them",
    "whom the posterior prefers",
    "a damaged one is said",
    "imagined episodes",
    "the reader has had enough",
    "the last one is left out of account",
    "what training rests on",
    "their belief, not noise",
)


@pytest.mark.parametrize("text", PLANTED)
def test_a_planted_phrase_is_found(text: str) -> None:
    assert findings(text)


def test_phrases_planted_in_source_are_found() -> None:
    source = 'def f(x):\n    """A doubt."""\n    raise UserError(f"{x} was judged anew.")  # by the log\n'
    texts = [text for _, text in texts_of(source)]
    assert [len(findings(text)) for text in texts] == [1, 2, 1]


@pytest.mark.parametrize(
    "text",
    [
        "bit for bit, in evaluations of the target policy",
        "the log density and the log-likelihood of log.csv",
        "a Markov chain, and the chain rule",
        "make test in a fresh clone, after git clone",
        "it looks good; look up the name",
    ],
)
def test_plain_english_is_not_flagged(text: str) -> None:
    assert findings(text) == []
