"""Weights of a depthwise convolution: a vector of channels per tap, or a scalar if lanes are columns.

packed[vector of input channels][output channel of each][tap][lane]     lanes along channels
packed[output channel][tap]                                             lanes along columns
"""

from __future__ import annotations

from typing import TypeAlias

from tvm import tirx
from tvm.script.ir_builder import tirx as T  # noqa: N812

from ..decide.conv.conv_tiling import ConvTiling
from ..decide.conv.shape import ConvShape
from ..hardware.dot_instructions import DotInstruction
from ..match import ConvProgram
from .named_blocks import named
from .registers import register

Expr: TypeAlias = tirx.Expr
Index: TypeAlias = tirx.Expr | int


class DepthwiseWeights:
    """Order, packing and access of the weights of one plain convolution."""

    def __init__(self, program: ConvProgram, shape: ConvShape, tiling: ConvTiling, engine: DotInstruction) -> None:
        assert tiling.lanes
        self.program, self.shape, self.engine = program, shape, engine
        self.lanes = tiling.lanes if tiling.lanes_along == "channels" else 1
        self.vectors = -(-shape.groups // self.lanes)
        self.taps = shape.d.taps * shape.h.taps * shape.w.taps
        strides = program.kernel.strides
        adjacent = self.lanes == 1 or (shape.co == 1 and strides is not None and strides[0] == 1)
        self.in_place = program.w is not None and adjacent

    @property
    def packed_shape(self) -> tuple[int, ...]:
        return (self.vectors, self.shape.co, self.taps, self.lanes)

    @property
    def size(self) -> int:
        return self.vectors * self.shape.co * self.taps * self.lanes

    def pack(self, packed: tirx.Var, base: int) -> None:
        """Write all weights starting at element `base`; lanes after the last channel are neither written nor read."""
        high, wide = self.shape.h.taps, self.shape.w.taps
        full, tail = divmod(self.shape.groups, self.lanes)

        def vector(number: Index, width: int) -> None:
            with T.serial(0, self.shape.co) as each, T.serial(0, self.taps) as tap, named("pack_w"):
                at = (tirx.floordiv(tap, high * wide), tirx.floormod(tirx.floordiv(tap, wide), high))
                start = base + ((number * self.shape.co + each) * self.taps + tap) * self.lanes
                with T.vectorized(0, width) as lane:
                    value = self._element(number * self.lanes + lane, each, *at, tirx.floormod(tap, wide))
                    T.buffer_store(packed, value, [start + lane])

        if full:
            with T.serial(0, full) as number:
                vector(number, self.lanes)
        if tail:
            vector(full, tail)

    def read(
        self,
        packed: tirx.Var | None,
        base: int,
        channel: Index,
        each: Index,
        taps: tuple[Index, Index, Index],
        width: int,
    ) -> Expr:
        """Return the weights of `width` input channels starting at `channel`, a multiple of the lanes, in the
        accumulator type."""
        if packed is None and width == 1:
            value = self._element(channel, each, *taps)
        elif packed is None:
            loaded = register(self.lanes, self.engine.alone)
            with T.vectorized(0, width) as lane:
                T.buffer_store(loaded, self._element(channel + lane, each, *taps), [lane])
            value = loaded[T.ramp(0, 1, width)]
        else:
            kd, kh, kw = taps
            tap = (kd * self.shape.h.taps + kh) * self.shape.w.taps + kw
            # The index of a vector times its lanes is its first channel.
            at = base + (channel * self.shape.co + each * self.lanes) * self.taps + tap * self.lanes
            value = packed[T.ramp(at, 1, width) if width > 1 else at]
        kind = self.engine.acc if width == 1 else f"{self.engine.acc}x{width}"
        return value if str(value.ty) == kind else tirx.Cast(kind, value)

    def _element(self, channel: Index, each: Index, kd: Index, kh: Index, kw: Index) -> Expr:
        axes = (self.shape.d, self.shape.h, self.shape.w)
        kd, kh, kw = (axis.tap_first + tap * axis.tap_step for axis, tap in zip(axes, (kd, kh, kw), strict=True))
        return self.program.weight_at(channel * self.shape.co + each, kd, kh, kw, 0, dtype=self.engine.alone)
