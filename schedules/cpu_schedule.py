"""Which nest writes an operator on a CPU: decide, or take the configuration that is known, and write it as TIR."""

from __future__ import annotations

from dataclasses import replace

from tvm import tirx
from tvm.ir import TensorLoad

from ..decide.configs.config import config_of
from ..decide.configs.open_configs import open_tiling_for
from ..decide.conv.conv_tiling import ConvTiling
from ..decide.conv.cpu_conv import Source, as_product
from ..decide.conv.open_winograd import decide_open_winograd
from ..decide.gemm.dot_engine import dot_engine
from ..decide.gemm.open_rows import decide_open_columns, decide_open_rows, open_engine
from ..decide.known import tiling_for
from ..decide.options import OneConfig, Options
from ..decide.surroundings import Surroundings
from ..decide.tiling import GemmTiling
from ..errors import HardwareError, UnsupportedOperator
from ..hardware.description import Cpu, Hardware
from ..hardware.dot_instructions import DotInstruction
from ..lowering.joined_axes import with_joined_axes
from ..lowering.named_blocks import without_blocks
from ..lowering.prim_func import DECISION, ScheduledOperator, copying, write_packed, write_plain
from ..lowering.samples import is_open, ranged
from ..match import ConvProgram, GemmProgram, epilogue_of, match, match_gemm
from ..match.function import refuse
from ..match.open_conv import OpenConvProgram
from ..sizes import Range
from .conv import conv_nest
from .gemm import GemmEmitter
from .gemv import StreamEmitter
from .open_columns import OpenColumnsEmitter, is_of_open_columns
from .open_gemm import OpenGemmEmitter, summed_run
from .open_winograd import OpenWinogradEmitter

# Sizes that a convolution of open images is decided for, beside the sample.
LARGER = (1.0, 1.5, 2.0, 3.0)

# ---- products --------------------------------------------------------------------------------------------------------


def schedule_product(program: GemmProgram, hardware: Hardware, cpu: Cpu, options: Options) -> ScheduledOperator:
    prepacked, name, second = options.prepacked, program.name, program.b.buffer
    if prepacked:
        second = _packable(program, second, "the second operand")
        if program.workload.n == 1 and not second.strides and options.config is None and not program.is_open:
            # One column: the other operand is the large one, and a vector needs no layout.
            return _packed_as_it_is(match_gemm(program.func, name), second, hardware, cpu, options)
    around = around_product(program, prepacked)
    if program.is_open:
        return schedule_open_product(program, hardware, cpu, options, around)
    tiling = tiling_for(program.workload, hardware, options, around, epilogue_of(program))
    assert isinstance(tiling, GemmTiling)
    engine = dot_engine(program.workload, cpu, form=tiling.form, prepacked=tiling.pack_b == "ahead")
    return write_product(program, tiling, engine)


def _packable(program: GemmProgram | ConvProgram, weights: tirx.Var | None, called: str) -> tirx.Var:
    """The operand that is to be prepacked, if it can be."""
    if weights is None:
        raise UnsupportedOperator(f"{program.name}: {called} is computed, only a plain one can be prepacked")
    if program.reads(weights) > 1:
        raise UnsupportedOperator(f"{program.name}: {called} is also read elsewhere, so it cannot be prepacked")
    return weights


def _packed_as_it_is(
    program: GemmProgram, weights: tirx.Var, hardware: Hardware, cpu: Cpu, options: Options
) -> ScheduledOperator:
    """A product whose weights the kernel reads as they are: packing copies them."""
    plain = schedule_product(program, hardware, cpu, replace(options, prepacked=False))
    shape = tuple(int(extent) for extent in weights.shape)
    pack = copying(weights, program.name)
    return replace(plain, pack=pack, packed_shape=shape, packed_dtype=str(weights.dtype))


