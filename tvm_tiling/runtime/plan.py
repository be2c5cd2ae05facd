"""Execution plans: a model as a sequence of kernel calls on tensors with statically planned memory.

Plain data, without TVM: created from a compiled model by model/extract_plan.py, executed by plan.c, saved as JSON.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from ..limits import MOST_PARTS
from .arrays import ALIGNMENT

# Memory of a tensor; plan.h has the same numbers.
ARENA, INPUT, OUTPUT, CONSTANT = range(4)
ELEMENT, VECTOR = 1, ALIGNMENT  # bytes: alignments required of a caller's arrays beside that of their elements
MOST_BYTES = 1 << 46  # limit for an arena, and for any tensor of a plan

# DLPack's type codes, and the bits of an element.
_CODES = {"int": 0, "uint": 1, "float": 2, "bfloat": 4, "bool": 6}
_TYPES = {
    **{f"{kind}{bits}": (_CODES[kind], bits) for kind in ("int", "uint") for bits in (8, 16, 32, 64)},
    **{f"float{bits}": (_CODES["float"], bits) for bits in (16, 32, 64)},
    "bfloat16": (_CODES["bfloat"], 16),
    "bool": (_CODES["bool"], 8),
}


def is_known(dtype: str) -> bool:
    """Return whether a plan may have tensors of this type."""
    return dtype in _TYPES


def type_code(dtype: str) -> int:
    """DLPack's type code, with the bits of an element from bit 8."""
    code, bits = _TYPES[dtype]
    return code | bits << 8


@dataclass(frozen=True)
class TensorType:
    """`shape` in elements, and TVM's name of the type."""

    shape: tuple[int, ...]
    dtype: str

    @property
    def bytes(self) -> int:
        """Size of all elements."""
        return math.prod(self.shape) * _TYPES[self.dtype][1] // 8


@dataclass(frozen=True)
class PlannedTensor(TensorType):
    """`place`: ARENA, INPUT, OUTPUT or CONSTANT. `offset`: bytes from the start of the arena, or the index of the
    input, output or constant. Tensors may share memory: a reshape moves no data."""

    place: int
    offset: int


@dataclass(frozen=True)
class Step:
    """A call of `kernel` with tensors by index; -1 and below are scalars, the first one -1."""

    kernel: str
    arguments: tuple[int, ...]


Writes: TypeAlias = tuple[tuple[str, tuple[int, ...]], ...]


def writes_of(plain: Mapping[str, Any]) -> Writes:
    """The arguments written by kernels, as recorded in a saved plan; empty in files of earlier versions."""
    return tuple((str(kernel), _numbers(places)) for kernel, places in plain.get("writes", ()))


