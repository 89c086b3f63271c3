"""Only what pyproject.toml cannot say: the README as package indexes show it, where relative links lead nowhere.

With a `Source` under [project.urls] they become links to that repository, at the tag of this version. Without one the
words of a link stay and images are left out.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).parent
LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?://|#)([^)\s]+)\)")


def readme_for_index(text: str, source: str | None, tag: str) -> str:
    """The README without relative links."""

    def replace(link: re.Match[str]) -> str:
        image, words, target = link.groups()
        if source is None:
            return "" if image else words
        return f"{image}[{words}]({source.rstrip('/')}/{'raw' if image else 'blob'}/{tag}/{target})"

    return re.sub(r"\n{3,}", "\n\n", LINK.sub(replace, text))


if __name__ == "__main__":
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    setup(
        long_description=readme_for_index(
            (ROOT / "README.md").read_text(encoding="utf-8"),
            project.get("urls", {}).get("Source"),
            f"v{project['version']}",
        ),
        long_description_content_type="text/markdown",
    )
