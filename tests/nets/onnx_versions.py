"""Nodes in the variants of earlier versions of the standard, in which some inputs were attributes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx

# The first version in which the inputs at these positions are not attributes of these names.
_ATTRIBUTES: dict[str, tuple[int, dict[int, str]]] = {
    "Clip": (11, {1: "min", 2: "max"}),
    "Dropout": (12, {1: "ratio"}),
    "Pad": (11, {1: "pads", 2: "value"}),
    "ReduceSum": (13, {1: "axes"}),
    "Slice": (10, {1: "starts", 2: "ends", 3: "axes"}),
    "Split": (13, {1: "split"}),
    "Squeeze": (13, {1: "axes"}),
    "TopK": (10, {1: "k"}),
    "Unsqueeze": (13, {1: "axes"}),
}


def in_form_of(
    opset: int, operator: str, domain: str, arrays: list[np.ndarray | None], given: dict[str, Any]
) -> tuple[int, dict[str, Any]]:
    """Return how many of a node's inputs remain in a version of the standard, and its attributes there.

    Attributes that the version lacks are left out. Raises onnx.defs.SchemaError if it lacks the operator.
    """
    since, names = _ATTRIBUTES.get(operator, (0, {}))
    kept, attributes = len(arrays), dict(given)
    if opset < since and not domain:
        kept = 1
        for place, name in names.items():
            array = arrays[place] if place < len(arrays) else None
            if array is not None and (array.size or name != "axes"):  # no axes are all, as none given
                attributes[name] = array.tolist() if name not in ("k", "ratio") else array.reshape(-1)[0].item()
    if domain:
        return kept, attributes
    known = onnx.defs.get_schema(operator, opset).attributes
    return kept, {name: value for name, value in attributes.items() if name in known}
