"""WCONV: convolution on the W-fold engine, modelled at the level of its buffers (design page 05).

m: output channels, n0, n1: output rows and columns, k0, k1, k2: kernel rows, columns, channels; immediate = (PCI, PCO)
in bytes, the channel granularities. PCI 0 selects the one of fewest cycles, PCO 0 keeps the sums on the chip. `block`
output channels of a sub-unit share a pass over the input; 0 means all of them. Taps slide by one column, so n1 and k1
have the same stride.

One instruction stands for some hundred operations of each part of the engine:

    form        rows of Ws columns and a block of channels, padded with zeros, into the first buffer
    replicate   a row of weights for each step, in the order of the steps, into the second buffer
    step        Ncu rows of the first buffer, slid by the tap, with a row of weights: Ws sums for each row
    write out   sums of a block of points from the result buffer, where they lie channel by channel, point by point;
                padding points and channels are dropped

The functional run builds the contents of the first buffer for each piece and computes from those alone. Timing follows
the model in decide/fold/fold_walk.py, with the buffer capacities of the machine. Forming rows overlaps with the
multiplications of the previous instruction, and writing results with those of the next one. Results leave with
w_fold.output_element_bytes bytes per element.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...decide.fold.fold_nest import FoldNest, Layer
from ...decide.fold.fold_walk import fold_time
from ...errors import HardwareError, SimulationError
from ...hardware.machine import Machine
from ...hardware.w_fold import WFold
from ..program.elements import STORED, as_float32, is_integer, narrowed
from ..program.isa import ElementType
from .products import LOOPS, multiply
from .row import Batch, Cycles, How, Instruction


def convolve(a: np.ndarray, b: np.ndarray, c: np.ndarray, how: How) -> None:
    """Compute c[m, n0, n1] (+)= sum over k0, k1, k2 of a[m, k0, k1, k2] * b[n0, n1, k0, k1, k2] through the buffers of
    the engine."""
    if how.w_fold is None:
        raise SimulationError("the program's machine has no W-fold engine; expected a machine with w_fold")
    rows, columns, high, taps, channels = b.shape
    slide = b.strides[1] if columns > 1 else b.strides[3]
    if columns > 1 and taps > 1 and b.strides[3] != slide:
        raise SimulationError(
            f"output points are {slide} bytes apart but taps {b.strides[3]}; expected equal distances, as "
            "the engine slides by columns"
        )
    kind, result = how.kinds
    pci, pco = (int(number) for number in how.immediate)
    nest, _ = _nest(
        how.w_fold,
        co=len(a),
        ho=rows,
        wo=columns,
        kh=high,
        kw=taps,
        ci=channels,
        d_s=ElementType(kind).bytes,
        pci=pci,
        pco=pco,
        block=how.block,
        pitch=abs(slide),
        d_acc=_sum_bytes(result),
    )
    summed = result if is_integer(result) else ElementType.FLOAT32
    sums = np.zeros((len(a), rows * nest.row_blocks, nest.points), STORED[summed])
    adds = how._replace(kinds=(kind, summed), reads_c=True)
    for first, weights in _pieces(nest, a, b, slide):
        multiply(weights, first, sums, adds)
    _write_out(nest, sums, c, how)


def _pieces(nest: FoldNest, a: np.ndarray, b: np.ndarray, slide: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield, for each piece of the kernel width, the first buffer shifted by each tap, for all blocks of points, and
    the weights: [block, point, k0, k1, k2] and [m, k0, k1, k2], with channels padded to whole blocks of PCI."""
    rows, columns, high, taps, channels = b.shape
    width, padded = columns + taps - 1, nest.bci * nest.pci // nest.layer.d_s
    line = np.lib.stride_tricks.as_strided(
        b, (rows, high, width, channels), (b.strides[0], b.strides[2], slide, b.strides[4]), writeable=False
    )
    start = 0
    for piece in nest.kw_pieces:
        held = nest.piece_rows(piece) * nest.ws
        there = np.zeros((rows, high, (nest.row_blocks - 1) * nest.points + held, padded), b.dtype)
        own = line[:, :, start : start + there.shape[2]]
        there[:, :, : own.shape[2], :channels] = own
        blocks = np.lib.stride_tricks.sliding_window_view(there, held, axis=2)[:, :, :: nest.points]
        formed = np.ascontiguousarray(blocks.transpose(0, 2, 1, 4, 3)).reshape(-1, high, held, padded)
        slid = np.lib.stride_tricks.sliding_window_view(formed, piece, axis=2)[:, :, : nest.points]
        weights = np.zeros((*a.shape[:2], piece, padded), a.dtype)
        weights[..., :channels] = a[:, :, start : start + piece]
        yield slid.transpose(0, 2, 1, 4, 3), weights
        start += piece


