"""Telling Relay from other formats by how a file begins."""

from __future__ import annotations

import re

from .archive import is_tar

_TEXT = re.compile(r"\s*(?:#\[\s*version\b|v0\.0\.\d|/\*|//|def\s+@|fn\s*\(|free_var\s+%|type\s+\w+)")
_JSON = re.compile(r'\s*\{\s*"(?:root|nodes|b64ndarrays|attrs)"')


def is_relay(data: bytes | memoryview) -> bool:
    """Whether bytes begin as a form of Relay does that this package reads."""
    start = bytes(data[:4096])
    if is_tar(memoryview(data)):
        return True
    text = start.decode("utf-8", "replace").lstrip("\ufeff")
    return _TEXT.match(text) is not None or _JSON.match(text) is not None
