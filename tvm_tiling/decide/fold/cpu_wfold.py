"""W-fold on a CPU: how many adjacent columns a vector holds, and the size of its register tile.

The time of every admissible granularity and of the few tiles that the registers allow is predicted, and the fastest is
taken. The microkernel's step is bound by multiply-adds, by their latency, or by loads, where those of the input are
unaligned. Summing the lanes of each point needs shuffles after the last tap. Full vectors come at the cost of
multiply-adds for padded channels, for columns outside the kernel and for points past the end of the output.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ...figures import quantity, seconds
from ...hardware.description import Cpu
from ...hardware.dot_instructions import DotInstruction
from ...workload import ConvWorkload
from ..conv.conv_cost import ConvModel
from ..conv.conv_tiling import ConvTiling
from ..conv.shape import shapes_of
from ..gemm.dot_engine import dot_engine
from ..gemm.gemm_cost import overlapped
from ..gemm.traffic import ceil_div
from ..tiling import Reason
from .folded_rows import FoldedRows

# Most output channels of a register tile: more would leave a single row of points.
MOST_CHANNELS = 16


@dataclass(frozen=True)
class WFoldConfig:
    """A candidate."""

    rows: FoldedRows
    vectors: int  # rows of ws points in the register tile
    channels: int  # output channels in the register tile
    threads: tuple[int, int]
    tiles_outside: bool
    keep: int


def decide_wfold_cpu(
    workload: ConvWorkload, cpu: Cpu, *, input_run: int, output_run: int, prepacked: bool, ws: int | None = None
) -> ConvTiling:
    """Return the fastest predicted W-fold tiling of `workload` on `cpu`.

    input_run, output_run: number of adjacent channels; prepacked: whether the weights are prepacked; ws: forces the
    points of a vector. In the result, `pci` is the bytes of a packed block, `ws` the points of a vector, `columns` the
    output channels of a register tile and `tile_columns` its points. Raises UnsupportedOperator if no granularity is
    admissible.
    """
    model = WFoldModel(workload, cpu, input_run=input_run, output_run=output_run, prepacked=prepacked)
    priced = sorted(
        (
            (model.cycles(config), i, config)
            for i, config in enumerate(model.configs())
            if ws is None or config.rows.ws == ws
        ),
        key=lambda p: p[:2],
    )
    cycles, _, best = priced[0]
    others: dict[int, float] = {}
    for other, _, config in priced:
        others.setdefault(config.rows.ws, other / (cpu.mhz * 1e6))
    compared = ", ".join(f"{ws}: {seconds(time)}" for ws, time in sorted(others.items()))
    return model.tiling(best, cycles, f"least predicted time; by columns per row: {compared}")


class WFoldModel:
    """Predicted cycles of any W-fold tiling of one convolution."""

    def __init__(self, workload: ConvWorkload, cpu: Cpu, *, input_run: int, output_run: int, prepacked: bool) -> None:
        self.w, self.cpu, self.prepacked, self.output_run = workload, cpu, prepacked, output_run
        self.engine: DotInstruction = dot_engine(workload, cpu, form="wfold")
        self.lanes = cpu.lanes(self.engine.acc_bytes)
        self.admissible = self._admissible()
        self.plain = ConvModel(
            shapes_of(workload)[0],
            cpu,
            self.engine,
            input_run=input_run,
            output_run=output_run,
            prepacked=prepacked,
            workload=workload,
        )
        self.adjacent = input_run >= workload.ci
        self.core = self.plain.core
        self.costs = cpu.kernel_costs
        self.fma = self.core.fma

    def _admissible(self) -> list[FoldedRows]:
        """Return the rows with one column and with every power of two up to the lanes and the columns. Raises
        UnsupportedOperator for a convolution without admissible rows."""
        single = FoldedRows.of(self.w, self.engine.group, self.lanes, 1)
        several = (1 << bit for bit in range(1, self.lanes.bit_length()))
        return [
            single,
            *(FoldedRows.of(self.w, self.engine.group, self.lanes, ws) for ws in several if ws <= single.w.size),
        ]

    def configs(self) -> Iterator[WFoldConfig]:
        """Yield every granularity with the tiles that the registers allow and each division among cores."""
        registers, cores = self.cpu.vector_registers, self.cpu.cores
        for rows in self.admissible:
            wide = ceil_div(rows.w.points, rows.ws)
            channels = 1
            while channels <= MOST_CHANNELS and channels < 2 * rows.co:
                # Sums, a vector of input for each row, and one vector of weights for each channel.
                most = min(wide, (registers - channels) // (channels + 1))
                if most < 1:
                    break
                for vectors in sorted({most, ceil_div(wide, ceil_div(wide, most))}):
                    panels = ceil_div(rows.co, channels)
                    for tr, tn in {(1, 1), *((r, cores // r) for r in range(1, cores + 1) if cores % r == 0)}:
                        if tr <= rows.n * rows.h.points and tn <= panels:
                            keep = self._band(rows, tr)
                            yield WFoldConfig(rows, vectors, channels, (tr, tn), True, keep)
                            yield WFoldConfig(rows, vectors, channels, (tr, tn), False, keep)
                channels *= 2

    def _band(self, rows: FoldedRows, threads: int) -> int:
        """Return the output rows of a band that stays in L2 with the weights, in bands of equal height."""
        row = rows.bci * rows.columns * rows.pci * self.plain.element * rows.h.stride
        share = min(rows.h.points, ceil_div(rows.n * rows.h.points, threads))
        fit = max(1, int(self.core.l2 * 0.4 / row))
        return ceil_div(share, ceil_div(share, fit))

    def tiling(self, config: WFoldConfig, cycles: float, why: str) -> ConvTiling:
        """Return the decision of a candidate; `why` is the reason for its granularity."""
        rows, mhz = config.rows, self.cpu.mhz
        vector_bytes = self.lanes * self.engine.acc_bytes
        per_cycle = self.lanes * self.cpu.fma_units * self.engine.speed * self.cpu.cores
        useful = self.w.co * self.w.ci * self.w.kh * self.w.kw
        done = rows.steps * self.lanes * self.engine.group / rows.ws * self.w.co
        return ConvTiling(
            form="wfold",
            utilisation=min(1.0, self.w.macs / per_cycle / cycles),
            stride_fold=rows.fold,
            predicted_seconds=cycles / (mhz * 1e6),
            pci=vector_bytes // rows.ws,
            ws=rows.ws,
            bci=rows.bci,
            aco=ceil_div(self.w.co, config.channels) * config.channels,
            tile_rows=1,
            tile_columns=config.vectors * rows.ws,
            lanes=self.lanes,
            keep_rows=config.keep,
            columns=config.channels,
            inner_order="mn" if config.tiles_outside else "nm",
            pitch=rows.pci,
            copy_input=True,
            threads_rows=config.threads[0],
            threads_columns=config.threads[1],
            pack_w="ahead" if self.prepacked else "run",
            reasons=(
                Reason(
                    "form",
                    "wfold",
                    f"fills vectors with {done / useful:.2f} times the multiply-adds of the convolution",
                ),
                Reason(
                    "stride_fold",
                    rows.fold,
                    f"{rows.fold} columns become one of {rows.channels} channels"
                    if rows.fold > 1
                    else "the stride is 1",
                ),
                Reason("pci", vector_bytes // rows.ws, why),
                Reason("ws", rows.ws, f"channel blocks that fit a vector of {vector_bytes} bytes"),
                Reason("bci", rows.bci, f"{quantity(rows.channels, 'channel')} in blocks of {rows.pci}"),
                Reason(
                    "columns",
                    config.channels,
                    f"{quantity(config.vectors, 'vector')} of outputs x {config.channels} output channels "
                    f"fit {self.cpu.vector_registers} registers",
                ),
            ),
        )

    def cycles(self, config: WFoldConfig) -> float:
        """Return the predicted cycles of the slowest core, including the start of the threads."""
        return sum(self.parts(config).values())

    def parts(self, config: WFoldConfig) -> dict[str, float]:
        """Return the predicted cycles by cause."""
        rows, core = config.rows, self.core
        tr, tn = config.threads
        panels = ceil_div(rows.co, config.channels)
        my_panels, my_rows = ceil_div(panels, tn), ceil_div(rows.n * rows.h.points, tr)
        full, tail = divmod(rows.w.points, config.vectors * rows.ws)
        vector = self.lanes * self.engine.acc_bytes
        weights = rows.steps * config.channels * vector  # bytes of a panel
        row_of_band = rows.bci * rows.columns * rows.pci * self.plain.element
        row = 0.0
        for points, many in ((config.vectors * rows.ws, full), (tail, 1)):
            if not points or not many:
                continue
            row += many * my_panels * self._tile(config, points, weights, my_panels * weights, row_of_band)
        kernel = my_rows * row
        share = my_rows / (rows.n * rows.h.points)
        bands = ceil_div(my_rows, config.keep)
        packed = weights * my_panels
        passes = bands if packed > core.l2 / 2 else 1
        arrival = passes * packed / core.cpu.bytes_per_cycle(weights * panels)
        touched = self.plain.input_bytes * share + self.plain.output_bytes * share * my_panels / panels
        memory = arrival + touched / self.plain.home
        found = overlapped(kernel, memory, self.costs.exposed_lesser)
        found.update(weights=self.costs.exposed_weights * arrival, copies=self._copy(config, my_rows, bands))
        written = 0.0 if self.prepacked else weights * panels / (tr * tn)
        found["packing"] = written / self.plain.element * self.costs.spread_element
        found["handed_over"] = core.line_transfer(written) if tr > 1 else 0.0
        results = rows.n * rows.h.points * rows.w.points * share
        found["lines"] = core.shared_lines(results, my_panels * config.channels, tn)
        found["start"] = self.cpu.parallel_start * (1 if self.prepacked else 2) if tr * tn > 1 else 0.0
        return found

    def _tile(self, config: WFoldConfig, points: int, panel: float, weights: float, row_of_band: float) -> float:
        """Return the cycles of one register tile over all taps, including the sums of its lanes."""
        rows, core = config.rows, self.core
        vectors, load = ceil_div(points, rows.ws), core.vector_load
        compute = max(
            vectors * config.channels * self.fma,
            self.core.latency,
            (config.channels + vectors * (self.costs.unaligned_loads if rows.ws > 1 or rows.w.taps > 1 else 1.0))
            * load,
        )
        resident = weights if config.tiles_outside else panel
        line = config.channels * self.lanes * self.engine.acc_bytes
        right = line / core.cpu.bytes_per_cycle(resident) if resident > core.l1 / 2 else 0.0
        patch = rows.h.span * row_of_band
        left = 0.0
        if not config.tiles_outside and patch > core.l1 / 2:
            left = vectors * line / config.channels / rows.w.taps / self.cpu.l2_bytes_per_cycle
        steps = rows.steps * max(compute, right + left) + rows.h.taps * rows.w.taps * self.costs.tap_start / 4
        return (
            steps + self.costs.tile_start + vectors * self._sums(rows, config.channels) + self._stores(config, points)
        )

    def _sums(self, rows: FoldedRows, channels: int) -> float:
        """Return the cycles to sum the lanes of each point of a vector of points for `channels` channels."""
        left, cost = float(channels), 0.0
        for _ in range(rows.lanes.bit_length() - 1):
            adds = max(1.0, left / 2)
            cost += adds * (2 * self.costs.shuffle + self.fma)
            left = adds
        # Remaining channels are exchanged with bits of the point if they are adjacent in the output.
        exchanges = int(left).bit_length() - 1 if self.output_run > 1 else 0
        return cost + left * exchanges * self.costs.shuffle

    def _stores(self, config: WFoldConfig, points: int) -> float:
        if self.output_run > 1:
            return points * max(1.0, config.channels / self.lanes) * self.costs.scattered_element
        if config.rows.lanes == 1:
            return points / config.rows.ws * config.channels * self.costs.scattered_element
        return points * config.channels * self.costs.scattered_element

    def _copy(self, config: WFoldConfig, my_rows: int, bands: int) -> float:
        """Return the cycles to copy a core's bands."""
        rows = config.rows
        high = my_rows * rows.h.stride + bands * max(0, rows.h.span - rows.h.stride)
        if not self.adjacent:
            return high * self.w.w * rows.ci * self.costs.copied_element
        vector = rows.ws * rows.pci
        last = rows.channels - (rows.bci - 1) * rows.pci
        pieces = (rows.bci - 1) * ceil_div(rows.pci, vector) + ceil_div(last, vector)
        return high * ceil_div(self.w.w, rows.fold) * pieces * self.costs.copied_vector
