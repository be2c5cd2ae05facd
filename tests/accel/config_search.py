"""Decisions for the simulated accelerator compared with a search: every configuration of a small space is scheduled,
recorded and timed."""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from convolutions import convolution
from operators import product
from tvm import tirx

import tvm_tiling as tt
from tvm_tiling.accel.record.function import record
from tvm_tiling.accel.timing.simulate import simulate
from tvm_tiling.decide.conv.block_time import BlockTimes, Columns, ConvFacts
from tvm_tiling.decide.conv.blocks import blocks_at
from tvm_tiling.decide.conv.conv_blocks import ConvBlocks
from tvm_tiling.decide.conv.instruction_times import queued_cycles
from tvm_tiling.decide.gemm.traffic import product_on
from tvm_tiling.decide.tiling import GemmTiling
from tvm_tiling.hardware.machine import Machine
from tvm_tiling.lowering.accel.image import plain_layout
from tvm_tiling.match import ConvProgram, GemmProgram, match, prim_func_of
from tvm_tiling.schedules.accel_conv import ConvSchedule
from tvm_tiling.schedules.accel_gemm import apply
from tvm_tiling.schedules.accel_product import sum_types

MACHINES = (
    tt.Hardware.load("vta"),
    tt.Hardware.neartile(buf_a=2048, buf_b=2048, acc_max=8192, bw_a=8, bw_b=8, macs_per_cycle=64),
    tt.Hardware.neartile(
        buf_a=8192, buf_b=1024, acc_max=4096, bw_a=4, bw_b=16, macs_per_cycle=256, block_m=4, block_n=4
    ),
    tt.Hardware.load("wfold16"),
)


@dataclass(frozen=True)
class Layer:
    """Return a matrix multiplication or convolution with a few thousand to a million multiply-accumulates, and a
    machine."""

    name: str
    func: tirx.PrimFunc
    hardware: tt.Hardware

    @functools.cached_property
    def program(self) -> GemmProgram | ConvProgram:
        return match(self.func, "main", may_swap=False)

    def decided(self) -> int:
        """Return the cycles of the decision."""
        return simulate(record(tt.tiling_schedule(self.func, target=self.hardware).mod, self.hardware)).cycles

    def loads_as_decided(self, config: object) -> bool:
        """Return whether a configuration loads neither operand of a matrix multiplication more often than the
        analytical partition."""
        if not isinstance(config, GemmTiling):
            return True
        decision = tt.decide(self.program.workload, self.hardware)
        return config.load_a <= decision.load_a and config.load_b <= decision.load_b

    def configs(self, counts: tuple[int, ...]) -> Iterator[tuple[object, tirx.PrimFunc]]:
        """Yield every configuration of the space with its schedule: each dimension split into one of `counts` pieces;
        on W-fold machines every input and output granularity, and every number of channels between two passes."""
        if self.hardware.w_fold is not None:
            return _folds(self.func, self.hardware)
        program = self.program
        own = _product_configs if isinstance(program, GemmProgram) else _convolution_configs
        return own(program, self.hardware, counts)


@dataclass(frozen=True)
class Found:
    """Cycles of the decision for a layer, and those of the configurations of the space. `walked`: their cycles as
    predicted by evaluating instructions, for convolutions on matrix engines. `as_loaded`: those of the configurations
    that load each operand of a matrix multiplication at most as often as the analytical partition."""

    layer: Layer
    own: int
    cycles: tuple[int, ...]
    walked: tuple[float, ...]
    as_loaded: tuple[int, ...]

    @property
    def ratio(self) -> float:
        """The decision relative to the best configuration of the space."""
        return self.own / min(self.cycles)

    @property
    def ratio_as_loaded(self) -> float:
        """The same relative to configurations that load nothing more often than the analytical partition."""
        return self.own / min(self.as_loaded, default=self.own)


def random_layers(seed: int) -> Iterator[Layer]:
    """Generate an endless sequence of layers."""
    rng = random.Random(seed)
    while True:
        machine = rng.choice(MACHINES)
        if rng.random() < 0.3:
            m, n, k = (rng.choice((16, 24, 40, 64, 96, 150)) for _ in range(3))
            name, op = f"product {m} {n} {k}", product(m, n, k, "int8", trans_b=True)
        else:
            options = _convolution(rng, folds=machine.w_fold is not None)
            name, op = f"conv {options}", convolution(**options)
        yield Layer(f"{name} on {machine.name}", prim_func_of(op), machine)


