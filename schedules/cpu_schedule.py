"""Schedules operators on a CPU: decides, or takes a known configuration, and emits the kernel as TIR."""

from __future__ import annotations

from dataclasses import replace

from tvm import tirx
from tvm.ir import TensorLoad

from ..decide.configs.config import config_of
from ..decide.configs.open_configs import open_tiling_again, open_tiling_for
from ..decide.conv.conv_tiling import ConvTiling
from ..decide.conv.cpu_conv import Source, as_product
from ..decide.conv.open_grouped import decide_open_grouped
from ..decide.conv.open_winograd import decide_open_winograd
from ..decide.gemm.dot_engine import dot_engine
from ..decide.gemm.open_rows import decide_open_columns, decide_open_rows, open_engine
from ..decide.known import tiling_for
from ..decide.options import OneConfig, Options
from ..decide.recorded import required_again
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
from .conv import conv_emitter
from .gemm import GemmEmitter
from .gemv import StreamEmitter
from .open_columns import OpenColumnsEmitter, is_of_open_columns
from .open_gemm import OpenGemmEmitter, summed_run
from .open_grouped import OpenGroupedEmitter
from .open_winograd import OpenWinogradEmitter

# Image sizes, relative to the sample, for which a convolution of dynamic images is decided.
LARGER = (1.0, 1.5, 2.0, 3.0)

# ---- matrix multiplications ------------------------------------------------------------------------------------------


def schedule_product(program: GemmProgram, hardware: Hardware, cpu: Cpu, options: Options) -> ScheduledOperator:
    prepacked, name, second = options.prepacked, program.name, program.b.buffer
    if prepacked:
        second = _packable(program, second, "the second operand")
        vector = program.workload.n == 1 and not second.strides and options.config is None and not program.is_open
        if vector and not options.deterministic:
            # One column: the other operand is the large one, and a vector needs no special layout.
            return _copied_when_packed(match_gemm(program.func, name), second, hardware, cpu, options)
    around = around_product(program, prepacked)
    if program.is_open:
        return schedule_open_product(program, hardware, cpu, options, around)
    tiling = tiling_for(program.workload, hardware, options, around, epilogue_of(program))
    assert isinstance(tiling, GemmTiling)
    engine = dot_engine(
        program.workload,
        cpu,
        form=tiling.form,
        prepacked=tiling.pack_b == "ahead",
        any_rows=options.deterministic,
    )
    return write_product(program, tiling, engine)


def _packable(program: GemmProgram | ConvProgram, weights: tirx.Var | None, called: str) -> tirx.Var:
    """Return the operand that is to be prepacked. Raises UnsupportedOperator if it cannot be."""
    if weights is None:
        raise UnsupportedOperator(
            f"{program.name}: {called} is computed and cannot be prepacked; expected one read from memory"
        )
    if program.reads(weights) > 1:
        raise UnsupportedOperator(
            f"{program.name}: {called} is also read elsewhere and cannot be prepacked; expected a single reader"
        )
    return weights


def _copied_when_packed(
    program: GemmProgram, weights: tirx.Var, hardware: Hardware, cpu: Cpu, options: Options
) -> ScheduledOperator:
    """Schedule a matrix multiplication whose kernel reads the weights unchanged, so that packing only copies them."""
    plain = schedule_product(program, hardware, cpu, replace(options, prepacked=False))
    shape = tuple(int(extent) for extent in weights.shape)
    pack = copying(weights, program.name)
    return replace(plain, pack=pack, packed_shape=shape, packed_dtype=str(weights.dtype))


def write_product(program: GemmProgram, tiling: GemmTiling, engine: DotInstruction) -> ScheduledOperator:
    """Return the matrix multiplication, tiled by `tiling`, as TIR."""
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
    """Schedule a matrix multiplication with a dynamic extent, decided for the sample or by a known configuration. Its
    loops are not in blocks, since the signatures of blocks are constant ranges."""
    emitter: OpenGemmEmitter
    if is_of_open_columns(program):
        tiling = decide_open_columns(program.workload, hardware, options, around)
        if options.decision is not None:
            tiling = required_again(options.decision, tiling, program.workload, hardware)
        engine = dot_engine(program.workload, cpu, any_rows=options.deterministic)
        emitter = OpenColumnsEmitter(program, tiling, engine)
    else:
        run = 0 if isinstance(program.a.expr, TensorLoad) else summed_run(program)
        rows = rows_of(program)
        if rows is None:
            tiling = decide_open_rows(program.workload, hardware, options, around, run)
        else:
            tiling = open_tiling_for(program.workload, hardware, options, around, rows, epilogue_of(program))
        if options.decision is not None:
            again = tiling if rows is None else open_tiling_again(options.decision, program.workload, hardware, around)
            tiling = required_again(options.decision, again or tiling, program.workload, hardware)
        ahead = tiling.pack_b == "ahead"
        engine = open_engine(program.workload, cpu, prepacked=ahead, any_rows=options.deterministic)
        emitter = OpenGemmEmitter(program, tiling, engine)
    with without_blocks():
        if tiling.pack_b != "ahead":
            scheduled = write_plain(program, tiling, lambda: emitter.emit(None), engine)
        else:
            assert program.b.buffer is not None
            scheduled = write_packed(program, tiling, program.b.buffer, emitter, engine)
    return replace(scheduled, main=with_joined_axes(scheduled.main))


