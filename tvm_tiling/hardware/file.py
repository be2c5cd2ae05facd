"""Hardware descriptions as TOML files: one table per unit, one key per field, nothing else.

The dataclasses of the units are the schema: their fields are the known keys, those without a default are required, and
their own checks define the accepted ranges. To add a machine, write a file; to add a unit, add its dataclass. The class
of the whole machine is passed in: this module knows no description.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from ..errors import HardwareError, nearest
from ..plain_text import TextError, plain_toml

PRESETS = Path(__file__).parent / "presets"

T = TypeVar("T")


def preset_names() -> list[str]:
    """Return the names that `Hardware.load` accepts without a path."""
    return sorted(path.stem for path in PRESETS.glob("*.toml"))


def load(kind: type[T], name_or_path: str | os.PathLike[str]) -> T:
    """Load the machine of a preset or of a file; see :meth:`Hardware.load`."""
    if not isinstance(name_or_path, str | os.PathLike):
        given = type(name_or_path).__name__
        raise HardwareError(f"hardware is not a name or a path: {given}; expected a preset, a TOML file or a Hardware")
    name = os.fspath(name_or_path)
    is_path = not isinstance(name_or_path, str) or name.endswith(".toml") or "/" in name or os.sep in name
    if is_path:
        return _parse(kind, _read(Path(name)), name, default_name=Path(name).stem)
    if name not in preset_names():
        if os.path.exists(name):
            fault = "a directory" if os.path.isdir(name) else "a file whose name does not end in .toml"
            raise HardwareError(f"{name} is {fault}; expected a preset or a TOML file")
        raise HardwareError(
            f"unknown hardware preset {name!r}; {nearest(name, preset_names())}; or a path to a TOML file"
        )
    return _parse(kind, _read(PRESETS / f"{name}.toml"), f"{name}.toml", default_name=name)


def from_toml(kind: type[T], text: str, place: str) -> T:
    """Return the machine that TOML text describes. HardwareError names `place` and the line or the field."""
    return _parse(kind, text, place, default_name=place)


def from_dict(kind: type[T], table: Any, place: str) -> T:
    """Return the machine from the output of :meth:`Hardware.to_dict`. HardwareError names `place` and the field."""
    return _build(kind, _without_none(table), place, "")


def _without_none(value: Any) -> Any:
    """Remove None values: TOML has no null."""
    if isinstance(value, dict):
        return {key: _without_none(item) for key, item in value.items() if item is not None}
    return [_without_none(item) for item in value] if isinstance(value, (list, tuple)) else value


def toml_text(hardware: Any) -> str:
    """Return the text that :func:`from_toml` reads back as an equal machine."""
    lines: list[str] = []
    _write_table(lines, "", hardware)
    return "\n".join(lines).strip() + "\n"


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise HardwareError(f"{path} cannot be read: {error.strerror}; expected a TOML file") from None
    except UnicodeDecodeError as error:
        raise HardwareError(f"{path}: byte {error.start} is not UTF-8; expected a TOML file") from None


def _parse(kind: type[T], text: str, file: str, default_name: str) -> T:
    try:
        table = plain_toml(text)
    except TextError as error:
        at = re.search(r"at line (\d+)", str(error))
        line = int(at.group(1)) if at else text.count("\n") + 1
        raise HardwareError(f"{file}:{line}: {error}") from None
    return _build(kind, {"name": default_name, **table}, file, "")


def _build(kind: type[T], table: Any, file: str, where: str) -> T:
    """Return an instance of the dataclass `kind` from a TOML table; `where` is the dotted name of the table."""
    place = f"{file}: [{where}]" if where else file
    if not isinstance(table, dict):
        raise HardwareError(f"{place}: {table!r}; expected a table")
    fields = {f.name: f for f in dataclasses.fields(kind)}  # type: ignore[arg-type]
    for key in table:
        if key not in fields:
            raise HardwareError(f"{place}: unknown field {key!r}; {nearest(key, fields)}")
    missing = [f.name for f in fields.values() if f.name not in table and not _has_default(f)]
    if missing:
        said = "missing required field" if len(missing) == 1 else "missing required fields"
        raise HardwareError(f"{place}: {said} {', '.join(map(repr, missing))}")
    hints = get_type_hints(kind)
    values = {}
    for key, value in table.items():
        below = f"{where}.{key}" if where else key
        record = next((arg for arg in get_args(hints[key]) if dataclasses.is_dataclass(arg)), None)
        if not isinstance(record, type):
            values[key] = value
        elif get_origin(hints[key]) is dict:
            if not isinstance(value, dict):
                raise HardwareError(f"{file}: [{below}]: {value!r}; expected a table of tables")
            values[key] = {name: _build(record, item, file, f"{below}.{name}") for name, item in value.items()}
        elif isinstance(value, list):
            values[key] = tuple(_build(record, item, file, f"{below}[{i}]") for i, item in enumerate(value))
        else:
            values[key] = _build(record, value, file, below)
    try:
        return kind(**values)
    except HardwareError as error:
        raise HardwareError(f"{place}: {error}") from None


def _has_default(field: dataclasses.Field[Any]) -> bool:
    return field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING


def _write_table(lines: list[str], where: str, record: Any) -> None:
    """Append `record` (a dataclass or a dict): its plain fields first, then its tables, as TOML requires."""
    if isinstance(record, dict):
        items = record
    else:
        # A list or table that is empty by default can be omitted.
        empty = {f.name for f in dataclasses.fields(record) if f.default == () or f.default_factory is dict}
        items = {f.name: getattr(record, f.name) for f in dataclasses.fields(record)}
        items = {name: item for name, item in items.items() if item or name not in empty}
    tables = []
    for key, value in items.items():
        if value is None:
            continue
        listed = isinstance(value, tuple) and value and dataclasses.is_dataclass(value[0])
        if listed or isinstance(value, dict) or dataclasses.is_dataclass(value):
            tables.append((f"{where}.{_key(key)}" if where else _key(key), value))
        else:
            lines.append(f"{_key(key)} = {_plain(value)}")
    for name, value in tables:
        for item in value if isinstance(value, tuple) else (value,):
            lines += ["", f"[[{name}]]" if isinstance(value, tuple) else f"[{name}]"]
            _write_table(lines, name, item)


def _key(name: str) -> str:
    """A key of a TOML table, quoted where necessary."""
    return name if re.fullmatch("[A-Za-z0-9_-]+", name) else json.dumps(name)


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return f"[{', '.join(map(_plain, value))}]"
    # A JSON string is a TOML basic string as long as non-ASCII characters are not escaped.
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)