def write_product(program: GemmProgram, tiling: GemmTiling, engine: DotInstruction) -> ScheduledOperator:
    """The product as TIR, cut as `tiling` says."""
    if tiling.form == "stream":
        return write_plain(program, tiling, StreamEmitter(program, tiling, engine).emit, engine)
    emitter = GemmEmitter(program, tiling, engine)
    if tiling.pack_b != "ahead":
        return write_plain(program, tiling, lambda: emitter.emit(None), engine)
    assert program.b.buffer is not None
    return write_packed(program, tiling, program.b.buffer, emitter, engine)


def schedule_open_product(
    program: GemmProgram, hardware: Hardware, cpu: Cpu, options: Options, around: Surroundings
) -> ScheduledOperator:
    """A product of which an extent is open, decided for the sample, or as it is known. Its loops stand in no blocks,
    whose signatures are ranges of numbers."""
    emitter: OpenGemmEmitter
    if is_of_open_columns(program):
        tiling = decide_open_columns(program.workload, hardware, options, around)
        engine = dot_engine(program.workload, cpu)
        emitter = OpenColumnsEmitter(program, tiling, engine)
    else:
        run = 0 if isinstance(program.a.expr, TensorLoad) else summed_run(program)
        rows = rows_of(program)
        if rows is None:
            tiling = decide_open_rows(program.workload, hardware, options, around, run)
        else:
            tiling = open_tiling_for(program.workload, hardware, options, around, rows, epilogue_of(program))
        engine = open_engine(program.workload, cpu, prepacked=tiling.pack_b == "ahead")
        emitter = OpenGemmEmitter(program, tiling, engine)
    with without_blocks():
        if tiling.pack_b != "ahead":
            scheduled = write_plain(program, tiling, lambda: emitter.emit(None), engine)
        else:
            assert program.b.buffer is not None
            scheduled = write_packed(program, tiling, program.b.buffer, emitter, engine)
    return replace(scheduled, main=with_joined_axes(scheduled.main))


def rows_of(program: GemmProgram | ConvProgram) -> Range | None:
    """From where to where the rows of a product are that a run brings, where a known configuration may serve it: as
    it was measured, with rows that lie in memory element by element; None for any other."""
    if not isinstance(program, GemmProgram) or not program.is_open or program.b.buffer is None:
        return None
    batch, m, n, k = program.extents
    if not is_open(m) or any(map(is_open, (batch, n, k))) or not _in_rows(program):
        return None
    return ranged(m)


def _in_rows(program: GemmProgram) -> bool:
    """Whether the summed elements of a row of A lie one behind the other."""
    a, axes = program.a.expr, program.a.axes[2]
    if not isinstance(a, TensorLoad) or a.source.strides:
        return False
    places, extents = a.indices[-len(axes) :], a.source.shape[-len(axes) :]
    return all(
        isinstance(place, tirx.Var) and place.same_as(axis) and not is_open(extent) and int(extent) == size
        for place, axis, extent, size in zip(places, axes, extents, program.a.extents[2], strict=True)
    )


# ---- convolutions ----------------------------------------------------------------------------------------------------