def _convolution(rng: random.Random, folds: bool) -> dict[str, object]:
    taps, stride = rng.choice((1, 2, 3, 3, 3, 5)), rng.choice((1, 1, 2))
    groups = rng.choice((1, 1, 1, 1, 2, "depthwise"))
    ci = rng.choice((8, 16)) if groups == "depthwise" else rng.choice((3, 8, 16, 32) if groups == 1 else (8, 16, 32))
    if groups != 1 and folds:
        stride = 1  # stride-fold does not support groups
    return {
        "h": rng.choice((7, 10, 14, 20)),
        "w": rng.choice((7, 10, 14, 20)),
        "ci": ci,
        "co": ci if groups == "depthwise" else rng.choice((8, 16, 24, 48)),
        "kh": taps,
        "kw": taps,
        "stride": (stride, stride),
        "padding": (taps // 2,) * 4,
        "groups": ci if groups == "depthwise" else groups,
    }


def searched(layer: Layer, counts: tuple[int, ...]) -> Found | None:
    """Compare the decision with the configurations of the space; None if none of them fits."""
    cycles, walked, as_loaded = [], [], []
    for config, func in layer.configs(counts):
        cycles.append(simulate(record(func, layer.hardware)).cycles)
        if isinstance(config, ConvBlocks):
            walked.append(queued_cycles(ConvFacts(layer.program.workload, layer.hardware), config))
        if layer.loads_as_decided(config):
            as_loaded.append(cycles[-1])
    return Found(layer, layer.decided(), tuple(cycles), tuple(walked), tuple(as_loaded)) if cycles else None


def found_of(number: int, seed: int, counts: tuple[int, ...]) -> list[Found]:
    """Return the first `count` random layers for which any configuration of the space fits."""
    found = filter(None, (searched(layer, counts) for layer in random_layers(seed)))
    return list(itertools.islice(found, number))


def _pieces(size: int, counts: tuple[int, ...]) -> list[int]:
    return sorted({-(-size // count) for count in counts}, reverse=True)


def _product_configs(
    program: GemmProgram, hardware: tt.Hardware, counts: tuple[int, ...]
) -> Iterator[tuple[GemmTiling, tirx.PrimFunc]]:
    """Yield partitions of m, n and k that fit, in both orders."""
    size, found = program.workload, product_on(program.workload, hardware)
    usual = tt.decide(size, hardware)
    configs = itertools.product(*(_pieces(extent, counts) for extent in (size.m, size.n, size.k)), ("mn", "nm"))
    for m, n, k, order in configs:
        m, n = (min(full, -(-part // block) * block) for part, full, block in (
            (m, size.m, found.block_m), (n, size.n, found.block_n)
        ))  # fmt: skip
        if not found.feasible(m, n, k):
            continue
        load_a, load_b = found.load_counts(m, n, k, order)
        config = replace(
            usual, partition_m=m, partition_n=n, partition_k=k, outer_order=order, split_k=k < size.k,
            need_acc_buffer=k < size.k, load_a=load_a, load_b=load_b, tile_m=m, tile_n=n, chunks=None,
        )  # fmt: skip
        yield config, apply(program, hardware, config).main


def _convolution_configs(
    program: ConvProgram, hardware: tt.Hardware, counts: tuple[int, ...]
) -> Iterator[tuple[ConvBlocks, tirx.PrimFunc]]:
    """Yield blocks of output channels, rows, columns and channels that fit, in both orders."""
    facts = ConvFacts(program.workload, hardware)
    conv, grouped = facts.conv, facts.conv.groups > 1
    configs = itertools.product(
        (1,) if grouped else (1, 0),
        [g for g in _pieces(conv.groups, counts) if conv.groups % g == 0],
        [facts.co] if grouped else _pieces(facts.co, counts),
        _pieces(conv.ho, counts),
        _pieces(conv.wo, (1, 2)),
        [facts.ci] if grouped else _pieces(facts.ci, (1, 2)),
    )
    made = [(order, g, m, m, rows, rows, columns, c) for order, g, m, rows, columns, c in configs]
    times = BlockTimes(facts, Columns(*np.array(made).T))
    for place in np.flatnonzero(times.fits).tolist():
        blocks = blocks_at(times, place)
        schedule = ConvSchedule(program, plain_layout(conv), blocks, sum_types(hardware), Machine(hardware)).write()
        yield blocks, schedule.mod["main"]


def _folds(func: tirx.PrimFunc, hardware: tt.Hardware) -> Iterator[tuple[tuple[int, ...], tirx.PrimFunc]]:
    """Yield input and output granularities that fold no more neighbours than there are points, and blocks of output
    channels."""
    unit = hardware.w_fold
    schedule = tt.tiling_schedule(func, target=hardware)
    sums = schedule.get_sblock("sums")
    width, channels = (int(schedule.get(sums).iter_vars[axis].dom.extent) for axis in (3, 5))
    possible = [g for g in unit.granularities if unit.row_bytes // g <= width]
    most = max(unit.co_block_factor, unit.second_buffer_rows)
    blocks = range(1, min(most, -(-channels // unit.sub_units)) + 1)
    for config in itertools.product(possible, possible, blocks):
        for name, value in zip(("pci", "pco", "block"), config, strict=True):
            schedule.unannotate(sums, f"vsim.{name}")
            schedule.annotate(sums, f"vsim.{name}", value)
        yield config, schedule.mod["main"]
