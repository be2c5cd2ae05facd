"""Every convolution as one nest: a transposed one is a direct one for each residue, in turn."""

from __future__ import annotations

from tvm import tirx
from tvm.script.ir_builder import tirx as T  # noqa: N812

from ..decide.conv.shape import shapes_of
from ..decide.conv.conv_tiling import ConvTiling
from ..hardware.description import Cpu
from ..hardware.dot_instructions import DotInstruction
from ..lowering.prim_func import PackedNest
from ..match import ConvProgram
from .conv_direct import DirectNest
from .conv_wfold import WFoldNest
from .conv_winograd import WinogradNest
from .depthwise import DepthwiseNest


def conv_nest(program: ConvProgram, tiling: ConvTiling, engine: DotInstruction, cpu: Cpu) -> PackedNest:
    """The nest of the form that was decided on."""
    if tiling.form == "depthwise":
        return DepthwiseNest(program, tiling, engine)
    if tiling.form == "winograd":
        assert tiling.winograd is not None
        return WinogradNest(program, tiling.winograd, cpu)
    if tiling.form == "wfold":
        return WFoldNest(program, tiling, engine)
    return ConvNest(program, tiling, engine)


class ConvNest:
    """The direct form of a convolution, or its stride-folded one, whatever its kind."""

    def __init__(self, program: ConvProgram, tiling: ConvTiling, engine: DotInstruction) -> None:
        self.engine = engine
        shapes = shapes_of(program.workload)
        if tiling.stride_fold > 1:
            shapes = [shape.folded() for shape in shapes]
        self.nests = [DirectNest(program, shape, tiling, engine) for shape in shapes]
        self.bases = [sum(nest.panels.size for nest in self.nests[:i]) for i in range(len(self.nests))]

    @property
    def packed_shape(self) -> tuple[int, ...]:
        if len(self.nests) == 1:
            return self.nests[0].panels.packed_shape
        return (sum(nest.panels.size for nest in self.nests),)

    def emit(self, packed: tirx.Var | None) -> None:
        """The whole convolution; `packed` holds the weights packed ahead, None has them packed first."""
        ahead = packed is not None
        if packed is None:
            packed = T.alloc_buffer((sum(nest.panels.size for nest in self.nests),), self.engine.operand)
            self.pack_whole(packed)
        for nest, base in zip(self.nests, self.bases, strict=True):
            nest.emit(packed, base, ahead=ahead)

    def pack_whole(self, packed: tirx.Var) -> None:
        """Pack all weights."""
        for nest, base in zip(self.nests, self.bases, strict=True):
            if nest.panels.taps:
                nest.panels.pack(packed, base)