def rows_of(program: GemmProgram | ConvProgram) -> Range | None:
    """Return the range of a matrix multiplication's dynamic rows if a known configuration may apply, which requires
    rows contiguous in memory as in the measurement; None otherwise."""
    if not isinstance(program, GemmProgram) or not program.is_open or program.b.buffer is None:
        return None
    batch, m, n, k = program.extents
    if not is_open(m) or any(map(is_open, (batch, n, k))) or not _in_rows(program):
        return None
    return ranged(m)


def _in_rows(program: GemmProgram) -> bool:
    """Return whether the elements of K in a row of A are contiguous."""
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
        raise HardwareError(f"microkernel = {options.microkernel!r} does not apply to convolutions; expected None")
    # Match again as a matrix multiplication only if the convolution is equivalent to one.
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
        # With channels last, the kernels are the right operand and may be packed; otherwise they are the left one, read
        # in place.
        if weights is None or product.b.buffer is None or not product.b.buffer.same_as(weights):
            scheduled = (
                schedule_product(product, hardware, cpu, plain)
                if weights is None
                else _copied_when_packed(product, weights, hardware, cpu, plain)
            )
        else:
            scheduled = schedule_product(product, hardware, cpu, plain)
        assert isinstance(scheduled.tiling, GemmTiling)
        decided = replace(tiling, product=scheduled.tiling)
        return replace(scheduled, tiling=decided, main=scheduled.main.with_attr(DECISION, decided.to_json()))
    engine = dot_engine(program.workload, cpu, form=tiling.form, any_rows=options.deterministic)
    emitter = conv_emitter(program, tiling, engine, cpu)
    if weights is None:
        return write_plain(program, tiling, lambda: emitter.emit(None), engine)
    return write_packed(program, tiling, weights, emitter, engine)


def schedule_open_conv(program: OpenConvProgram, hardware: Hardware, cpu: Cpu, options: Options) -> ScheduledOperator:
    """Schedule a convolution of dynamic images by Winograd's algorithm, or one in groups by vectors of channels of
    several groups. Raises UnsupportedOperator if the algorithm does not apply or is slower than others. Its loops are
    not in blocks, as for matrix multiplications with dynamic rows."""
    weights = _packable(program, program.w, "the kernel") if options.prepacked else None
    form = "grouped" if program.workload.groups > 1 else "winograd"
    if options.form not in (None, form) or options.config is not None or options.microkernel is not None:
        raise refuse(
            program.name, f"its image sizes are dynamic; expected algorithm {form!r} or None, and no configuration"
        )
    packing = "run" if weights is None else "ahead"
    if form == "grouped":
        tiling = decide_open_grouped(program.workload, hardware, packing=packing)
    else:
        source = Source.of(program.workload)
        tiling = decide_open_winograd(
            program.workloads(LARGER),
            hardware,
            packing=packing,
            source=replace(source, accumulates=program.out_dtype == program.workload.acc_dtype, matrix=False),
            winograd=options.winograd,
            tolerance=options.tolerance,
            deterministic=options.deterministic,
        )
    if options.decision is not None:
        tiling = required_again(options.decision, tiling, program.workload, hardware)
    emitter: OpenGroupedEmitter | OpenWinogradEmitter
    emitter = OpenGroupedEmitter(program, tiling) if form == "grouped" else OpenWinogradEmitter(program, tiling, cpu)
    engine = dot_engine(program.workload, cpu, form=form)
    with without_blocks():
        if weights is None:
            return write_plain(program, tiling, lambda: emitter.emit(None), engine)
        return write_packed(program, tiling, weights, emitter, engine)


def _product_of(program: ConvProgram, options: Options) -> GemmProgram | None:
    """Return the equivalent matrix multiplication of a convolution, with operands read as matrices; None if there is
    none."""
    # A given configuration distinguishes the operands, so they must not be exchanged.
    found = match(program.func, program.name, may_swap=options.config is None)
    return found if isinstance(found, GemmProgram) else None


def around_product(program: GemmProgram, prepacked: bool) -> Surroundings:
    """Return the context of a matrix multiplication."""
    return Surroundings(
        prepacked=prepacked,
        plain_a=program.a.buffer is not None or (program.is_open and isinstance(program.a.expr, TensorLoad)),
        plain_b=program.b.buffer is not None,
        accumulates=program.out_dtype == program.workload.acc_dtype,
        exchanged=program.swapped,
    )


def around_conv(program: ConvProgram, matrix: bool, options: Options) -> Surroundings:
    """Return the context of a convolution; `matrix`: its operands can be read as those of a matrix multiplication."""
    return Surroundings(
        prepacked=options.prepacked,
        source=_source(program, matrix),
        winograd=options.winograd,
        tolerance=options.tolerance,
    )


def _source(program: ConvProgram, matrix: bool) -> Source:
    workload, strides, out = program.workload, program.x_strides, program.out_strides
    adjacent = strides is not None and (strides[4] == 1 or workload.ci == 1)
    return Source(
        channel_run=program.channel_run,
        output_run=program.out_run,
        # A single column has no distance to the next one; the next position would follow its channels.
        pitch=(strides[3] or workload.ci) if strides is not None and adjacent else None,
        dense=strides is not None and adjacent and strides[3] == workload.ci and workload.groups == 1,
        output_columns=out is not None and out[3] == 1 != out[4] and not workload.transposed,
        accumulates=program.out_dtype == workload.acc_dtype,
        matrix=matrix,
    )
