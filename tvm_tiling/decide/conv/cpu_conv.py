"""Choice of a convolution's algorithm on a CPU: the time of every applicable algorithm is predicted, and the fastest is
taken.

    direct       pixels by output channels in registers, read through the input's geometry (conv/direct.py)
    stride_fold  the same with `stride` columns folded into channels; kernels are padded with zeros
    wfold        a vector holds adjacent columns along W in addition to few channels
    gemm         a pointwise convolution as a matrix multiplication
    depthwise    one group per channel, with adjacent channels in a vector
    winograd     fewer multiplications for more additions, where the rounding error stays within a tolerance
    planes       channels first: a vector holds adjacent columns, and nothing is copied (conv/planes.py)
    grouped      a vector holds the channels of several small groups (conv/grouped.py)

An algorithm that is not applicable gives its reason. `form` forces one of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from ...errors import HardwareError, TilingError, UnsupportedOperator
from ...figures import quantity
from ...hardware.description import Cpu, Hardware
from ...operand_types import holds_sums, is_integer
from ...workload import ConvWorkload, GemmWorkload
from ..fold.cpu_wfold import decide_wfold_cpu
from ..gemm.cpu_gemm import decide_on_cpu
from ..gemm.dot_engine import dot_engine
from ..gemm.one_order import LONGEST
from ..tiling import GemmTiling, Reason
from .conv_cost import ConvConfig, ConvModel
from .conv_reasons import direct_reasons
from .conv_tiling import Candidate, ConvTiling
from .depthwise import decide_depthwise
from .direct import DirectChoice
from .grouped import decide_grouped
from .planes import decide_planes
from .shape import ConvShape, shapes_of
from .winograd import TOLERANCE, WinogradTiling, accepted_error, decide_winograd

FORMS = ("direct", "gemm", "depthwise", "winograd", "stride_fold", "wfold", "planes", "grouped")
# Algorithms that add one product after the other: channel by channel, within tap by tap.
IN_SEQUENCE = frozenset(("direct", "gemm", "stride_fold"))


@dataclass(frozen=True, kw_only=True)
class Source:
    """Memory layout of a convolution's operands, as far as algorithms depend on it. Sizes in elements, None if not
    constant.

    - `channel_run`, `output_run`: number of adjacent channels in memory.
    - `output_columns`: columns are adjacent in the output.
    - `pitch`: distance between positions of the input, if channels are adjacent.
    - `dense`: positions of a row are contiguous.
    - `accumulates`: partial sums may be kept in the output.
    - `matrix`: the operands can be read as those of a matrix multiplication.
    """

    channel_run: int
    output_run: int
    pitch: int | None
    dense: bool
    output_columns: bool = False
    accumulates: bool = True
    matrix: bool = True

    @classmethod
    def of(cls, workload: ConvWorkload) -> Source:
        """Return dense operands in the workload's layout."""
        c = workload
        if c.layout == "NHWC":
            return cls(channel_run=c.ci, output_run=c.co, pitch=c.ci, dense=c.groups == 1)
        block = int(c.layout[4:-1]) if c.layout != "NCHW" else 1
        plain = block == 1
        return cls(channel_run=block, output_run=block, pitch=None, dense=False, output_columns=plain, matrix=plain)


