"""The site of `make docs`: every page exists, links resolve, and nothing is loaded from other servers."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import yaml

import pspo
import pspo.theory
from tests.docs.pages import DOCS, ROOT

LOADED_BY = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href", "object": "data"}
OLD_NAMES = {"judge_run"}  # public until version 0.3, and not documented
NOT_LOADED = {"canonical", "prev", "next", "alternate", "edit", "license", "author"}


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


class Addresses(HTMLParser):
    """Addresses that a page loads, and the targets of its links."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(page.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.anchors |= {found[name] for name in ("id", "name") if name in found}
        self.loaded += re.findall(r"url\(([^)]*)\)", found.get("style", ""))
        if tag == "a":
            self.links.append(found.get("href", ""))
        elif tag in LOADED_BY and found.get("rel") not in NOT_LOADED:
            self.loaded.append(found.get(LOADED_BY[tag], ""))


def nav_pages(nav: object) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    return [page for part in (nav.values() if isinstance(nav, dict) else nav) for page in nav_pages(part)]  # pyright: ignore


def test_every_page_is_in_the_nav_and_in_the_site(site: Path) -> None:
    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    wanted = nav_pages(config["nav"])
    for page in wanted:
        built = site / page.replace("README.md", "index.html").replace(".md", ".html")
        assert "<h1" in built.read_text(), page
    assert set(wanted) == {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}


def test_the_api_page_documents_every_public_name(site: Path) -> None:
    anchors = {anchor.rsplit(".", 1)[-1] for anchor in Addresses(site / "api.html").anchors if "." in anchor}
    public = {*pspo.__all__, *pspo.theory.__all__} - {"__version__", *OLD_NAMES}
    assert public - anchors == set()


def test_pages_load_nothing_from_other_servers(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 60
    outside = [(page.name, to) for page in pages for to in Addresses(page).loaded if urlsplit(to).netloc]
    assert outside == []
    for style in site.rglob("*.css"):
        assert not re.search(r"(@import|url\()\s*[\"']?(https?:)?//", style.read_text()), style


def test_links_resolve_to_files_and_anchors(site: Path) -> None:
    """Those to source files outside docs/ too."""
    known = {page: Addresses(page) for page in site.rglob("*.html") if page.name != "404.html"}
    broken = []
    for page, found in known.items():
        for link in found.links:
            to = urlsplit(link)
            if to.scheme or to.netloc or (not to.path and not to.fragment):
                continue
            target = (page.parent / unquote(to.path)).resolve() if to.path else page
            target = target / "index.html" if target.is_dir() else target
            there = target.exists() and (not to.fragment or target not in known or to.fragment in known[target].anchors)
            broken += [] if there else [(page.relative_to(site).as_posix(), link)]
    assert broken == []
    assert (site / "source" / "pspo" / "algorithms" / "pspo" / "algorithm.py.html").exists()


def test_a_broken_link_fails_the_build(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("# A page\n\n[nowhere](missing.md) [wrong](#no-such-part)\n")
    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    small = {"site_name": "a test", "nav": [{"Home": "index.md"}], "validation": config["validation"]}
    (tmp_path / "mkdocs.yml").write_text(yaml.safe_dump(small))
    words = [sys.executable, "-m", "mkdocs", "build", "--strict"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode != 0
    assert "missing.md" in done.stderr
    assert "#no-such-part" in done.stderr
