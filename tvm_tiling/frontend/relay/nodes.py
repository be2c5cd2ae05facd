"""Nodes of TVM's old JSON: a list in which attributes are strings, either a literal or the number of another node.

The file does not distinguish the two; the code that asks for a value does.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import ModelFormatError
from .params import parse_array
from .tree import OtherType, Release, TensorType, TupleType, Type
from .types_text import MAX_DEPTH, checked_extent

MAX_VALUES = 100_000  # elements of one value or type
_TEXTS = ("runtime.String", "StringImm", "tir.StringImm")
_ARRAYS = ("Array",)
_MAPS = ("Map", "StrMap")
_NUMBERS = ("IntImm", "FloatImm", "tir.IntImm", "tir.FloatImm", "runtime.BoxInt", "runtime.BoxFloat", "runtime.BoxBool")
_OPEN = ("Any", "relay.Any", "tir.Any")


@dataclass(frozen=True)
class NoValue:
    """A node that is neither a number nor a text, nor composed of these, with its kind."""

    kind: str


class Nodes:
    """The nodes of one JSON text. Raises ModelFormatError if the text is not in this format."""

    def __init__(self, text: str, where: str) -> None:
        self.where = where
        try:
            held = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ModelFormatError(f"{where}: its JSON is corrupted: {str(error)[:120]}") from None
        if (
            not isinstance(held, dict)
            or not isinstance(held.get("nodes"), list)
            or not isinstance(held.get("root"), int)
        ):
            raise ModelFormatError(f"{where}: JSON without root and nodes; expected the output of tvm.ir.save_json")
        self.nodes: list[Any] = held["nodes"]
        self.root = held["root"]
        stored = held.get("b64ndarrays", [])
        self.stored: list[Any] = stored if isinstance(stored, list) else []
        attrs = held.get("attrs")
        self.release = parse_release(attrs.get("tvm_version") if isinstance(attrs, dict) else None)
        self._arrays: dict[int, np.ndarray] = {}
        self._types: dict[int, Type | None] = {}
        self._values = 0

    def fail(self, number: int, what: str) -> ModelFormatError:
        return ModelFormatError(f"{self.where}: node {number}: {what}")

    def node(self, number: int) -> dict[str, Any]:
        """The node with this number."""
        if not 0 <= number < len(self.nodes) or not isinstance(self.nodes[number], dict):
            raise ModelFormatError(f"{self.where}: node {number} does not exist; it has {len(self.nodes)} nodes")
        return self.nodes[number]

    def kind(self, number: int) -> str:
        """The type key of a node; "" for the null node."""
        return str(self.node(number).get("type_key", ""))

    def fields(self, number: int) -> dict[str, str]:
        """The attributes of a node, as strings."""
        held = self.node(number).get("attrs")
        if held is None:
            return {}
        if not isinstance(held, dict) or not all(isinstance(value, str) for value in held.values()):
            raise self.fail(number, "its attributes are not a map of strings")
        return held

    def link(self, number: int, name: str) -> int:
        """The number of the node that an attribute refers to; 0, the null node, if it is missing."""
        return self.number_of(number, self.fields(number).get(name, "0"))

    def number_of(self, number: int, text: str) -> int:
        if not text.isdigit() or len(text) > 12:
            raise self.fail(number, f"{text[:40]!r} is not a node number")
        return int(text)

    def items(self, number: int) -> list[int]:
        """The numbers of the nodes in an array; empty for the null node."""
        if self.kind(number) == "":
            return []
        if self.kind(number) not in _ARRAYS:
            raise self.fail(number, f"{self.kind(number)!r} is not an array; expected an array")
        held = self.node(number).get("data", [])
        if not isinstance(held, list) or not all(isinstance(item, int) for item in held):
            raise self.fail(number, "the array is not a list of nodes")
        return held

    def pairs(self, number: int) -> list[tuple[int | str, int]]:
        """Keys (nodes or texts) and value nodes of a map; empty for the null node."""
        node = self.node(number)
        if self.kind(number) == "":
            return []
        held, keys = node.get("data", []), node.get("keys")
        if self.kind(number) not in _MAPS or not isinstance(held, list) or not all(isinstance(i, int) for i in held):
            raise self.fail(number, "it is not a map of nodes")
        if keys is not None:
            if not isinstance(keys, list) or len(keys) != len(held):
                raise self.fail(number, "the map has different numbers of keys and values")
            return [(str(key), value) for key, value in zip(keys, held, strict=True)]
        return list(zip(held[::2], held[1::2], strict=False))

    def text(self, number: int) -> str:
        """The text in a text node."""
        node = self.node(number)
        if self.kind(number) not in _TEXTS:
            raise self.fail(number, f"{self.kind(number)!r} is not a text; expected a text")
        if isinstance(node.get("repr_str"), str):
            return str(node["repr_str"])
        if isinstance(node.get("repr_b64"), str):
            try:
                return base64.b64decode(node["repr_b64"], validate=True).decode()
            except (ValueError, binascii.Error):
                raise self.fail(number, "a text is not valid base64") from None
        found = self.fields(number).get("value")
        return "" if found is None else found

    def name(self, number: int, field: str) -> str:
        """A text attribute: a literal in old releases, a node in later ones."""
        held = self.fields(number).get(field, "")
        if held.isdigit() and len(held) < 12 and int(held) < len(self.nodes) and self.kind(int(held)) in _TEXTS:
            return self.text(int(held))
        return held

    def value(self, number: int, depth: int = 0) -> Any:
        """A node as a plain Python value: an array of the file as a NumPy array, None for the null node and for a
        dynamic extent, NoValue for anything else."""
        kind = self.kind(number)
        if kind == "":
            return None
        if depth > MAX_DEPTH:
            raise self.fail(number, f"values are nested more than {MAX_DEPTH} deep")
        self._values = self._values + 1 if depth else 1
        if self._values > MAX_VALUES:  # shared nodes are expanded
            raise self.fail(number, f"a value has more than {MAX_VALUES} elements")
        if kind in _NUMBERS:
            return self.number(number)
        if kind in _TEXTS:
            return self.text(number)
        if kind in _ARRAYS:
            return [self.value(item, depth + 1) for item in self.items(number)]
        if kind in _MAPS:
            return {
                key if isinstance(key, str) else self.text(key): self.value(item, depth + 1)
                for key, item in self.pairs(number)
            }
        if kind in ("relay.Constant", "Constant"):
            return self.array(number)
        return None if kind in _OPEN else NoValue(kind)

    def number(self, number: int) -> int | float | bool:
        """The number in a number node."""
        held = self.fields(number)
        text = held.get("value", "")
        try:
            if "Float" in self.kind(number):
                return float(text)
            return bool(int(text)) if held.get("dtype") == "bool" else int(text)
        except ValueError:
            raise self.fail(number, f"{text[:40]!r} is not a number") from None

    def array(self, number: int) -> np.ndarray:
        """The array of a constant."""
        place = self.number_of(number, self.fields(number).get("data", ""))
        if place >= len(self.stored) or not isinstance(self.stored[place], str):
            raise self.fail(number, f"its array {place} does not exist")
        if place not in self._arrays:
            try:
                data = base64.b64decode(self.stored[place].encode(), validate=True)
            except (ValueError, binascii.Error):
                raise self.fail(number, f"its array {place} is not valid base64") from None
            self.stored[place] = ""  # as large as the array, and no longer needed
            self._arrays[place] = parse_array(memoryview(data), f"{self.where}: node {number}")
        return self._arrays[place]

    def type(self, number: int, depth: int = 0) -> Type | None:
        """The type in a node; None if none is stated."""
        if number not in self._types:
            self._types[number] = self._type(number, depth)
        return self._types[number]

    def _type(self, number: int, depth: int) -> Type | None:
        kind = self.kind(number)
        if depth > MAX_DEPTH:
            raise self.fail(number, f"types are nested more than {MAX_DEPTH} deep")
        if kind in ("relay.TensorType", "TensorType", "relay.TensorTypeNode"):
            extents = (self.extent(item) for item in self.items(self.link(number, "shape")))
            return TensorType(tuple(extents), self.fields(number).get("dtype", ""))
        if kind in ("TupleType", "relay.TupleType"):
            fields = (self.type(item, depth + 1) for item in self.items(self.link(number, "fields")))
            made = TupleType(tuple(field or OtherType("unknown") for field in fields))
            if made.parts > MAX_VALUES:
                raise self.fail(number, f"a type has more than {MAX_VALUES} elements")
            return made
        return None if kind == "" or "Incomplete" in kind else OtherType(kind)

    def extent(self, number: int) -> int | None:
        """The size of a dimension; None for a dynamic one."""
        if self.kind(number) not in _NUMBERS:
            return None
        found = self.number(number)
        try:
            return checked_extent(int(found))
        except (ModelFormatError, OverflowError, ValueError) as error:
            raise self.fail(number, str(error)) from None


def parse_release(text: Any) -> Release:
    """Parse a release: (0, 14) for "0.14.dev0"; None for anything else."""
    found = re.match(r"(\d{1,3})\.(\d{1,3})", text) if isinstance(text, str) else None
    return (int(found.group(1)), int(found.group(2))) if found else None
