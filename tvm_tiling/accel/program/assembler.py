"""Assembler: text to programs, the inverse of disassembler.py, which documents the syntax."""

from __future__ import annotations

import base64
import binascii
import re
import struct
from collections.abc import Callable, Collection, Iterator
from typing import Any

import numpy as np

from ...errors import HardwareError, ProgramError, nearest
from ...hardware.description import Hardware
from ...hardware.file import from_toml
from ...hardware.vector_functions import Function
from ...plain_text import plain_json
from ..instructions.table import Opcode
from .isa import INSTRUCTION, LOOPS, QUEUES, Flag
from .program import Program
from .tables import STORAGE, Memory, Region, Tensor, element_type

_DIRECTIVES = (".machine", ".queues", ".memory", ".tensor", ".region", ".in", ".constant")
_FLAGS = {flag.name.lower(): flag for flag in Flag if flag.name}
_KEYS = ("function", "extent", "type", "a", "b", "c", "pad", "block", "values", "wait", "signal", *_FLAGS)
_LIMITS = {name: np.iinfo(INSTRUCTION[name].base) for name in INSTRUCTION.names or () if name != "immediate"}
_WHOLE = re.compile(r"[+-]?\d{1,19}", re.ASCII)
_WORD = re.compile(r'("(?:[^"\\]|\\.)*")|([^\s;"][^\s;]*)|(")|;.*')
_OPERAND = re.compile(r"(?P<memory>[^+\-/\s]+)(?P<address>[+-]\d+)(/(?P<strides>[-\d,]+))?")


def assemble(text: str) -> Program:
    """Return the program that `text` describes. ProgramError names the line, what is wrong and what is accepted."""
    return _Reader(text).program()


