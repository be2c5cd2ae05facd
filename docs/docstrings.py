"""Docstrings for the reference: text escaped for Markdown, and comments as the documentation of fields."""

from __future__ import annotations

import re

import griffe

ROLE = re.compile(r":(?:class|func|meth|mod):(?=`)")
CODE = re.compile(r"(`[^`]*`)")


def as_markdown(text: str) -> str:
    """Escape a*b, <name> and [name], which Markdown would take for emphasis, tags and links."""
    parts = CODE.split(ROLE.sub("", text))
    parts[::2] = [part.replace("*", r"\*").replace("<", "&lt;").replace("[", r"\[") for part in parts[::2]]
    return "".join(parts)


class Docstrings(griffe.Extension):
    """Applied to everything read from the sources."""

    def on_instance(self, *, obj: griffe.Object, **_: object) -> None:
        """Every class, function and module with a docstring."""
        if obj.docstring:
            obj.docstring.value = as_markdown(obj.docstring.value)

    def on_attribute_instance(self, *, attr: griffe.Attribute, **_: object) -> None:
        """Use the trailing comment of a field that has no docstring."""
        if not attr.docstring and attr.lineno and attr.parent and attr.parent.is_class:
            line = attr.lines_collection[attr.filepath][attr.lineno - 1]
            comment = re.search(r"  # (.+)$", line)
            if comment:
                attr.docstring = griffe.Docstring(as_markdown(comment[1]), parent=attr)
