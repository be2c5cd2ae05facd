"""Convolutions as one kernel emitter: a transposed convolution is a sequence of direct ones, one per residue."""

from __future__ import annotations

from tvm import tirx
from tvm.script.ir_builder import tirx as T  # noqa: N812

from ..decide.conv.conv_tiling import ConvTiling
from ..decide.conv.shape import shapes_of
from ..hardware.description import Cpu
from ..hardware.dot_instructions import DotInstruction
from ..lowering.prim_func import PackedEmitter
from ..match import ConvProgram
from .conv_direct import DirectEmitter
from .conv_grouped import GroupedEmitter
from .conv_planes import PlanesEmitter
from .conv_wfold import WFoldEmitter
from .conv_winograd import WinogradEmitter
from .depthwise import DepthwiseEmitter


def conv_emitter(program: ConvProgram, tiling: ConvTiling, engine: DotInstruction, cpu: Cpu) -> PackedEmitter:
    """Return the kernel emitter of the decided algorithm."""
    if tiling.form == "depthwise":
        return DepthwiseEmitter(program, tiling, engine)
    if tiling.form == "winograd":
        assert tiling.winograd is not None
        return WinogradEmitter(program, tiling.winograd, cpu)
    if tiling.form == "wfold":
        return WFoldEmitter(program, tiling, engine)
    if tiling.form == "planes":
        return PlanesEmitter(program, tiling, engine)
    if tiling.form == "grouped":
        return GroupedEmitter(program, tiling, engine)
    return ConvEmitter(program, tiling, engine)


class ConvEmitter:
    """Emits a direct convolution of any kind, with or without stride-fold."""

    def __init__(self, program: ConvProgram, tiling: ConvTiling, engine: DotInstruction) -> None:
        self.engine = engine
        shapes = shapes_of(program.workload)
        if tiling.stride_fold > 1:
            shapes = [shape.folded() for shape in shapes]
        self.emitters = [DirectEmitter(program, shape, tiling, engine) for shape in shapes]
        self.bases = [sum(emitter.panels.size for emitter in self.emitters[:i]) for i in range(len(self.emitters))]

    @property
    def packed_shape(self) -> tuple[int, ...]:
        if len(self.emitters) == 1:
            return self.emitters[0].panels.packed_shape
        return (sum(emitter.panels.size for emitter in self.emitters),)

    @property
    def packed_dtype(self) -> str:
        return self.engine.operand

    def emit(self, packed: tirx.Var | None) -> None:
        """Emit the whole convolution; `packed` holds prepacked weights, None packs them first."""
        prepacked = packed is not None
        if packed is None:
            packed = T.alloc_buffer((sum(emitter.panels.size for emitter in self.emitters),), self.packed_dtype)
            self.pack_whole(packed)
        for emitter, base in zip(self.emitters, self.bases, strict=True):
            emitter.emit(packed, base, prepacked=prepacked)

    def pack_whole(self, packed: tirx.Var) -> None:
        """Pack all weights."""
        for emitter, base in zip(self.emitters, self.bases, strict=True):
            if emitter.panels.taps:
                emitter.panels.pack(packed, base)
