"""Winograd convolutions against NumPy in float64: every size of tile, kernel and image, layouts, edges, epilogues."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import tvm
from products import Guarded
from tvm import te, topi

from tvm_tiling.decide.conv.conv_tiling import ConvTiling
from tvm_tiling.decide.conv.winograd import WinogradTiling, decide_winograd, predicted_error
from tvm_tiling.hardware.dot_instructions import FMA_FLOAT32
from tvm_tiling.lowering.prim_func import ScheduledOperator, write_packed, write_plain
from tvm_tiling.match import match_conv
from tvm_tiling.schedule import llvm_target, this_cpu
from tvm_tiling.schedules import conv_winograd
from tvm_tiling.schedules.conv_winograd import WinogradEmitter
from tvm_tiling.workload import ConvWorkload


def conv(
    h: int, w: int, ci: int, co: int, k: int = 3, padding=(1, 1, 1, 1), n: int = 1, dilation=(1, 1)
) -> ConvWorkload:
    return ConvWorkload(n=n, h=h, w=w, ci=ci, co=co, kh=k, kw=k, padding=padding, dilation=dilation)


def operator(w: ConvWorkload, layout: str, epilogue: str) -> list[te.Tensor]:
    """Return input, kernels, operands of the epilogue, and the output."""
    channels_last = layout == "NHWC"
    shape_x = (w.n, w.h, w.w, w.ci) if channels_last else (w.n, w.ci, w.h, w.w)
    shape_w = (w.kh, w.kw, w.ci, w.co) if channels_last else (w.co, w.ci, w.kh, w.kw)
    x, kernels = te.placeholder(shape_x, name="X"), te.placeholder(shape_w, name="W")
    out = topi.nn.conv(x, kernels, 1, w.padding, w.dilation, 1, layout, "HWIO" if channels_last else "OIHW")
    if not epilogue:
        return [x, kernels, out]
    bias, residual = te.placeholder((w.co,), name="B"), te.placeholder(out.shape, name="R")

    def finished(*at):
        return te.max(out(*at) + bias(at[3 if channels_last else 1]) + residual(*at), 0.0)

    return [x, kernels, bias, residual, te.compute(out.shape, finished, "finished")]


def expected(w: ConvWorkload, x: np.ndarray, kernels: np.ndarray) -> np.ndarray:
    """Compute the direct convolution in float64, NHWC and HWIO."""
    top, left, bottom, right = w.padding
    padded = np.pad(x.astype(np.float64), ((0, 0), (top, bottom), (left, right), (0, 0)))
    total = np.zeros((w.n, w.ho, w.wo, w.co))
    for i in range(w.kh):
        for j in range(w.kw):
            y, x0 = i * w.dilation[0], j * w.dilation[1]
            total += padded[:, y : y + w.ho, x0 : x0 + w.wo] @ kernels[i, j].astype(np.float64)
    return total


def scheduled(tensors: list[te.Tensor], config: WinogradTiling, *, prepacked: bool) -> ScheduledOperator:
    """Return the convolution with the configuration `config` instead of the decision's."""
    program = match_conv(te.create_prim_func(tensors))
    cpu = this_cpu().cpu
    assert cpu is not None
    emitter = WinogradEmitter(program, config, cpu)
    tiling = ConvTiling(form="winograd", utilisation=1.0, winograd=config)
    if prepacked:
        return write_packed(program, tiling, program.w, emitter, FMA_FLOAT32)
    return write_plain(program, tiling, lambda: emitter.emit(None), FMA_FLOAT32)


