"""Measurement kernels in TIR, compiled by the LLVM that compiles the kernels whose cost is predicted.

Each function returns a module's "main". Parallel loops have one iteration per core, which works on its own part of the
arrays.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T  # noqa: N812

from ..lowering.registers import register, registers

PROBE_CYCLES = 32  # of one step of probe(): 16 exclusive ors and 16 additions, each dependent on the previous one


@contextlib.contextmanager
def _main() -> Iterator[None]:
    T.func_name("main")
    T.func_attr({"global_symbol": "main", "tirx.noalias": True})
    yield


def probe() -> Any:
    """`steps` times, a chain of PROBE_CYCLES dependent integer operations of one cycle each, on one core. Arguments:
    keys (2,) int64, out (1,) int64, steps."""
    with IRBuilder() as builder, T.prim_func(s_tir=True), _main():
        keys = T.arg("keys", T.Buffer((2,), "int64"))
        out = T.arg("out", T.Buffer((1,), "int64"))
        steps = T.arg("steps", T.int32())
        with T.sblock("root"):
            key, other, value = registers(3, 1, "int64")
            T.buffer_store(key, keys[0], [0])
            T.buffer_store(other, keys[1], [0])
            T.buffer_store(value, out[0], [0])
            with T.serial(0, steps):
                for _ in range(PROBE_CYCLES // 2):
                    T.buffer_store(value, tirx.bitwise_xor(value[0], key[0]) + other[0], [0])
            T.buffer_store(out, value[0], [0])
    return builder.get()


def read(lanes: int, vectors: int, cores: int) -> Any:
    """`repeats` times, read `rows` rows of `vectors` vectors, `stride` elements apart, from `offset` on, and add them.

    Arguments: source (cores, n) float32, out (cores, vectors*lanes), rows, stride, offset, repeats.
    """
    whole = T.ramp(0, 1, lanes)
    with IRBuilder() as builder, T.prim_func(s_tir=True), _main():
        extent = T.arg("extent", T.int64())
        source = T.arg("source", T.Buffer((cores, extent), "float32"))
        out = T.arg("out", T.Buffer((cores, vectors * lanes), "float32"))
        rows, stride = T.arg("rows", T.int64()), T.arg("stride", T.int64())
        offset, repeats = T.arg("offset", T.int64()), T.arg("repeats", T.int32())
        with T.sblock("root"), T.parallel(0, cores) as core:
            sums = registers(vectors, lanes, "float32")
            for x in sums:
                T.buffer_store(x, T.broadcast(T.float32(0), lanes), [whole])
            with T.serial(0, repeats), T.serial(0, rows) as row:
                for place, x in enumerate(sums):
                    at = T.ramp(row * stride + offset + place * lanes, 1, lanes)
                    T.buffer_store(x, x[whole] + source[core, at], [whole])
            for place, x in enumerate(sums):
                T.buffer_store(out, x[whole], [core, T.ramp(place * lanes, 1, lanes)])
    return builder.get()


def chase(cores: int) -> Any:
    """Follow `steps` links, each of which is known only when the previous one has been loaded. Arguments: links (cores,
    n) int32, out (cores,) int32, steps.
    """
    with IRBuilder() as builder, T.prim_func(s_tir=True), _main():
        extent = T.arg("extent", T.int64())
        links = T.arg("links", T.Buffer((cores, extent), "int32"))
        out = T.arg("out", T.Buffer((cores,), "int32"))
        steps = T.arg("steps", T.int32())
        with T.sblock("root"), T.parallel(0, cores) as core:
            place = register(1, "int32")
            T.buffer_store(place, T.int32(0), [0])
            with T.serial(0, steps):
                T.buffer_store(place, links[core, place[0]], [0])
            T.buffer_store(out, place[0], [core])
    return builder.get()


def exchange(lanes: int, cores: int) -> Any:
    """`rounds` times, every core writes its own row, then reads the row of the core `shift` positions later. With shift
    0 there are no cross-core transfers. Arguments: lines (cores, n) float32, out (cores, lanes), vectors, shift,
    rounds.
    """
    whole = T.ramp(0, 1, lanes)
    with IRBuilder() as builder, T.prim_func(s_tir=True), _main():
        extent = T.arg("extent", T.int64())
        lines = T.arg("lines", T.Buffer((cores, extent), "float32"))
        out = T.arg("out", T.Buffer((cores, lanes), "float32"))
        vectors, shift = T.arg("vectors", T.int64()), T.arg("shift", T.int32())
        rounds = T.arg("rounds", T.int32())
        with T.sblock("root"), T.serial(0, rounds) as number:
            with T.parallel(0, cores) as core, T.serial(0, vectors) as vector:
                value = T.broadcast(tirx.Cast("float32", number), lanes)
                T.buffer_store(lines, value, [core, T.ramp(vector * lanes, 1, lanes)])
            with T.parallel(0, cores) as core:
                total = register(lanes, "float32")
                T.buffer_store(total, out[core, whole], [whole])
                with T.serial(0, vectors) as vector:
                    theirs = lines[(core + shift) % cores, T.ramp(vector * lanes, 1, lanes)]
                    T.buffer_store(total, total[whole] + theirs, [whole])
                T.buffer_store(out, total[whole], [core, whole])
    return builder.get()


def launches(lanes: int, cores: int) -> Any:
    """`rounds` parallel loops, in each of which a core adds one vector. Arguments: out (cores, lanes) float32,
    rounds."""
    whole = T.ramp(0, 1, lanes)
    with IRBuilder() as builder, T.prim_func(s_tir=True), _main():
        out = T.arg("out", T.Buffer((cores, lanes), "float32"))
        rounds = T.arg("rounds", T.int32())
        with T.sblock("root"), T.serial(0, rounds), T.parallel(0, cores) as core:
            T.buffer_store(out, out[core, whole] + T.broadcast(T.float32(1), lanes), [core, whole])
    return builder.get()


def tiles(lanes: int, rows: int, vectors: int) -> Any:
    """`repeats` register tiles of rows x vectors, each a loop over `depth` steps on the same operands in L1.

    Arguments: a (rows, depth) float32, b (depth, vectors*lanes), out (rows, vectors*lanes), depth, repeats.
    """
    whole = T.ramp(0, 1, lanes)
    with IRBuilder() as builder, T.prim_func(s_tir=True), _main():
        depth = T.arg("depth", T.int64())
        a = T.arg("a", T.Buffer((rows, depth), "float32"))
        b = T.arg("b", T.Buffer((depth, vectors * lanes), "float32"))
        out = T.arg("out", T.Buffer((rows, vectors * lanes), "float32"))
        repeats = T.arg("repeats", T.int32())
        with T.sblock("root"), T.serial(0, repeats):
            sums = registers(rows * vectors, lanes, "float32")
            for x in sums:
                T.buffer_store(x, T.broadcast(T.float32(0), lanes), [whole])
            with T.serial(0, depth) as k:
                for place, x in enumerate(sums):
                    row, vector = divmod(place, vectors)
                    right = b[k, T.ramp(vector * lanes, 1, lanes)]
                    T.buffer_store(x, x[whole] + T.broadcast(a[row, k], lanes) * right, [whole])
            for place, x in enumerate(sums):
                row, vector = divmod(place, vectors)
                T.buffer_store(out, x[whole], [row, T.ramp(vector * lanes, 1, lanes)])
    return builder.get()