@dataclass(frozen=True)
class ExecutionPlan:
    """`arena`: bytes of memory for intermediate tensors. `inputs`, `outputs`: types of the arguments. `results`: for
    each output the tensor with its value, which is copied if it is not stored in that output. `scalars`: integer
    arguments of kernels in plans of models with dynamic shapes (open_plan.py). `writes`: for each kernel, which
    of its arguments it writes; plans of earlier versions do not say. `alignment`: required by the kernels of inputs and
    outputs, ELEMENT, or VECTOR in plans of earlier versions. `parts`: how often a run executes the steps, each time for
    the next equal part of every input and output; tensors are those of one part."""

    arena: int
    inputs: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]
    tensors: tuple[PlannedTensor, ...]
    steps: tuple[Step, ...]
    results: tuple[int, ...]
    scalars: tuple[int, ...] = ()
    writes: Writes = ()
    alignment: int = ELEMENT
    parts: int = 1

    def in_parts(self, parts: int) -> ExecutionPlan:
        """The plan that runs this one for each of `parts` parts of inputs and outputs, whose first axes are longer."""
        inputs, outputs = (
            tuple(replace(each, shape=(parts * each.shape[0], *each.shape[1:])) for each in kinds)
            for kinds in (self.inputs, self.outputs)
        )
        return replace(self, inputs=inputs, outputs=outputs, parts=parts)

    @property
    def kernels(self) -> tuple[str, ...]:
        """The names of the kernels, without duplicates."""
        return tuple(dict.fromkeys(step.kernel for step in self.steps))

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, to be read by from_dict()."""
        return {
            "arena": self.arena,
            "inputs": [[list(each.shape), each.dtype] for each in self.inputs],
            "outputs": [[list(each.shape), each.dtype] for each in self.outputs],
            "tensors": [[each.place, each.offset, list(each.shape), each.dtype] for each in self.tensors],
            "steps": [[step.kernel, list(step.arguments)] for step in self.steps],
            "results": list(self.results),
            "writes": [[kernel, list(places)] for kernel, places in self.writes],
            "alignment": self.alignment,
            "parts": self.parts,
        }

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> ExecutionPlan:
        """The plan from a to_dict() result, as decoded from JSON. Raises ValueError, TypeError or KeyError for anything
        else."""
        return cls(
            arena=_number(plain["arena"]),
            inputs=tuple(TensorType(_numbers(shape), str(dtype)) for shape, dtype in plain["inputs"]),
            outputs=tuple(TensorType(_numbers(shape), str(dtype)) for shape, dtype in plain["outputs"]),
            tensors=tuple(
                PlannedTensor(_numbers(shape), str(dtype), _number(place), _number(offset))
                for place, offset, shape, dtype in plain["tensors"]
            ),
            steps=tuple(Step(str(kernel), _numbers(arguments)) for kernel, arguments in plain["steps"]),
            results=_numbers(plain["results"]),
            writes=writes_of(plain),
            alignment=_number(plain.get("alignment", VECTOR)),
            parts=_number(plain.get("parts", 1)),
        )

    def check(self, constants: Sequence[int]) -> None:
        """Raise ValueError if a tensor is outside its memory, or an index is invalid. `constants`: bytes of each.

        A plan from a file is checked before anything is executed. Kernels do not check their arguments: the digest of
        the file guarantees that the plan calls them with tensors of the right shapes.
        """
        for each in (*self.inputs, *self.outputs, *self.tensors):
            if not is_known(each.dtype) or any(extent < 0 for extent in each.shape) or each.bytes > MOST_BYTES:
                raise ValueError(f"the plan has a tensor of shape {each.shape} and type {each.dtype[:20]!r}")
        if self.alignment not in (ELEMENT, VECTOR):
            raise ValueError(f"the plan's kernels require an alignment of {self.alignment} bytes")
        if not 1 <= self.parts <= MOST_PARTS or any(each.bytes % self.parts for each in (*self.inputs, *self.outputs)):
            raise ValueError(f"the plan divides its inputs and outputs into {self.parts} parts")
        if not 0 <= self.arena <= MOST_BYTES:
            raise ValueError(f"the plan's arena has {self.arena} bytes")
        sizes = {
            INPUT: [each.bytes // self.parts for each in self.inputs],
            OUTPUT: [each.bytes // self.parts for each in self.outputs],
            CONSTANT: list(constants),
        }
        for tensor in self.tensors:
            if tensor.place == ARENA:
                fits = tensor.offset % ALIGNMENT == 0 and 0 <= tensor.offset <= self.arena - tensor.bytes
            else:
                known = sizes.get(tensor.place, [])
                fits = 0 <= tensor.offset < len(known) and tensor.bytes <= known[tensor.offset]
            if not fits:
                raise ValueError(f"a tensor of the plan at {tensor.place}:{tensor.offset} is outside its memory")
        if len(self.results) != len(self.outputs):
            raise ValueError(f"the plan has {len(self.results)} results for {len(self.outputs)} outputs")
        used = [number for step in self.steps for number in step.arguments]
        least = -len(self.scalars)
        if not all(least <= n < len(self.tensors) for n in used) or not all(
            0 <= n < len(self.tensors) for n in self.results
        ):
            raise ValueError("the plan uses a tensor that does not exist")
        for number, output in zip(self.results, self.outputs, strict=True):
            if self.tensors[number].bytes * self.parts != output.bytes:
                raise ValueError("a result of the plan has a different size than its output")


def _number(value: Any) -> int:
    if type(value) is not int or not -(1 << 62) < value < 1 << 62:
        raise ValueError(f"the plan contains {str(value)[:40]!r} in place of a number")
    return value


def _numbers(values: Iterable[Any]) -> tuple[int, ...]:
    return tuple(map(_number, values))


@dataclass(frozen=True)
class Lifetime:
    """Memory of `bytes` bytes, used from step `first` to step `last`."""

    bytes: int
    first: int
    last: int


def packed(lifetimes: Sequence[Lifetime]) -> tuple[int, list[int]]:
    """The size of an arena in bytes, and the aligned offset of each memory piece in it: pieces used in the same step do
    not overlap. The largest are placed first, each at the lowest offset that is free during its lifetime."""
    steps = max((life.last for life in lifetimes), default=-1) + 1
    taken: list[list[tuple[int, int]]] = [[] for _ in range(steps)]
    offsets, size = [0] * len(lifetimes), 0
    for number in sorted(range(len(lifetimes)), key=lambda n: (-lifetimes[n].bytes, n)):
        life = lifetimes[number]
        need = -(-life.bytes // ALIGNMENT) * ALIGNMENT
        around = sorted({span for step in range(life.first, life.last + 1) for span in taken[step]})
        offset = 0
        for start, end in around:
            if start - offset >= need:
                break
            offset = max(offset, end)
        offsets[number] = offset
        size = max(size, offset + need)
        if need:
            for step in range(life.first, life.last + 1):
                taken[step].append((offset, offset + need))
    return size, offsets