def schedule_conv(program: ConvProgram, hardware: Hardware, cpu: Cpu, options: Options) -> ScheduledOperator:
    weights = _packable(program, program.w, "the kernel") if options.prepacked else None
    if options.microkernel is not None:
        raise HardwareError(f"microkernel = {options.microkernel!r} is a matrix product's, not a convolution's")
    # Matched again as a product only where the convolution is one.
    product = _product_of(program, options) if as_product(program.workload) is not None else None
    around = around_conv(program, product is not None, options)
    tiling = tiling_for(program.workload, hardware, options, around, epilogue_of(program))
    assert isinstance(tiling, ConvTiling)
    if tiling.form == "gemm":
        assert product is not None and tiling.product is not None
        plain = replace(options, form=None)
        if options.decision is not None:
            plain = replace(plain, decision=tiling.product)
        elif tiling.why("config"):
            inner = config_of(
                tiling.product, product.workload, hardware, Surroundings(prepacked=tiling.pack_w == "ahead")
            )
            plain = replace(plain, configs=OneConfig(inner)) if options.config is None else replace(plain, config=inner)
        # With channels last the kernels are the right operand and may be packed; else they are the left, read in place.
        if weights is None or product.b.buffer is None or not product.b.buffer.same_as(weights):
            scheduled = (
                schedule_product(product, hardware, cpu, plain)
                if weights is None
                else _packed_as_it_is(product, weights, hardware, cpu, plain)
            )
        else:
            scheduled = schedule_product(product, hardware, cpu, plain)
        assert isinstance(scheduled.tiling, GemmTiling)
        decided = replace(tiling, product=scheduled.tiling)
        return replace(scheduled, tiling=decided, main=scheduled.main.with_attr(DECISION, decided.to_json()))
    engine = dot_engine(program.workload, cpu, form=tiling.form)
    emitter = conv_nest(program, tiling, engine, cpu)
    if weights is None:
        return write_plain(program, tiling, lambda: emitter.emit(None), engine)
    return write_packed(program, tiling, weights, emitter, engine)


def schedule_open_conv(program: OpenConvProgram, hardware: Hardware, cpu: Cpu, options: Options) -> ScheduledOperator:
    """A convolution of open images by Winograd's form; UnsupportedOperator where that does not serve it, or takes
    longer than others. Its loops stand in no blocks, as those of products of open rows."""
    weights = _packable(program, program.w, "the kernel") if options.prepacked else None
    if options.form not in (None, "winograd") or options.config is not None or options.microkernel is not None:
        raise refuse(program.name, "its images are open; expected no other form than 'winograd', and no configuration")
    source = Source.of(program.workload)
    tiling = decide_open_winograd(
        program.workloads(LARGER),
        hardware,
        packing="run" if weights is None else "ahead",
        source=replace(source, accumulates=program.out_dtype == program.workload.acc_dtype, matrix=False),
        winograd=options.winograd,
        tolerance=options.tolerance,
    )
    engine = dot_engine(program.workload, cpu, form="winograd")
    emitter = OpenWinogradEmitter(program, tiling, cpu)
    with without_blocks():
        if weights is None:
            return write_plain(program, tiling, lambda: emitter.emit(None), engine)
        return write_packed(program, tiling, weights, emitter, engine)


def _product_of(program: ConvProgram, options: Options) -> GemmProgram | None:
    """The matrix product that a convolution is, operands read as matrices; None where it is none."""
    # A configuration that is given tells the operands of the product apart.
    found = match(program.func, program.name, may_swap=options.config is None)
    return found if isinstance(found, GemmProgram) else None


def around_product(program: GemmProgram, prepacked: bool) -> Surroundings:
    """What a product's place settles."""
    return Surroundings(
        prepacked=prepacked,
        plain_a=program.a.buffer is not None or (program.is_open and isinstance(program.a.expr, TensorLoad)),
        plain_b=program.b.buffer is not None,
        accumulates=program.out_dtype == program.workload.acc_dtype,
        exchanged=program.swapped,
    )


def around_conv(program: ConvProgram, matrix: bool, options: Options) -> Surroundings:
    """What a convolution's place settles; `matrix`: its operands can be read as those of a product."""
    return Surroundings(
        prepacked=options.prepacked,
        source=_source(program, matrix),
        winograd=options.winograd,
        tolerance=options.tolerance,
    )


def _source(program: ConvProgram, matrix: bool) -> Source:
    workload, strides = program.workload, program.x_strides
    adjacent = strides is not None and (strides[4] == 1 or workload.ci == 1)
    return Source(
        channel_run=program.channel_run,
        output_run=program.out_run,
        # A single column has no distance to the next one, which would be behind its channels.
        pitch=(strides[3] or workload.ci) if strides is not None and adjacent else None,
        dense=strides is not None and adjacent and strides[3] == workload.ci and workload.groups == 1,
        accumulates=program.out_dtype == workload.acc_dtype,
        matrix=matrix,
    )
