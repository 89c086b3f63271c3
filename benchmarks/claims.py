"""What all claims about PSPO have in common: options, runs over several seeds, and a JSON file of what came out."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from pspo.core.errors import unknown_name

RESULTS = Path(__file__).parent / "results"


def claim_parser(description: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first-seed", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--runs", type=Path, help="keep the run directories here")
    parser.add_argument("--table", action="store_true", help="only print what is kept, as Markdown")
    return parser


def parse(parser: argparse.ArgumentParser, table: Callable[[Path], str]) -> argparse.Namespace:
    """The options; with --table, prints the table of what is kept and ends there."""
    options = parser.parse_intermixed_args()
    if options.table:
        print(table(options.results))
        parser.exit()
    return options


def require_variants(parser: argparse.ArgumentParser, wanted: Iterable[str], known: Iterable[str]) -> None:
    for variant in wanted:
        if variant not in known:
            parser.error(str(unknown_name("variant", variant, known)))


def runs_folder(options: argparse.Namespace, claim: str) -> Path:
    return options.runs or Path(tempfile.mkdtemp(prefix=f"pspo-{claim}-"))


def train_words(what: list[str], options: argparse.Namespace, episodes: int, settings: list[str]) -> list[str]:
    """`pspo train ...` over the claim's seeds, without the output folder, which means nothing elsewhere."""
    words = ["train", *what, "--seed", str(options.first_seed), "--seeds", str(options.seeds)]
    words += ["--episodes", str(episodes)]
    return words + [word for setting in settings for word in ("--set", setting)]


def run(words: list[str], folder: Path, environment: dict[str, str] | None = None) -> dict[str, Any]:
    """The summary over seeds."""
    subprocess.run([sys.executable, "-m", "pspo", *words, "--out", str(folder)], check=True, env=environment)
    return json.loads((folder / "summary.json").read_text())


def manifest(folder: Path, summary: dict[str, Any]) -> dict[str, Any]:
    """Of the first seed: versions, machine and timings."""
    return json.loads((folder / f"seed-{summary['seeds'][0]}" / "manifest.json").read_text())


def keep(result: dict[str, Any], results: Path, name: str) -> None:
    results.mkdir(parents=True, exist_ok=True)
    (results / f"{name}.json").write_text(json.dumps(result, indent=2) + "\n")
