"""Files outside docs/ that the documentation links to, so that such links work on GitHub and on the site.

A link to `../src/pspo/core/files.py` works in the repository. The site contains docs/ alone: there it leads to a page
with the text of that file, and a link to anything else (a notebook) to a copy of the file.
"""

from __future__ import annotations

import os
import re
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.structure.files import File, Files

DOCS = Path(__file__).parent
ROOT = DOCS.parent
LINK = re.compile(r"\]\((\.\./[^)#\s]*)")
LANGUAGES = {".py": "python", ".toml": "toml"}


def on_files(files: Files, config: Any) -> Files:
    wanted = {target for page in files.documentation_pages() for target in _outside(page)}
    for target in sorted(wanted):
        what = {"content": _as_page(target)} if _is_text(target) else {"abs_src_path": str(ROOT / target)}
        files.append(File.generated(config, _place_of(target), **what))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    here = PurePosixPath(page.file.src_uri).parent

    def lead_to_page(link: re.Match[str]) -> str:
        target = _resolve(here, link[1])
        return link[0] if target is None else f"]({os.path.relpath(_place_of(target), here)}"

    return LINK.sub(lead_to_page, markdown)


def _outside(page: File) -> list[str]:
    here = PurePosixPath(page.src_uri).parent
    found = (_resolve(here, link) for link in LINK.findall(page.content_string))
    return [target for target in found if target is not None]


def _resolve(here: PurePosixPath, link: str) -> str | None:
    """The path in the repository of a file outside docs/ that a page links to; None for other links."""
    target = os.path.relpath(DOCS / here / link, ROOT)
    return target if (ROOT / target).is_file() and not target.startswith(("docs/", "..")) else None


def _is_text(target: str) -> bool:
    return Path(target).suffix in LANGUAGES


def _place_of(target: str) -> str:
    return f"source/{target.removeprefix('src/')}{'.md' if _is_text(target) else ''}"


def _as_page(target: str) -> str:
    text = (ROOT / target).read_text().rstrip()
    head = "---\nsearch: {exclude: true}\nhide: [toc]\n---\n"
    return f"{head}# {target}\n\n````{LANGUAGES[Path(target).suffix]}\n{text}\n````\n"