def decide_conv_on_cpu(
    workload: ConvWorkload,
    hardware: Hardware,
    *,
    form: str | None = None,
    packing: str = "run",
    source: Source | None = None,
    winograd: bool = True,
    tolerance: float = TOLERANCE,
    deterministic: bool = False,
) -> ConvTiling:
    """Return the fastest predicted algorithm of `workload` on `hardware.cpu` and its configuration.

    form: forces one of FORMS. packing: "run" (weights are packed at run time) or "ahead" (prepacked). winograd=False
    excludes Winograd convolution, as does a predicted error above `tolerance` relative to the largest output.
    deterministic: only algorithms that add in the same order as the fastest one for one image on one core.

    Raises HardwareError for an unknown algorithm, UnsupportedOperator for one that does not support the workload.
    """
    cpu = hardware.cpu
    if cpu is None:
        raise HardwareError(f"{hardware.name} has no CPU; expected a hardware description with a [cpu] table")
    if form is not None and form not in FORMS:
        raise HardwareError(
            f"algorithm = {form!r} is not an algorithm of convolutions on a CPU; expected {', '.join(FORMS)}"
        )
    order: ConvTiling | None = None
    if deterministic and (workload.n, cpu.cores) != (1, 1):
        order = decide_conv_on_cpu(
            replace(workload, n=1),
            hardware.with_cores(1),
            form=form,
            packing=packing,
            source=source,
            winograd=winograd,
            tolerance=tolerance,
            deterministic=True,
        )
    where = source or Source.of(workload)
    choice = ConvAlgorithms(workload, hardware, cpu, packing, where, winograd, tolerance, deterministic, order)
    if form is not None:
        return replace(choice.tiling(form), candidates=())
    taken: list[ConvTiling] = []
    candidates = []
    for name in FORMS:
        try:
            if order is not None and not choice.sums_alike(name, order.form):
                raise UnsupportedOperator(
                    f"deterministic=True takes algorithms that sum like {order.form!r}, which is the fastest for one "
                    "image on one core"
                )
            tiling = choice.tiling(name)
        except TilingError as error:
            candidates.append(Candidate(name, None, str(error)))
            continue
        taken.append(tiling)
        candidates.append(Candidate(name, tiling.predicted_seconds, tiling.why("form")))
    best = min(taken, key=lambda tiling: tiling.predicted_seconds or 0.0)
    priced = sorted(
        (c for c in candidates if c.predicted_seconds is not None), key=lambda c: c.predicted_seconds or 0.0
    )
    return replace(best, candidates=(*priced, *(c for c in candidates if c.predicted_seconds is None)))


