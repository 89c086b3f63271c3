"""The documentation as tests read it: fenced blocks, command lines, and how to run them in an empty folder.

Departures from the text of a page, so that it runs in seconds:

- `pspo train` gets `--preset smoke`, few episodes, and the run directory that it would have had;
- in Python the preset `laptop` is `smoke`, and 100,000 episodes are 500;
- `[--option]` counts as given, of `this|that` the first is taken, and `...` is left out;
- N and S stand for a number, G for a discount, RUN for the run of the page's set-up.

A block that cannot be run says why in the line before it: `<!-- not executed: reason -->`.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import shlex
from dataclasses import dataclass
from glob import glob
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
FENCE = re.compile(
    r"^(?:<!-- not executed: (?P<why>.+?) -->\n)?```(?P<language>\S*)[^\n]*\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
INLINE = re.compile(r"`(pspo [^`]+)`")
INTO_FILE = re.compile(r" > (\S+)$")
INDENTED = re.compile(r"^    (pspo .*)$", re.MULTILINE)

OWN_RUN = "runs/log-pspo-laptop-seed0"
STANDS_FOR = {"N": "2", "S": "2", "G": "0.9", "RUN": OWN_RUN}
IN_PYTHON = {
    'preset="laptop"': 'preset="smoke", episodes=500',
    "episodes=100_000": "episodes=500",
}


@dataclass(frozen=True)
class Block:
    """The text between two fences."""

    language: str
    text: str
    why_not: str | None  # the reason why it is not executed


def blocks(page: Path) -> list[Block]:
    return [Block(m["language"], m["text"], m["why"]) for m in FENCE.finditer(page.read_text())]


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


# Command lines


def lines(script: str) -> list[str]:
    """Lines of a shell script, those that end in a backslash joined with the next one."""
    whole = script.replace("\\\n", " ").splitlines()
    return [line for line in whole if line.strip() and not line.startswith("#")]


def commands(page: Path) -> list[str]:
    """Every line of every shell block, and every `pspo ...` elsewhere on the page."""
    text = page.read_text()
    in_blocks = [line for block in blocks(page) if block.language == "sh" for line in lines(block.text)]
    rest = FENCE.sub("", text)
    return [*in_blocks, *(" ".join(found.split()) for found in INDENTED.findall(rest) + INLINE.findall(rest))]


def arguments(command: str) -> list[str]:
    """The words after `pspo`, with optional parts taken as given; where the output goes is left out."""
    plain = re.sub(r"\[(--[^\]]*)\]", r"\1", INTO_FILE.sub("", command)).replace("\\|", "|")
    words = [word.split("|")[0].removesuffix("...") for word in shlex.split(plain, comments=True)]
    return [STANDS_FOR.get(word, word) for word in words[1:] if word]


# Running


def run_page(page: Path, names: dict[str, Any], shell: bool) -> None:
    """All blocks of Python, and of shell if wanted, in their order, in the current folder and in one namespace."""
    for block in blocks(page):
        if block.why_not:
            continue
        if block.language == "sh" and shell:
            for line in lines(block.text):
                run_command(line)
        elif block.language == "python":
            run_python(block.text, names, name_of(page))


def run_python(text: str, names: dict[str, Any], where: str) -> None:
    for written, run in IN_PYTHON.items():
        text = text.replace(written, run)
    exec(compile(text, where, "exec"), names)


def run_command(command: str) -> None:
    """In this process, as the command line would; other programs (pip, make) are left to other tests."""
    from pspo.cli.main import main

    if not command.startswith("pspo "):
        return
    words = [found for word in arguments(command) for found in sorted(glob(word)) or [word]]
    with contextlib.ExitStack() as stack:
        if into := INTO_FILE.search(command):
            stack.enter_context(contextlib.redirect_stdout(stack.enter_context(open(into[1], "w"))))
        code = main(_made_small(words) if words[0] == "train" else words)
    assert code == 0, f"`{command}` ends with exit code {code}"


def _made_small(words: list[str]) -> list[str]:
    return [*words, *(w for option, value in _small(words).items() if option not in words for w in (option, value))]


def _small(words: list[str]) -> dict[str, str]:
    if "--dry-run" in words:
        return {"--preset": "smoke"}
    given = dict(itertools.pairwise(words))
    algo, seed = given.get("--algo", "pspo"), given.get("--seed", "0")
    place = f"runs/{Path(words[1]).stem}-{algo}-{given.get('--preset', 'laptop')}-seed{seed}"
    return {"--preset": "smoke", "--episodes": "500", "--out": place}