def largest_error(
    w: ConvWorkload, tiling: WinogradTiling, *, layout: str = "NHWC", epilogue: str = "", prepacked: bool = True
) -> float:
    """Return the largest error relative to the largest output, after checking that nothing else was accessed."""
    rng = np.random.default_rng(7)
    x = rng.uniform(-1, 1, (w.n, w.h, w.w, w.ci)).astype(np.float32)
    kernels = rng.uniform(-1, 1, (w.kh, w.kw, w.ci, w.co)).astype(np.float32)
    want = expected(w, x, kernels)
    scale = np.abs(want).max()
    more = []
    if epilogue:
        bias, residual = rng.uniform(-1, 1, w.co), rng.uniform(-1, 1, want.shape)
        bias, residual = bias.astype(np.float32), residual.astype(np.float32)
        want = np.maximum(want + bias + residual, 0)
        more = [bias, residual if layout == "NHWC" else residual.transpose(0, 3, 1, 2)]
    if layout == "NCHW":
        x, kernels, want = x.transpose(0, 3, 1, 2), kernels.transpose(3, 2, 0, 1), want.transpose(0, 3, 1, 2)
    written = scheduled(operator(w, layout, epilogue), tiling, prepacked=prepacked)
    functions = {"main": written.main, "main_pack": written.pack} if prepacked else {"main": written.main}
    built = tvm.compile(tvm.IRModule(functions), target=llvm_target())
    inputs = [Guarded(a.shape, "float32").fill(a) for a in (x, kernels, *more)]
    arguments = list(inputs)
    if prepacked:
        arguments[1] = Guarded(written.packed_shape, "float32")
        built["main_pack"](inputs[1].tensor, arguments[1].tensor)
        assert arguments[1].unchanged_around()
        # There is a gap after the panels of a point.
        assert np.isfinite(arguments[1].array[:, : w.ci * -(-w.co // tiling.lanes) * tiling.lanes]).all()
    out = Guarded(want.shape, "float32")
    built["main"](*(a.tensor for a in arguments), out.tensor)
    assert all(a.unchanged() for a in inputs)
    assert out.unchanged_around()
    return float(np.abs(out.array - want).max() / scale)


@pytest.mark.parametrize(("ci", "rows", "groups"), [(64, 8, 1), (64, 8, 2), (70, 5, 3), (33, 4, 5)])
def test_tiles_of_a_block_prefetch_the_next_panel_in_equal_parts(monkeypatch, ci, rows, groups):
    w = conv(h=24, w=24, ci=ci, co=96)
    tiling = tiling_of(w, 4, rows=rows, vectors=2, block_tiles=rows * groups)
    cpu = this_cpu().cpu
    assert cpu is not None
    emitter = WinogradEmitter(match_conv(te.create_prim_func(operator(w, "NHWC", ""))), tiling, cpu)
    asked: list[int] = []
    monkeypatch.setattr(conv_winograd, "ask", lambda _, at, cache: asked.extend(int(index) for index in at))
    size, following = ci * emitter.nr, 1000 * emitter.nr
    for group in range(groups):
        for k in range(ci):
            emitter.prefetch(emitter.w, following, group * rows, k)
        # An equal part after every tile, of which every line is asked for.
        reached = following + (group + 1) * size // groups
        assert reached - 2 * emitter.lanes < max(asked) + emitter.lanes <= reached + 2 * emitter.lanes
    lines = {at // emitter.lanes for at in asked}
    assert set(range(following // emitter.lanes, (following + size) // emitter.lanes)) <= lines


def tiling_of(w: ConvWorkload, m: int, **changed: int) -> WinogradTiling:
    cpu = this_cpu().cpu
    assert cpu is not None
    return replace(decide_winograd(w, replace(cpu, cores=1), m=m), **changed)


@pytest.mark.values
@pytest.mark.parametrize("m", [2, 4, 6])
@pytest.mark.parametrize(("h", "wide"), [(1, 1), (2, 7), (7, 7), (13, 12), (31, 33)])
def test_images_of_every_size(m, h, wide):
    w = conv(h, wide, 20, 36)
    assert largest_error(w, tiling_of(w, m)) <= predicted_error(w, m)


@pytest.mark.values
@pytest.mark.parametrize("ci", [1, 7, 33])
@pytest.mark.parametrize("co", [1, 31, 64])
def test_channels_of_every_number(ci, co):
    w = conv(9, 11, ci, co)
    assert largest_error(w, tiling_of(w, 4)) <= predicted_error(w, 4)


@pytest.mark.values
@pytest.mark.parametrize("padding", [(0, 0, 0, 0), (2, 0, 1, 3), (0, 1, 2, 0), (9, 9, 9, 9)])
@pytest.mark.parametrize("m", [2, 4])
def test_borders_of_every_width(padding, m):
    w = conv(10, 7, 17, 18, padding=padding, n=2)
    assert largest_error(w, tiling_of(w, m)) <= predicted_error(w, m)


@pytest.mark.values
@pytest.mark.parametrize(
    ("h", "wide", "dilation", "padding"),
    [
        (14, 14, (2, 2), (2, 2, 2, 2)),
        (16, 16, (2, 2), (0, 0, 0, 0)),  # without a border
        (15, 9, (2, 3), (2, 3, 2, 3)),
        (13, 11, (4, 1), (4, 1, 1, 0)),
        (7, 6, (12, 5), (12, 5, 12, 5)),  # fewer outputs than residues
        (23, 9, (3, 4), (7, 0, 1, 2)),
        (1, 30, (2, 7), (2, 3, 2, 20)),
    ],
)
@pytest.mark.parametrize("m", [2, 4])
def test_dilations(h, wide, dilation, padding, m):
    w = conv(h, wide, 19, 35, padding=padding, dilation=dilation, n=2)
    assert largest_error(w, tiling_of(w, m)) <= predicted_error(w, m)


@pytest.mark.parametrize(("m", "k"), [(3, 2), (5, 2), (3, 4), (5, 4), (2, 5), (4, 5), (3, 6), (2, 7)])
def test_kernels_of_other_sizes(m, k):
    w = conv(17, 15, 18, 20, k=k, padding=(k // 2, 0, k // 2, 1))
    assert largest_error(w, tiling_of(w, m)) <= predicted_error(w, m)


@pytest.mark.pairs
@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize("epilogue", ["", "bias, residual, relu"])
@pytest.mark.parametrize("prepacked", [False, True])
def test_layouts_and_epilogues(layout, epilogue, prepacked):
    w = conv(11, 14, 19, 35, n=2)
    error = largest_error(w, tiling_of(w, 4), layout=layout, epilogue=epilogue, prepacked=prepacked)
    assert error <= predicted_error(w, 4)


@pytest.mark.parametrize(
    ("rows", "vectors", "tiles", "channels", "threads", "prepacked"),
    [
        (1, 1, 1, 16, (1, 1), True),
        (5, 1, 10, 32, (1, 1), False),
        (3, 2, 6, 32, (2, 1), True),
        (4, 3, 4, 48, (1, 2), False),
        (7, 2, 7, 64, (3, 2), True),
        (14, 2, 56, 128, (1, 1), False),
    ],
)
def test_configs_of_every_kind(rows, vectors, tiles, channels, threads, prepacked):
    w = conv(18, 19, 24, 100, n=2)
    lanes = this_cpu().cpu.lanes(4)
    config = tiling_of(
        w,
        4,
        rows=rows,
        vectors=vectors,
        block_tiles=tiles,
        block_channels=channels * lanes // 16,
        threads_tiles=threads[0],
        threads_channels=threads[1],
    )
    assert largest_error(w, config, prepacked=prepacked) <= predicted_error(w, 4)


@pytest.mark.values
@pytest.mark.parametrize("m", [2, 4, 6])
@pytest.mark.parametrize("ci", [64, 128, 256, 512])
def test_error_is_as_predicted(m, ci):
    """Neither above the prediction nor so far below it that larger tiles are refused unnecessarily."""
    w = conv(24, 24, ci, 32)
    error = largest_error(w, tiling_of(w, m))
    assert predicted_error(w, m) / 4 <= error <= predicted_error(w, m)
