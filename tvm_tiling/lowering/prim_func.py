"""Kernels as PrimFuncs: the operator itself, and, with prepacked weights, the function that packs them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import tvm
from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T  # noqa: N812

from ..decide.conv.conv_tiling import ConvTiling
from ..decide.tiling import Decision, GemmTiling
from ..hardware.dot_instructions import DotInstruction
from ..match import ConvProgram, GemmProgram
from ..runtime.pages import zeros
from ..runtime.tensors import tensor_of
from .dot import linked
from .named_blocks import with_signatures
from .weight_panels import Panels

# The function attribute that holds its decision as JSON.
DECISION = "tvm_tiling.decision"


@dataclass(frozen=True)
class ScheduledOperator:
    """TIR of one operator; with prepacked weights also the function (weights, packed) that packs them, or for
    block-quantised weights the panels that hold them."""

    tiling: Decision | None
    main: tirx.PrimFunc
    pack: tirx.PrimFunc | None = None
    packed_shape: tuple[int, ...] | None = None
    packed_dtype: str | None = None
    panels: Panels | None = None


def packed_memory(shape: tuple[int, ...], dtype: str) -> tvm.runtime.Tensor:
    """Return zeros for packed weights of `shape` elements: packing leaves gaps between the weights, which are saved
    with them."""
    size = math.prod(shape) * -(-tvm.DataType(dtype).bits // 8)
    return tensor_of(zeros(size))._create_view(shape, dtype)


class PackedEmitter(Protocol):
    """A kernel emitter that takes its weights packed, or packs them itself if `packed` is None."""

    @property
    def packed_shape(self) -> tuple[int, ...]: ...

    @property
    def packed_dtype(self) -> str: ...

    def emit(self, packed: tirx.Var | None) -> None: ...

    def pack_whole(self, packed: tirx.Var) -> None: ...


def write_plain(
    program: GemmProgram | ConvProgram,
    tiling: GemmTiling | ConvTiling,
    emit: Callable[[], None],
    engine: DotInstruction,
) -> ScheduledOperator:
    """Return the operator on its own parameters, by a kernel that uses the instruction `engine`."""

    def body() -> None:
        for parameter in program.func.params:
            T.arg(parameter.name, parameter)
        with root(), linked(engine):
            emit()

    return ScheduledOperator(tiling, write_function(program.name, tiling, body))


def write_packed(
    program: GemmProgram | ConvProgram,
    tiling: GemmTiling | ConvTiling,
    weights: tirx.Var,
    emitter: PackedEmitter,
    engine: DotInstruction,
) -> ScheduledOperator:
    """Return the operator with its parameter `weights` in packed form, and the packing function."""
    shape, dtype = emitter.packed_shape, emitter.packed_dtype

    def argument() -> tirx.Var:
        return T.arg(f"{weights.name}_packed", T.Buffer(shape, dtype))

    def main() -> None:
        packed = None
        for parameter in program.func.params:
            if parameter.same_as(weights):
                packed = argument()
            else:
                T.arg(parameter.name, parameter)
        assert packed is not None
        with root(), linked(engine):
            emitter.emit(packed.view(-1))

    def pack() -> None:
        T.arg(weights.name, weights)
        packed = argument()
        with root():
            emitter.pack_whole(packed.view(-1))

    name = program.name
    packing = write_function(f"{name}_pack", None, pack)
    return ScheduledOperator(tiling, write_function(name, tiling, main), packing, shape, dtype)


def copying(source: tirx.Var, name: str) -> tirx.PrimFunc:
    """Return the packing function of weights that the kernel reads unchanged."""

    def body() -> None:
        T.arg(source.name, source)
        packed = T.arg(f"{source.name}_packed", T.Buffer(source.shape, str(source.dtype)))
        with root(), T.grid(*source.shape) as indices:
            where = list(indices) if len(source.shape) > 1 else [indices]
            T.buffer_store(packed, source[tuple(where)], where)

    return write_function(f"{name}_pack", None, body)


@contextmanager
def root() -> Iterator[None]:
    """Open the root block of a function. Its reads and writes are declared empty, because TVM's builder would otherwise
    derive them, which takes seconds for a kernel with dynamic sizes."""
    with T.sblock("root"):
        T.reads()
        T.writes()
        yield


def write_function(name: str, tiling: Decision | None, body: Callable[[], None]) -> tirx.PrimFunc:
    """Return a function whose parameters and statements `body` writes, with its decision as an attribute."""
    attributes: dict[str, Any] = {"global_symbol": name, "tirx.noalias": True}
    if tiling is not None:
        attributes[DECISION] = tiling.to_json()
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name(name)
        T.func_attr(attributes)
        body()
    return with_signatures(builder.get())
