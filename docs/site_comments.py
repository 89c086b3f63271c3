"""A comment after a field documents it: the API pages show it like a docstring."""

from __future__ import annotations

from typing import Any

import griffe


class CommentsOfFields(griffe.Extension):
    """For `name: type  # what it is`, where no docstring follows."""

    def on_attribute_instance(self, *, attr: griffe.Attribute, **_: Any) -> None:
        if attr.docstring or not attr.lines:
            return
        _, mark, comment = attr.lines[-1].partition("  # ")
        if mark and not comment.startswith("pyright:"):
            attr.docstring = griffe.Docstring(comment.strip(), parent=attr)
