"""Programs that measure the speed of the simulated accelerator: tiled int8 matrix multiplications and a convolution."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tvm_tiling.accel.instructions.table import Opcode
from tvm_tiling.accel.program.builder import At, ProgramBuilder
from tvm_tiling.accel.program.program import Program
from tvm_tiling.hardware import Hardware


@dataclass(frozen=True)
class Case:
    """A program with its inputs, its expected output and its number of multiply-accumulates."""

    name: str
    program: Program
    inputs: dict[str, np.ndarray]
    output: np.ndarray
    macs: int


def product(m: int, n: int, k: int, tile_m: int, tile_n: int, tile_k: int) -> Case:
    """C[m, n] = A[m, k] B[n, k]^T, tile by tile, with double-buffered tiles of A and B. Sizes must be multiples of the
    tile sizes."""
    build = ProgramBuilder(Hardware.load("vta"), ("load_a", "load_b", "matrix", "vector", "store"))
    a = build.tensor("a", "int8", (m, k), role="input", operand="a")
    b = build.tensor("b", "int8", (n, k), role="input", operand="b")
    c = build.tensor("c", "int32", (m, n), role="output", operand="out")
    tile = 0
    for i in range(0, m, tile_m):
        for j in range(0, n, tile_n):
            sums = tile % 2 * tile_m * tile_n * 4
            tile += 1
            for step, start in enumerate(range(0, k, tile_k)):
                places = {}
                for name, source, row, rows in (("a", a, i, tile_m), ("b", b, j, tile_n)):
                    places[name] = step % 2 * rows * tile_k
                    far = At("external", source.address + row * k + start, (k, 1), "int8")
                    near = At(name, places[name], (tile_k, 1), "int8")
                    build.append(Opcode.LOAD, f"load_{name}", (rows, tile_k), a=far, c=near)
                build.append(
                    Opcode.GEMM,
                    "matrix",
                    (tile_m, 1, tile_n, 1, 1, tile_k),
                    a=At("a", places["a"], (tile_k, 0, 0, 0, 0, 1), "int8"),
                    b=At("b", places["b"], (0, 0, tile_k, 0, 0, 1), "int8"),
                    c=At("acc", sums, (tile_n, 0, 1), "int32"),
                    accumulate=step > 0,
                )
            near, far = At("acc", sums, (tile_n, 1), "int32"), c.address + (i * n + j) * 4
            build.append(Opcode.STORE, "store", (tile_m, tile_n), a=near, c=At("external", far, (n, 1), "int32"))
    inputs = _inputs({"a": (m, k), "b": (n, k)})
    output = inputs["a"].astype(np.float64) @ inputs["b"].astype(np.float64).T
    name = f"GEMM {m}x{n}x{k} by {tile_m}x{tile_n}x{tile_k}"
    return Case(name, build.build(), inputs, output.astype(np.int32), m * n * k)


def recorded(m: int, n: int, k: int, machine: str) -> Case:
    """C[m, n] = A[m, k] B[n, k]^T as `tiling_schedule` tiles it for an accelerator, which is what users run."""
    from tvm import te

    from tvm_tiling.accel.record.function import record
    from tvm_tiling.schedule import tiling_schedule

    a, b = te.placeholder((m, k), "int8", "a"), te.placeholder((n, k), "int8", "b")
    step = te.reduce_axis((0, k), "step")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, step].astype("int32") * b[j, step].astype("int32"), step), "c")
    program = record(tiling_schedule(c, target=f"vsim/{machine}").mod, Hardware.load(machine))
    inputs = _inputs({"a": (m, k), "b": (n, k)})
    output = inputs["a"].astype(np.float64) @ inputs["b"].astype(np.float64).T
    return Case(f"{machine}: {m}x{n}x{k} as recorded", program, inputs, output.astype(np.int32), m * n * k)


def convolution(size: int, channels: int, kernel: int, rows: int) -> Case:
    """A convolution without padding, with `channels` input and output channels, by WCONV on blocks of `rows` output
    rows."""
    out = size - kernel + 1
    build = ProgramBuilder(Hardware.load("wfold16"), ("load_a", "load_b", "matrix", "store"))
    taps = kernel * kernel * channels
    weights = build.tensor("w", "int8", (channels, taps), role="input", operand="b")
    image = build.tensor("x", "int8", (size, size, channels), role="input", operand="a")
    y = build.tensor("y", "int32", (out, out, channels), role="output", operand="out")
    line = size * channels
    for name, source, count in (("load_b", weights, channels * taps), ("load_a", image, size * line)):
        near = At(name[-1], 0, (1,), "int8")
        build.append(Opcode.LOAD, name, (count,), a=At("external", source.address, (1,), "int8"), c=near)
    for block, top in enumerate(range(0, out, rows)):
        here = min(rows, out - top)
        sums = block % 2 * rows * out * channels * 4
        build.append(
            Opcode.WCONV,
            "matrix",
            (channels, here, out, kernel, kernel, channels),
            a=At("b", 0, (taps, 0, 0, kernel * channels, channels, 1), "int8"),
            b=At("a", top * line, (0, line, channels, line, channels, 1), "int8"),
            c=At("acc", sums, (1, out * channels, channels), "int32"),
        )
        count = here * out * channels
        far = At("external", y.address + top * out * channels * 4, (1,), "int32")
        build.append(Opcode.STORE, "store", (count,), a=At("acc", sums, (1,), "int32"), c=far)
    inputs = _inputs({"w": (channels, taps), "x": (size, size, channels)})
    windows = np.lib.stride_tricks.sliding_window_view(inputs["x"], (kernel, kernel), axis=(0, 1))
    columns = windows.transpose(0, 1, 3, 4, 2).reshape(out * out, taps).astype(np.float64)
    output = (columns @ inputs["w"].astype(np.float64).T).reshape(out, out, channels)
    name = f"convolution {size}x{size}x{channels} {kernel}x{kernel} by {rows} rows"
    return Case(name, build.build(), inputs, output.astype(np.int32), out * out * channels * taps)


def _inputs(shapes: dict[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {name: rng.integers(-128, 128, shape, dtype=np.int8) for name, shape in shapes.items()}


CASES: tuple[Callable[[], Case], ...] = (
    lambda: recorded(384, 1024, 1024, "vta"),
    lambda: recorded(3136, 64, 576, "vta"),
    lambda: recorded(384, 1024, 1024, "neartile"),
    lambda: product(1024, 1024, 1024, 64, 64, 256),
    lambda: product(512, 512, 512, 32, 32, 512),
    lambda: product(512, 512, 512, 16, 64, 128),
    lambda: convolution(58, 64, 3, 4),
    lambda: convolution(30, 128, 3, 2),
)
"""Matrix multiplications as users get them, then tilings from large to small instructions, then convolutions."""
