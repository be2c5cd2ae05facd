"""The choices of a decision, independent of its shape, as plain data that can be stored and applied again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ...errors import DatabaseError
from ..explain import value_text
from ..labels import label

Value: TypeAlias = int | str | bool | tuple[int, ...]

OPERATORS = ("gemm", "conv")
_EXTENTS = ("left", "right", "result")


@dataclass(frozen=True, kw_only=True)
class Blocks:
    """The blocks at one storage level: the extents, in elements, of blocks of the left operand, the right operand and
    the result.

    For a matrix multiplication: (rows, depth), (depth, columns) and (rows, columns). For a convolution on a CPU: (rows,
    columns, channels) of input and output, and (taps, input channels, output channels) of the kernels.
    """

    level: str
    left: tuple[int, ...]
    right: tuple[int, ...]
    result: tuple[int, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {"level": self.level, **{name: list(getattr(self, name)) for name in _EXTENTS}}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Blocks:
        """Parse the output of `to_dict`. Raises DatabaseError for anything else."""
        if not isinstance(record, Mapping) or set(record) != {"level", *_EXTENTS}:
            raise DatabaseError(f"config: blocks {record!r}; expected a table of level, {', '.join(_EXTENTS)}")
        if not isinstance(record["level"], str):
            raise DatabaseError(f"config: level = {record['level']!r}; expected a string")
        return cls(level=record["level"], **{name: _extents(name, record[name]) for name in _EXTENTS})


@dataclass(frozen=True, kw_only=True)
class Config:
    """The tiling of an operator as data.

    `op` is "gemm" or "conv", `form` the kernel: on a CPU "normal", "inline", "pack" or "stream" for a GEMM, and one of
    FORMS in conv/cpu_conv.py for a convolution; on an accelerator "matrix", "levels" or "wfold". `choices` are sorted
    by name; the names depend on the kernel. `levels`, outermost first, follow from kernel, choices and shape. They are
    informative, and ignored when configurations are compared.
    """

    op: str
    form: str
    choices: tuple[tuple[str, Value], ...]
    levels: tuple[Blocks, ...] = field(default=(), compare=False)

    @classmethod
    def of(cls, op: str, form: str, choices: Mapping[str, Value], levels: Iterable[Blocks] = ()) -> Config:
        """Create a configuration of the operator `op` from choices in any order."""
        return cls(op=op, form=form, choices=tuple(sorted(choices.items())), levels=tuple(levels))

    @property
    def algorithm(self) -> str:
        """The kernel variant or algorithm; stored as the field `form` in records and files."""
        return self.form

    def choice(self, name: str) -> Value:
        """Return the value of a choice. Raises DatabaseError, listing the available names, if the configuration has no
        such choice."""
        for own, value in self.choices:
            if own == name:
                return value
        raise DatabaseError(
            f"config: algorithm {self.form!r} has no choice {name!r}; expected {', '.join(n for n, _ in self.choices)}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "op": self.op,
            "form": self.form,
            "choices": {name: list(value) if isinstance(value, tuple) else value for name, value in self.choices},
            "levels": [blocks.to_dict() for blocks in self.levels],
        }

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Config:
        """Parse the output of `to_dict`. Raises DatabaseError, naming the field, for anything else."""
        if not isinstance(record, Mapping) or set(record) - {"op", "form", "choices", "levels"}:
            raise DatabaseError(f"config: {record!r}; expected a table of op, form, choices and levels")
        op, form, choices = record.get("op"), record.get("form"), record.get("choices")
        if op not in OPERATORS:
            raise DatabaseError(f"config: op = {op!r}; expected {', '.join(map(repr, OPERATORS))}")
        if not isinstance(form, str) or not form:
            raise DatabaseError(f"config: form = {form!r}; expected the name of a kernel")
        if not isinstance(choices, Mapping):
            raise DatabaseError(f"config: choices = {choices!r}; expected a table of names and values")
        levels = record.get("levels", ())
        if not isinstance(levels, list | tuple):
            raise DatabaseError(f"config: levels = {levels!r}; expected a list of blocks")
        values = {_name(name): _value(name, value) for name, value in choices.items()}
        return cls.of(op, form, values, (Blocks.from_dict(blocks) for blocks in levels))

    @property
    def description(self) -> str:
        """The algorithm and every choice in words."""
        return ", ".join((self.form, *(_described(self.form, name, value) for name, value in self.choices)))

    def __str__(self) -> str:
        return f"{self.form} " + " ".join(f"{name}={_text(value)}" for name, value in self.choices)


def _text(value: Value) -> str:
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _described(form: str, name: str, value: Value) -> str:
    own = label("config", name)
    called = label(form, name) if own == name else own
    if isinstance(value, tuple):
        return f"{called} {' x '.join(map(str, value))}"
    if (name, value) == ("partition_k", 0):
        return f"{called}: all"
    return f"{called}{' ' if type(value) is int else ': '}{value_text(name, value)}"


def _name(name: object) -> str:
    if not isinstance(name, str) or not name:
        raise DatabaseError(f"config: a choice named {name!r}; expected a name")
    return name


def _value(name: str, value: object) -> Value:
    if isinstance(value, str | bool | int):
        return value
    if isinstance(value, list | tuple):
        return _extents(name, value)
    raise DatabaseError(f"config: {name} = {value!r}; expected an integer, a string, a boolean, or a list of integers")


def _extents(name: str, value: object) -> tuple[int, ...]:
    if not isinstance(value, list | tuple) or any(type(extent) is not int for extent in value):
        raise DatabaseError(f"config: {name} = {value!r}; expected whole numbers")
    return tuple(value)
