"""Changes of one field of a description, named by a dotted path, for sweeps over any field."""

from __future__ import annotations

import dataclasses
from typing import Any, get_args, get_origin, get_type_hints

from ..errors import HardwareError, nearest
from .description import Hardware


def with_field(hardware: Hardware, path: str, value: Any) -> Hardware:
    """Return the machine with another value of one field, such as "near_tile.buf_a", "near_tile.bandwidth.external",
    "memories.external.latency", "queues.depth", "levels.unit.bytes_a", "cpu.caches.l2.ways" or "clock_mhz".

    A table whose fields all have defaults may be absent before. HardwareError names the nearest field for an unknown
    one, and what a field accepts for an invalid value.
    """
    changed = _changed(hardware, path.split("."), value, path, "")
    assert isinstance(changed, Hardware)
    return changed


def _changed(record: Any, words: list[str], value: Any, path: str, where: str) -> Any:
    """Return `record`, a dataclass, with the field at `words` set; `where` is its own path."""
    known = {f.name: f for f in dataclasses.fields(record)}
    name, rest = words[0], words[1:]
    if name not in known:
        raise HardwareError(f"{path}: unknown field {name!r}{_of(where)}; {nearest(name, known)}")
    below = f"{where}.{name}" if where else name
    hint = get_type_hints(type(record))[name]
    kinds = [arg for arg in get_args(hint) if dataclasses.is_dataclass(arg)]
    old = getattr(record, name)
    if not kinds and get_origin(hint) is not dict:
        if rest:
            raise HardwareError(f"{path}: {below} has no fields; expected {below}")
        return dataclasses.replace(record, **{name: value})
    if not rest:
        raise HardwareError(f"{path}: {below} is a table; expected one of its fields")
    if get_origin(hint) is tuple:
        labels = [_label(item) for item in old]
        if rest[0] not in labels:
            raise HardwareError(f"{path}: {below} has no {rest[0]!r}; {nearest(rest[0], labels)}")
        items = list(old)
        at = labels.index(rest[0])
        items[at] = _inside(old[at], rest[1:], value, path, f"{below}.{rest[0]}")
        return dataclasses.replace(record, **{name: tuple(items)})
    if get_origin(hint) is dict:
        entry: Any = value
        if kinds:
            made = old[rest[0]] if rest[0] in old else _made(kinds[0], path, below)
            entry = _inside(made, rest[1:], value, path, f"{below}.{rest[0]}")
        elif len(rest) > 1:
            raise HardwareError(f"{path}: {below}.{rest[0]} has no fields; expected {below}.{rest[0]}")
        return dataclasses.replace(record, **{name: {**old, rest[0]: entry}})
    made = old if old is not None else _made(kinds[0], path, below)
    return dataclasses.replace(record, **{name: _inside(made, rest, value, path, below)})


def _inside(record: Any, words: list[str], value: Any, path: str, where: str) -> Any:
    if not words:
        raise HardwareError(f"{path}: {where} is a table; expected one of its fields")
    return _changed(record, words, value, path, where)


def _made(kind: Any, path: str, where: str) -> Any:
    """Return a previously absent table with all fields at their defaults."""
    needed = [
        f.name
        for f in dataclasses.fields(kind)
        if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
    ]
    if needed:
        raise HardwareError(f"{path}: the machine has no {where}; expected fields of units that it has")
    return kind()


def _label(item: Any) -> str:
    """Return the label of an entry of a list: a level by its name, a cache as l1, l2, ..."""
    return str(item.name) if hasattr(item, "name") else f"l{item.level}"


def _of(where: str) -> str:
    return f" of {where}" if where else ""
