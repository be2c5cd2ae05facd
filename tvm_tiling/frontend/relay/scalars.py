"""Numbers in the text form: 1f, 2i64, True, 3f16, 1e-05, and plain int32."""

from __future__ import annotations

import math
import re

import numpy as np

from ...errors import ModelFormatError
from .tree import Constant, TensorType, Type

_PARTS = re.compile(r"(-?(?:inf|nan)|-?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?)(f\d+|i\d+|u\d+|f)?$")
_SUFFIXES = {
    "f": "float32",
    **{f"f{bits}": f"float{bits}" for bits in (16, 32, 64)},
    **{f"i{bits}": f"int{bits}" for bits in (8, 16, 32, 64)},
    **{f"u{bits}": f"uint{bits}" for bits in (8, 16, 32, 64)},
}


def attribute_number(text: str) -> int | float:
    """The number of an attribute. Raises ValueError if the text is not a number."""
    found = _PARTS.match(text)
    if found is None or len(text) > 400:
        raise ValueError(text)
    body, suffix = found.groups()
    if (suffix and suffix.startswith("f")) or not body.lstrip("-").isdigit():
        return float(body)
    return int(body)


def scalar(text: str, stated: Type | None, line: int) -> Constant:
    """A scalar constant. Its type is the stated one, or that of its suffix, or int32."""
    if isinstance(stated, TensorType) and not stated.shape:
        dtype = stated.dtype
    elif text in ("True", "False"):
        dtype = "bool"
    else:
        found = _PARTS.match(text)
        suffix = found.group(2) if found else None
        decimal = found is not None and not found.group(1).lstrip("-").isdigit()
        dtype = _SUFFIXES.get(suffix or "", "float32" if decimal else "int32")
    try:
        value = {"True": True, "False": False}.get(text)
        number = attribute_number(text) if value is None else value
        kind = np.dtype(dtype)
        if kind.kind in "iu":
            if not math.isfinite(number) or not np.iinfo(kind).min <= number <= np.iinfo(kind).max:
                raise ValueError(text)
            number = int(number)
        with np.errstate(over="ignore"):
            array = np.array(number, kind)
    except (ValueError, TypeError, OverflowError):
        raise ModelFormatError(f"line {line}: {text[:40]!r} is not a number of type {dtype}") from None
    return Constant(line, TensorType((), dtype), array)