class _Reader:
    """Reads the text line by line; `line` is the current line number, for errors."""

    def __init__(self, text: str) -> None:
        self.lines = text.split("\n")
        self.line = 0
        self.hardware: Hardware | None = None
        self.queues: list[str] = []
        self.memories: list[Memory] = []
        self.tensors: list[Tensor] = []
        self.regions: list[Region] = []
        self.rows: list[tuple[Any, ...]] = []
        self.content: dict[str, bytearray] = {}
        self.constant: str | None = None  # the constant whose values are being read
        self.region = 0

    def program(self) -> Program:
        while self.line < len(self.lines):
            self.line += 1
            words = list(self._words(self.lines[self.line - 1]))
            if not words:
                continue
            if words[0].startswith("."):
                self.constant = None
                self._directive(words[0], words[1:])
            elif self.constant is not None:
                self._values(words)
            else:
                self.rows.append(self._instruction(words))
        if self.hardware is None:
            raise self._error("the text has no machine; expected .machine, its TOML, .end")
        return Program(
            hardware=self.hardware,
            memories=tuple(self.memories),
            queues=tuple(self.queues),
            tensors=tuple(self.tensors),
            regions=tuple(self.regions),
            instructions=np.array(self.rows, dtype=INSTRUCTION),
            constants={name: self._array(name, bytes(content)) for name, content in self.content.items()},
        )

    def _error(self, problem: str) -> ProgramError:
        return ProgramError(f"line {self.line}: {problem}")

    def _words(self, line: str) -> Iterator[str]:
        """Yield the words of a line. A JSON string in double quotes is one word; a semicolon starts a comment."""
        for quoted, plain, rest in _WORD.findall(line):
            if rest:
                raise self._error("unterminated string; expected a JSON string")
            if plain:
                yield plain
            elif quoted:
                try:
                    yield plain_json(quoted)
                except ValueError:
                    raise self._error(f"invalid string {quoted}; expected a JSON string") from None

    # ---- directives --------------------------------------------------------------------------------------------------

    def _directive(self, name: str, words: list[str]) -> None:
        known: dict[str, tuple[Callable[..., None], str]] = {
            ".machine": (self._machine, ""),
            ".memory": (self._memory, "name bytes"),
            ".tensor": (self._tensor, "name type shape memory address role operand"),
            ".region": (self._region, "name workload decision"),
            ".in": (self._in, "number"),
            ".constant": (self._constant, "name"),
        }
        if name == ".queues":
            self.queues += words
            return
        if name not in known:
            raise self._error(f"unknown directive {name!r}; {nearest(name, _DIRECTIVES)}")
        take, wanted = known[name]
        if len(words) != len(wanted.split()):
            raise self._error(f"{name} has {len(words)} words; expected {name} {wanted}".rstrip())
        take(*words)

    def _machine(self) -> None:
        start = self.line
        while self.line < len(self.lines) and self.lines[self.line].strip() != ".end":
            self.line += 1
        if self.line == len(self.lines):
            raise self._error(".machine without .end")
        try:
            self.hardware = from_toml(Hardware, "\n".join(self.lines[start : self.line]), "machine")
        except HardwareError as error:
            raise self._error(str(error)) from None
        self.line += 1

    def _memory(self, name: str, size: str) -> None:
        self.memories.append(Memory(name, self._whole("bytes", size)))

    def _tensor(self, name: str, dtype: str, shape: str, memory: str, address: str, role: str, operand: str) -> None:
        extents = () if shape == "-" else tuple(self._whole("shape", word) for word in shape.split(","))
        self._one_of("type", dtype, tuple(STORAGE))
        self.tensors.append(Tensor(name, dtype, extents, memory, self._whole("address", address), role, operand))

    def _region(self, name: str, workload: str, decision: str) -> None:
        self.regions.append(Region(name, workload, decision))

    def _in(self, number: str) -> None:
        self.region = self._whole(".in", number, "region")

    def _constant(self, name: str) -> None:
        self._one_of("constant", name, tuple(tensor.name for tensor in self.tensors))
        self.constant = name
        self.content.setdefault(name, bytearray())

    def _values(self, words: list[str]) -> None:
        assert self.constant is not None
        try:
            self.content[self.constant] += base64.b64decode("".join(words), validate=True)
        except (binascii.Error, ValueError):
            raise self._error(f"the values of {self.constant!r} are not valid base64") from None

    def _array(self, name: str, content: bytes) -> np.ndarray:
        tensor = next(tensor for tensor in self.tensors if tensor.name == name)
        if len(content) != tensor.bytes:
            raise self._error(f"constant {name!r} has {len(content)} bytes; expected {tensor.bytes}")
        return np.frombuffer(content, dtype=STORAGE[tensor.dtype]).reshape(tensor.shape)

    # ---- instructions ------------------------------------------------------------------------------------------------

    def _instruction(self, words: list[str]) -> tuple[Any, ...]:
        if words[0].endswith(":"):
            words = words[1:]
        if len(words) < 2:
            raise self._error("an instruction has too few words; expected queue, instruction, fields")
        queue = self._one_of("queue", words[0], self.queues)
        op = Opcode[self._one_of("instruction", words[1].upper(), Opcode.names)]
        fields: dict[str, str] = {}
        for word in words[2:]:
            key, _, value = word.partition("=")
            self._one_of("field", key, _KEYS)
            if key in fields:
                raise self._error(f"field {key!r} appears twice")
            fields[key] = value
        flags = [flag for name, flag in _FLAGS.items() if name in fields]
        function = self._one_of(
            "function", fields.get("function", "copy").upper(), [name.upper() for name in Function.names]
        )
        source, _, result = fields.get("type", "int8").partition(">")
        kinds = [self._one_of("type", kind, tuple(STORAGE)) for kind in (source, result or source)]
        operands = [self._operand(fields.get(operand), f"{operand}_stride") for operand in ("a", "b", "c")]
        extent = self._numbers("extent", fields.get("extent", "").replace("x", ","), LOOPS, 1)
        return (
            op,
            self.queues.index(queue),
            Function[function],
            sum(flags),
            *(element_type(kind) for kind in kinds),
            self.region,
            self._tokens("wait", fields.get("wait", "")),
            self._tokens("signal", fields.get("signal", "")),
            *(memory for memory, _, _ in operands),
            self._whole("block", fields.get("block", "0"), "block"),
            *(address for _, address, _ in operands),
            extent,
            *(strides for _, _, strides in operands),
            self._numbers("pad", fields.get("pad", ""), 4, 0),
            self._floats(fields.get("values", "")),
        )

    def _operand(self, text: str | None, field: str) -> tuple[int, int, tuple[int, ...]]:
        if text is None:
            return 0, 0, (0,) * LOOPS
        found = _OPERAND.fullmatch(text)
        if found is None:
            raise self._error(f"operand {text!r}; expected memory+address or memory+address/stride,stride...")
        names = [memory.name for memory in self.memories]
        memory = names.index(self._one_of("memory", found["memory"], names))
        operand = field[0]
        address = self._whole("address", found["address"], operand)
        return memory, address, self._numbers(field, found["strides"] or "", LOOPS, 0)

    def _tokens(self, field: str, text: str) -> tuple[int, ...]:
        tokens = [0] * QUEUES
        for word in filter(None, text.split(",")):
            queue, _, count = word.partition("*")
            tokens[self.queues.index(self._one_of("queue", queue, self.queues))] += self._whole(
                field, count or "1", field
            )
        return tuple(self._within(field, count, field) for count in tokens)

    def _numbers(self, field: str, text: str, count: int, missing: int) -> tuple[int, ...]:
        values = [self._whole(field, word, field) for word in text.split(",")] if text else []
        if len(values) > count:
            raise self._error(f"{field} has {len(values)} numbers; expected at most {count}")
        return (*values, *(missing,) * (count - len(values)))

    def _floats(self, text: str) -> tuple[float, ...]:
        words = text.split(",") if text else []
        if len(words) > 2:
            raise self._error(f"values has {len(words)} numbers; expected at most 2")
        try:
            values = [struct.unpack(">d", bytes.fromhex(w[2:]))[0] if w.startswith("0x") else float(w) for w in words]
        except (ValueError, struct.error):
            raise self._error(f"values = {text!r}; expected numbers, or 0x and 16 hexadecimal digits") from None
        return (*values, *(0.0,) * (2 - len(values)))

    def _whole(self, what: str, text: str, field: str | None = None) -> int:
        """Return an integer that `field` of an instruction can hold."""
        if not _WHOLE.fullmatch(text):
            raise self._error(f"{what} = {text!r}; expected a whole number")
        return self._within(what, int(text), field)

    def _within(self, what: str, value: int, field: str | None) -> int:
        if field is not None:
            limits = _LIMITS[field]
            if not limits.min <= value <= limits.max:
                raise self._error(f"{what} = {value}; expected {limits.min} to {limits.max}")
        return value

    def _one_of(self, what: str, word: str, known: Collection[str]) -> str:
        if word not in known:
            raise self._error(f"unknown {what} {word!r}; {nearest(word, known)}")
        return word
