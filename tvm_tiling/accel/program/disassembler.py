"""Programs as text, to read and to write by hand in tests. One line per instruction:

    3: matrix GEMM extent=8x1x16x1x1x24 type=int8>int32 a=a+0/24,0,0,0,0,1 b=b+0/0,0,1,0,0,16 c=acc+0/16,0,1
       wait=load_a,load_b signal=vector                                                       (all on one line)

number, queue, mnemonic, then the fields that are not at their default: `extent`, loop by loop; `type` of a and b > of
c; operands as memory + byte address / strides in elements, trailing ones or zeros omitted; `function`; `accumulate`;
`immediate`; `values`, the two immediate numbers; `pad`; `block`; tokens as queue*number. A semicolon begins a comment.

Tables are directives before the code: .machine (TOML up to .end), .queues, .memory name bytes, .tensor name type shape
memory address role operand, .region name workload decision; .in number sets the region of the instructions that follow,
.constant name is followed by base64 lines with the values of a tensor.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ...hardware.vector_functions import Function
from ..instructions.table import Opcode, uses
from .isa import OPERANDS, ElementType, Flag
from .tables import ProgramTables

_LINE = 72  # bytes of a constant per line
_TYPES = [kind.name.lower() for kind in ElementType]
_FLAGS = [(int(flag), flag.name.lower()) for flag in Flag if flag.name]


def disassemble(program: ProgramTables) -> str:
    """See :meth:`.program.Program.disassemble`."""
    return "\n".join(_lines(program)) + "\n"


def instruction_text(program: ProgramTables, number: int) -> str:
    """Return one instruction as a line of text without its number."""
    return next(_instructions(program, program.instructions[number : number + 1]))[1]


def instruction_name(program: ProgramTables, number: int) -> str:
    """Return the name of an instruction in messages: "instruction 7 (GEMM, queue 'matrix', of 'conv1')"."""
    record = program.instructions[number]
    row = Opcode[int(record["op"])]
    what = f"{row.name} {Function[int(record['function'])].name.upper()}" if row.takes_function else row.name
    region = f", of {program.regions[record['region']].name!r}" if program.regions else ""
    return f"instruction {number} ({what}, queue {program.queues[record['queue']]!r}{region})"


def _lines(program: ProgramTables) -> Iterator[str]:
    yield f"; {len(program)} instructions for {program.hardware.name}"
    yield ".machine"
    yield program.hardware.to_toml().rstrip("\n")
    yield ".end"
    yield f".queues {' '.join(program.queues)}"
    for memory in program.memories:
        yield f".memory {memory.name} {memory.bytes}"
    for tensor in program.tensors:
        shape = ",".join(map(str, tensor.shape)) or "-"
        place = f"{tensor.memory} {tensor.address} {tensor.role} {tensor.operand}"
        yield f".tensor {json.dumps(tensor.name)} {tensor.dtype} {shape} {place}"
    for row in program.regions:
        yield f".region {' '.join(json.dumps(text) for text in (row.name, row.workload, row.decision))}"
    inside = 0
    for number, (region, text) in enumerate(_instructions(program, program.instructions)):
        if region != inside:
            inside = region
            yield f".in {inside}"
        yield f"{number}: {text}"
    for name, values in program.constants.items():
        yield f".constant {json.dumps(name)}"
        content = np.ascontiguousarray(values).tobytes()
        for start in range(0, len(content), _LINE):
            yield base64.b64encode(content[start : start + _LINE]).decode()


def _instructions(program: ProgramTables, instructions: np.ndarray) -> Iterator[tuple[int, str]]:
    """Yield region and text of each instruction."""
    names = instructions.dtype.names or ()
    touched = np.stack([uses(instructions).of(operand) for operand in OPERANDS], axis=1).tolist()
    for row, used in zip(zip(*(instructions[name].tolist() for name in names), strict=True), touched, strict=True):
        fields = dict(zip(names, row, strict=True))
        yield fields["region"], _instruction(program, fields, used)


def _instruction(program: ProgramTables, fields: dict[str, Any], used: list[bool]) -> str:
    row = Opcode[fields["op"]]
    words = [program.queues[fields["queue"]], row.name]
    if fields["function"] or row.takes_function:
        words.append(f"function={Function[fields['function']].name}")
    words += [name for flag, name in _FLAGS if fields["flags"] & flag]
    if extent := _trimmed(fields["extent"], 1):
        words.append(f"extent={'x'.join(map(str, extent))}")
    if fields["dtype"] or fields["result_dtype"]:
        words.append(f"type={'>'.join(dict.fromkeys(_TYPES[fields[name]] for name in ('dtype', 'result_dtype')))}")
    for operand, touched in zip(OPERANDS, used, strict=True):
        memory, address = fields[f"{operand}_memory"], fields[operand]
        strides = _trimmed(fields[f"{operand}_stride"], 0)
        if touched or memory or address or strides:
            walk = f"/{','.join(map(str, strides))}" if strides else ""
            words.append(f"{operand}={program.memories[memory].name}{address:+d}{walk}")
    if any(fields["pad"]):
        words.append(f"pad={','.join(map(str, fields['pad']))}")
    if fields["block"]:
        words.append(f"block={fields['block']}")
    values = list(map(number_text, fields["immediate"]))
    if values != ["0.0", "0.0"]:
        words.append(f"values={','.join(values)}")
    for name in ("wait", "signal"):
        tokens = [(queue, count) for queue, count in zip(program.queues, fields[name], strict=False) if count]
        if tokens:
            texts = (queue if count == 1 else f"{queue}*{count}" for queue, count in tokens)
            words.append(f"{name}={','.join(texts)}")
    return " ".join(words)


def _trimmed(values: Sequence[int], missing: int) -> list[int]:
    found = list(values)
    while found and found[-1] == missing:
        found.pop()
    return found


def number_text(value: float) -> str:
    """Return a float64 as the shortest text that round-trips, or as its bits in hexadecimal if there is none (NaN
    payloads)."""
    text = repr(value)
    bits = struct.pack(">d", value)
    return text if struct.pack(">d", float(text)) == bits else f"0x{bits.hex()}"