def _write_out(nest: FoldNest, sums: np.ndarray, c: np.ndarray, how: How) -> None:
    """Write the sums of blocks of points to the result, without the padding points."""
    result = how.kinds[1]
    channels, rows, columns = c.shape
    wanted = sums.reshape(channels, rows, -1)[:, :, :columns]
    if is_integer(result):
        c[...] = c + wanted if how.reads_c else wanted
    else:
        c[...] = narrowed(as_float32(c, result) + wanted if how.reads_c else wanted, result)


def _sum_bytes(result: int) -> int:
    return 2 if result == ElementType.INT16 else 4


def _cycles(batch: Batch, machine: Machine) -> Cycles:
    unit = machine.hardware.w_fold
    assert unit is not None
    times = _times(batch, machine)
    return np.maximum(times[:, 1], unit.interval), times[:, 2] + unit.latency


def _fill(batch: Batch, machine: Machine) -> np.ndarray:
    return _times(batch, machine)[:, 0]


def _times(batch: Batch, machine: Machine) -> np.ndarray:
    distinct, which = fold_nests(batch, machine)
    found: np.ndarray = np.array([fold_time(*nest) for nest in distinct], dtype=np.int64).reshape(-1, 3)[which]
    return found


def _traffic(batch: Batch, machine: Machine) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the bytes of weights and inputs that the engine reads, and of sums: written once, and also read where the
    instruction accumulates."""
    distinct, which = fold_nests(batch, machine)
    weights = np.array([nest.weight_rows * nest.pci for nest, _ in distinct], dtype=np.int64)
    reads = np.array([nest.reads * nest.unit.row_bytes for nest, _ in distinct], dtype=np.int64)
    return weights[which], reads[which], (1 + batch.adds) * batch.m * batch.n * batch.result


def fold_nests(batch: Batch, machine: Machine) -> tuple[list[tuple[FoldNest, bool]], np.ndarray]:
    """Return the distinct loop nests of the engine, each with whether its results leave the chip, and for each
    instruction the index of its nest."""
    unit = machine.hardware.w_fold
    assert unit is not None
    extents, strides = batch.column("extent").astype(np.int64), batch.column("b_stride").astype(np.int64)
    slide = np.where(extents[:, 2] > 1, strides[:, 2], strides[:, 4])
    batch.refuse(
        machine,
        (extents[:, 2] > 1) & (extents[:, 4] > 1) & (strides[:, 4] != slide),
        lambda place: f"has points {slide[place]} elements apart but taps {strides[place, 4]}",
        "equal distances, as the engine slides by columns",
    )
    keys = np.stack(
        [
            *extents.T,
            batch.element,
            *batch.column("immediate").astype(np.int64).T,
            batch.column("block"),
            np.abs(slide) * batch.element,
            [_sum_bytes(kind) for kind in batch.column("result_dtype").tolist()],
        ],
        axis=1,
    )
    distinct, which = np.unique(keys, axis=0, return_inverse=True)
    return [_nest(unit, *row) for row in distinct.tolist()], which.reshape(-1)


def _nest(
    unit: WFold,
    co: int,
    ho: int,
    wo: int,
    kh: int,
    kw: int,
    ci: int,
    d_s: int,
    pci: int,
    pco: int,
    block: int,
    pitch: int,
    d_acc: int,
) -> tuple[FoldNest, bool]:
    d_out = unit.output_element_bytes or d_s
    layer = Layer(
        groups=1,
        rows=ho,
        wo=wo,
        w=wo + kw - 1,
        ci_bytes=ci * d_s,
        co=co,
        taps_high=kh,
        kw=kw,
        d_s=d_s,
        d_out=d_out,
        pitch=pitch,
        d_acc=d_acc,
    )
    for name, value, element in (("PCI", pci, d_s), ("PCO", pco, d_out)):
        possible = [granularity for granularity in unit.granularities if granularity % element == 0]
        if value and value not in possible:
            raise HardwareError(
                f"w_fold: a WCONV has {name} = {value} bytes; expected 0, {', '.join(map(str, possible))}"
            )
    choices = [pci] if pci else [g for g in unit.granularities if g % d_s == 0 and unit.row_bytes // g <= layer.w]
    nests = [FoldNest(layer, unit, g, pco or unit.row_bytes, block or -(-co // unit.sub_units)) for g in choices]
    fitting = [nest for nest in nests if nest.rooms != 0]
    if not fitting:
        raise HardwareError(
            f"w_fold: the sums of a WCONV block need {nests[-1].sum_rows} rows of the result buffer, which "
            f"has {unit.result_buffer_rows}; expected fewer output channels per block, or a larger PCI"
        )
    if len(fitting) == 1:
        return fitting[0], pco > 0
    return min(fitting, key=lambda nest: (sum(fold_time(nest, pco > 0)), -nest.pci)), pco > 0


WCONV = Instruction(
    5,
    "WCONV",
    LOOPS,
    convolve,
    "sums",
    "w_fold",
    _cycles,
    _traffic,
    fill=_fill,
    accumulates=True,
    block=True,
)
