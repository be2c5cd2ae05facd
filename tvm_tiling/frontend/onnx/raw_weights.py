"""Removal of weights from an ONNX file before it is parsed, because the parser would hold a second copy of them.

Only the structure of the file is read here, to locate the bytes of the weights. A file that is unusual in any way, or
corrupted, is passed whole to the parser, which reports the error.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

# Field numbers of ModelProto, GraphProto, and of a dense TensorProto.
_GRAPH, _INITIALIZER = 7, 5
_DIMS, _TYPE, _NAME, _RAW_DATA, _DOC, _LOCATION = 1, 2, 8, 9, 12, 14
_DENSE = frozenset([_DIMS, _TYPE, _NAME, _RAW_DATA, _DOC, _LOCATION])
# Wire types of fields.
_NUMBER, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_SIZES = {_FIXED64: 8, _FIXED32: 4}
_LONGEST = 10  # maximum bytes of a varint


@dataclass(frozen=True)
class Place:
    """Location of a weight in the file, in bytes."""

    start: int
    size: int


@dataclass(frozen=True)
class Outline:
    """A file without its large weights. `weights` maps initializer indices to the locations of the removed weights."""

    content: bytes
    weights: dict[int, Place]


@dataclass(frozen=True)
class _Field:
    """A field of a message: start of the field, start of its value, and end of both."""

    number: int
    kind: int
    start: int
    value: int
    end: int


def outline(data: memoryview, least: int) -> Outline | None:
    """The file without its weights of more than `least` bytes; None if none can be removed."""
    weights: dict[int, Place] = {}
    parts: list[bytes | memoryview] = []
    graphs = 0
    try:
        for field in _fields(data, 0, len(data)):
            if (field.number, field.kind) != (_GRAPH, _BYTES):
                parts.append(data[field.start : field.end])
                continue
            graphs += 1
            graph = _graph(data, field, least, weights)
            parts += [_head(_GRAPH, graph), *graph]
    except ValueError:
        return None
    return Outline(b"".join(parts), weights) if weights and graphs == 1 else None


def _graph(data: memoryview, graph: _Field, least: int, weights: dict[int, Place]) -> list[bytes | memoryview]:
    """The parts of a graph without its large weights, whose locations are added to `weights`."""
    parts: list[bytes | memoryview] = []
    kept, count = graph.value, 0
    for field in _fields(data, graph.value, graph.end):
        if (field.number, field.kind) != (_INITIALIZER, _BYTES):
            continue
        raw = _raw_data(data, field)
        if raw is not None and raw.end - raw.value > least:
            rest: list[bytes | memoryview] = [data[field.value : raw.start], data[raw.end : field.end]]
            parts += [data[kept : field.start], _head(_INITIALIZER, rest), *rest]
            weights[count] = Place(raw.value, raw.end - raw.value)
            kept = field.end
        count += 1
    return [*parts, data[kept : graph.end]]


def _raw_data(data: memoryview, tensor: _Field) -> _Field | None:
    """The raw data field of a dense tensor that stores its data once and in this file."""
    found = None
    for field in _fields(data, tensor.value, tensor.end):
        elsewhere = field.number == _LOCATION and data[field.value : field.end] != b"\0"
        if field.number not in _DENSE or elsewhere:
            return None
        if field.number == _RAW_DATA:
            if found is not None or field.kind != _BYTES:
                return None
            found = field
    return found


def _fields(data: memoryview, start: int, end: int) -> Iterator[_Field]:
    """The fields of a message. Raises ValueError if the bytes are not a message, or it contains a group."""
    while start < end:
        tag, value = _read_number(data, start, end)
        kind = tag & 7
        if kind == _NUMBER:
            _, after = _read_number(data, value, end)
        elif kind == _BYTES:
            size, value = _read_number(data, value, end)
            after = value + size
        elif kind in _SIZES:
            after = value + _SIZES[kind]
        else:
            raise ValueError(f"a field has wire type {kind}, which is not supported")
        if after > end:
            raise ValueError("a field is truncated")
        yield _Field(tag >> 3, kind, start, value, after)
        start = after


def _read_number(data: memoryview, start: int, end: int) -> tuple[int, int]:
    """A varint (groups of seven bits, lowest first) and its end offset."""
    number = 0
    for place in range(start, min(end, start + _LONGEST)):
        number |= (data[place] & 0x7F) << 7 * (place - start)
        if data[place] < 0x80:
            return number, place + 1
    raise ValueError("a varint is truncated")


def _head(number: int, parts: list[bytes | memoryview]) -> bytes:
    """The tag and length prefix of a field of these bytes."""
    size = sum(map(len, parts))
    written = bytearray([number << 3 | _BYTES])
    while size >= 0x80:
        written.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([*written, size])