class ConvAlgorithms:
    """The algorithms of one convolution on one CPU.

    deterministic: matrix multiplications add in the order of gemm/one_order.py, and Winograd convolution and W-fold
    have the tile size and the granularity of `order`.
    """

    def __init__(
        self,
        workload: ConvWorkload,
        hardware: Hardware,
        cpu: Cpu,
        packing: str,
        source: Source,
        winograd: bool,
        tolerance: float,
        deterministic: bool = False,
        order: ConvTiling | None = None,
    ) -> None:
        self.deterministic, self.order = deterministic, order
        self.w, self.hardware, self.cpu, self.packing, self.source = workload, hardware, cpu, packing, source
        self.winograd_allowed, self.tolerance = winograd, tolerance
        self.engine = dot_engine(workload, cpu, any_rows=deterministic)
        self.mhz = cpu.mhz

    def sums_alike(self, form: str, other: str) -> bool:
        """Return whether two algorithms add the products of an output in the same order, or add exactly."""
        in_sequence = {form, other} <= IN_SEQUENCE and self.engine.group == 1
        if "gemm" in (form, other) and self.w.ci > LONGEST:
            in_sequence = False  # Winograd sums blocks of channels separately
        return form == other or in_sequence or is_integer(self.engine.acc)

    def tiling(self, form: str) -> ConvTiling:
        """Return the fastest configuration of an algorithm. Raises UnsupportedOperator if the workload does not allow
        the algorithm."""
        forms: dict[str, Callable[[], ConvTiling]] = {
            "direct": self.direct,
            "stride_fold": self.stride_fold,
            "gemm": self.gemm,
            "depthwise": self.depthwise,
            "winograd": self.winograd,
            "wfold": self.wfold,
            "planes": self.planes,
            "grouped": self.grouped,
        }
        return forms[form]()

    # ---- direct and stride-folded -----------------------------------------------------------------------------------

    def direct(self) -> ConvTiling:
        return self._direct("direct")

    def stride_fold(self) -> ConvTiling:
        return self._direct("stride_fold")

    def _direct(self, form: str) -> ConvTiling:
        shares, choice = self.direct_choice(form)
        cycles, config = choice.best()
        return self.direct_tiling(form, choice, config, shares * cycles)

    def direct_choice(self, form: str) -> tuple[float, DirectChoice]:
        """Return the candidates of the algorithm "direct" or "stride_fold", and the factor by which to scale their
        work.

        Residues of a transposed convolution share one tiling: that of the residue with the most work.
        """
        shapes = self._folded() if form == "stride_fold" else shapes_of(self.w)
        largest = max(shapes, key=lambda s: s.macs)
        prepacked, source = self.packing == "ahead", self.source
        half = narrow(self.cpu)
        few = 2 * largest.co <= self.cpu.lanes(self.engine.acc_bytes) and self.engine.form(half) is not None
        cpu = half if few else self.cpu
        model = ConvModel(
            largest,
            cpu,
            self.engine,
            input_run=source.channel_run,
            output_run=source.output_run,
            output_columns=source.output_columns,
            prepacked=prepacked,
            workload=self.w,
        )
        choice = DirectChoice(
            largest,
            cpu,
            self.engine,
            model,
            pitch=source.pitch,
            dense=source.dense,
            whole_sums=not (source.accumulates and holds_sums(self.w.types.out)),
        )
        return sum(shape.macs for shape in shapes) / max(1, largest.macs), choice

    def _folded(self) -> list[ConvShape]:
        w = self.w
        if w.stride[1] == 1 or w.groups > 1 or w.transposed or w.dilation[1] > 1:
            raise UnsupportedOperator(
                f"algorithm = 'stride_fold' requires a stride along W above 1, one group and no dilation, not stride "
                f"{w.stride[1]}, {quantity(w.groups, 'group')} and dilation {w.dilation[1]}"
                f"{', transposed' if w.transposed else ''}"
            )
        return [shape.folded() for shape in shapes_of(w)]

    def direct_tiling(self, form: str, choice: DirectChoice, config: ConvConfig, cycles: float) -> ConvTiling:
        """Return the decision of a candidate, with its reasons."""
        shape, model = choice.shape, choice.model
        points = shape.h.points * shape.w.points
        lanes = self.cpu.lanes(self.engine.acc_bytes)
        per_cycle = lanes * self.cpu.fma_units * self.engine.speed * self.cpu.cores
        return ConvTiling(
            form=form,
            utilisation=min(1.0, self.w.macs / per_cycle / cycles),
            stride_fold=shape.fold,
            predicted_seconds=self.seconds(cycles),
            tile_rows=config.rows,
            tile_columns=config.columns,
            vectors=config.vectors,
            lanes=model.lanes,
            keep_rows=config.band,
            block_taps=config.block_taps,
            block_run=config.block_run,
            columns=config.block_channels,
            inner_order="mn" if config.tiles_outside else "nm",
            merge_taps=config.merged,
            pitch=config.pitch,
            copy_input=config.copies,
            threads_rows=config.threads[0],
            threads_columns=config.threads[1],
            pack_w=self.packing,
            prefetch_w=(self.packing == "ahead" and points >= self.cpu.kernel_costs.prefetching_rows) or None,
            reasons=direct_reasons(form, shape, model, config, adjacent=self.source.pitch is not None),
        )

    # ---- the others -------------------------------------------------------------------------------------------------

    def gemm(self) -> ConvTiling:
        w = self.w
        product = as_product(w)
        if product is None or not self.source.matrix:
            raise UnsupportedOperator(
                "algorithm = 'gemm' requires a 1x1 kernel, stride 1, no padding, one group and operands readable as "
                "matrices"
            )
        # With channels last, the kernels are the right operand and may be prepacked; otherwise they are the left one.
        last = w.layout == "NHWC"
        config = decide_on_cpu(
            product,
            self.hardware,
            packing=self.packing if last else "run",
            accumulates_in_output=self.source.accumulates,
            deterministic=self.deterministic,
        )
        return self.product_tiling(product, config)

    def product_tiling(self, product: GemmWorkload, config: GemmTiling) -> ConvTiling:
        """Return the decision for a convolution computed as a matrix multiplication with this tiling."""
        return ConvTiling(
            form="gemm",
            utilisation=config.utilisation,
            predicted_seconds=config.predicted_seconds,
            product=config,
            pack_w=self.packing,
            reasons=(Reason("form", "gemm", f"a matrix multiplication of {product.m} x {product.k} x {product.n}"),),
        )

    def depthwise(self) -> ConvTiling:
        return decide_depthwise(
            self.w,
            self.cpu,
            input_run=self.source.channel_run,
            output_run=self.source.output_run,
            prepacked=self.packing == "ahead",
        )

    def wfold(self) -> ConvTiling:
        return decide_wfold_cpu(
            self.w,
            self.cpu,
            input_run=self.source.channel_run,
            output_run=self.source.output_run,
            prepacked=self.packing == "ahead",
            ws=None if self.order is None else self.order.ws,
        )

    def planes(self) -> ConvTiling:
        return decide_planes(self.w, self.cpu, input_run=self.source.channel_run, prepacked=self.packing == "ahead")

    def grouped(self) -> ConvTiling:
        return decide_grouped(
            self.w,
            self.cpu,
            input_run=self.source.channel_run,
            output_run=self.source.output_run,
            prepacked=self.packing == "ahead",
        )

    def winograd(self) -> ConvTiling:
        if not self.winograd_allowed:
            raise UnsupportedOperator("algorithm = 'winograd' is disabled by winograd=False")
        source, w = self.source, self.w
        try:
            config = decide_winograd(
                w,
                self.cpu,
                m=None if self.order is None or self.order.winograd is None else self.order.winograd.m,
                prepacked=self.packing == "ahead",
                tolerance=self.tolerance,
                adjacent_inputs=source.channel_run > 1 or w.ci == 1,
                adjacent_outputs=source.output_run > 1 or w.co == 1,
            )
        except TilingError as error:
            raise UnsupportedOperator(str(error)) from None
        return self.winograd_tiling(config)

    def winograd_tiling(self, config: WinogradTiling) -> ConvTiling:
        """Return the decision of a configuration of Winograd convolution."""
        w = self.w
        per_cycle = self.cpu.lanes(4) * self.cpu.fma_units * self.cpu.cores
        why = (
            f"F({config.m}x{config.m}, {w.kh}x{w.kw}): {config.points**2} multiplications instead of "
            f"{config.m**2 * w.kh * w.kw}; predicted error {config.predicted_error:.1e} of the largest output, at most "
            f"{accepted_error(w, self.tolerance):.1e}"
        )
        return ConvTiling(
            form="winograd",
            utilisation=min(1.0, w.macs / per_cycle / config.predicted_cycles),
            predicted_seconds=self.seconds(config.predicted_cycles),
            winograd=config,
            pack_w=self.packing,
            reasons=(Reason("form", "winograd", why),),
        )

    def seconds(self, cycles: float) -> float:
        return cycles / (self.mhz * 1e6)


def narrow(cpu: Cpu) -> Cpu:
    """Return the CPU with vectors of half the width, for few output channels. A CPU with a single 512-bit unit issues
    two halves per cycle."""
    if cpu.vector_bits == 128:
        return cpu
    units = 2 if cpu.vector_bits == 512 and cpu.fma_units == 1 else cpu.fma_units
    return replace(cpu, vector_bits=cpu.vector_bits // 2, fma_units=units)


def as_product(workload: ConvWorkload) -> GemmWorkload | None:
    """Return the matrix multiplication equivalent to a pointwise convolution, pixels by output channels; None for
    others."""
    w = workload
    one_tap = w.kd == w.kh == w.kw == 1 and w.stride == (1, 1) and w.stride_d == 1 and w.groups == 1
    if not one_tap or any((*w.padding, *w.padding_d)) or w.transposed:
        return None
    pixels = w.d * w.h * w.w
    if w.layout == "NHWC":
        return GemmWorkload(m=w.n * pixels, k=w.ci, n=w.co, **w.type_fields())
    return GemmWorkload(batch=w.n, m=w.co, k=w.ci, n=pixels, **w.type_fields(exchanged=True))
