"""LLVM's code for the microkernel: every accumulator in a register, one multiply-accumulate each, no spills."""

from __future__ import annotations

import json
import platform
import re
from dataclasses import dataclass, replace

import numpy as np
import onnx
import pytest
import tvm
from tvm import te, topi

import tvm_tiling as tt
from tvm_tiling.model import machine_code

pytestmark = pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64"), reason="compiles for x86-64 and reads its assembly"
)


@dataclass(frozen=True)
class Loop:
    """A loop without inner loops: its instructions."""

    lines: tuple[str, ...]

    def count(self, pattern: str) -> int:
        return sum(bool(re.search(pattern, line)) for line in self.lines)

    @property
    def spills(self) -> list[str]:
        return [line for line in self.lines if re.search(r"\(%rsp", line) and re.search(r"[xyz]mm", line)]


def inner_loops(assembly: str) -> list[Loop]:
    """Return every stretch from a block's label to a jump back to it without another such label in between."""
    found: list[Loop] = []
    label, lines = "", []
    for line in assembly.splitlines():
        text = line.split("#")[0].strip()
        if re.fullmatch(r"\.LBB\w+:", text):
            label, lines = text[:-1], []
        elif not text.startswith("."):
            lines.append(text)
            if text.startswith("j") and text.split()[-1] == label:
                found.append(Loop(tuple(lines)))
    return found


def compiled(m, n, k, machine, dtype="float32", **options) -> tuple[dict[str, object], list[Loop]]:
    a, b = te.placeholder((m, k), dtype, "A"), te.placeholder((k, n), dtype, "B")
    if dtype == "int8":
        x = te.reduce_axis((0, k), "x")
        op = te.compute((m, n), lambda i, j: te.sum(a[i, x].astype("int32") * b[x, j].astype("int32"), x))
    else:
        op = topi.matmul(a, b)
    sch = tt.tiling_schedule(op, machine, **options)
    lib = tvm.compile(sch.mod, target=tt.llvm_target(machine))
    return json.loads(str(sch.mod["main"].attrs["tvm_tiling.decision"])), inner_loops(lib.mod.inspect_source("asm"))


def check_float32(m, n, k, machine, register, **options):
    """The full tile's loop has m*z multiply-accumulates of whole vectors per step, z loads of B, and does not use the
    stack."""
    taken, loops = compiled(m, n, k, machine, **options)
    rows, vectors = taken["mr"], taken["nr"] // taken["lanes"]
    multiplied = [loop.count(rf"^vfmadd\w+ps\s.*%{register}") for loop in loops]
    # LLVM may unroll the loop, or peel a step.
    kernels = [(loop, found // (rows * vectors)) for loop, found in zip(loops, multiplied, strict=True) if found]
    kernels = [(loop, steps) for loop, steps in kernels if loop.count("^vfmadd") == steps * rows * vectors]
    assert kernels, f"no loop of {rows} x {vectors} multiply-adds, but {multiplied}"
    for loop, steps in kernels:
        assert loop.spills == []
        assert loop.count(r"^vmov[au]ps") <= steps * vectors
        assert loop.count("^vbroadcastss") + loop.count(r"\{1to\d+\}") >= steps * rows
        assert loop.count("^call") == 0
    return taken


@pytest.mark.parametrize("name", ["icelake-server-2c", "zen4-server-8c"])
def test_the_chosen_kernel_of_512_cubed(name):
    taken = check_float32(512, 512, 512, tt.Hardware.load(name), "zmm")
    assert taken["mr"] * taken["nr"] // taken["lanes"] > 8


@pytest.mark.parametrize("name", ["skylake-desktop-8c", "alderlake-desktop-8c"])
def test_the_chosen_kernel_without_avx512(name):
    check_float32(512, 512, 512, tt.Hardware.load(name), "ymm")


@pytest.mark.parametrize("tile", [(14, 2), (6, 4), (8, 3), (5, 5)])
@pytest.mark.parametrize("form", ["normal", "pack"])
def test_forced_tiles(tile, form):
    rows, vectors = tile
    machine = tt.Hardware.load("icelake-server-2c")
    taken = check_float32(rows * 8, vectors * 16 * 4, 200, machine, "zmm", form=form, microkernel=tile)
    assert (taken["mr"], taken["nr"]) == (rows, vectors * 16)


def test_edges_are_multiplied_in_vectors_of_their_own():
    """m = 17 and n = 40 in tiles of 8 by 2 vectors: the tails of one row and of half a vector are loops, too."""
    machine = tt.Hardware.load("icelake-server-2c")
    one = replace(machine, cpu=replace(machine.cpu, cores=1, threads=1))
    _, loops = compiled(17, 40, 200, one, form="normal", microkernel=(8, 2))
    counts = {loop.count("^vfmadd") for loop in loops}
    assert {16, 8} <= counts


@pytest.mark.parametrize(
    ("name", "instruction"),
    [
        ("icelake-server-2c", r"^vpdpbusd\s.*%zmm"),
        ("alderlake-desktop-8c", r"^\{vex\}\s+vpdpbusd\s.*%ymm"),  # AVX-VNNI: without EVEX, hence without AVX-512
    ],
)
def test_bytes_take_one_instruction_for_four(name, instruction):
    taken, loops = compiled(512, 512, 512, tt.Hardware.load(name), "int8")
    rows, vectors = taken["mr"], taken["nr"] // taken["lanes"]
    counts = [loop.count(instruction) for loop in loops]
    kernels = [loop for loop, count in zip(loops, counts, strict=True) if count and count % (rows * vectors) == 0]
    assert kernels, f"no loop of {rows} x {vectors} dot products, but {counts}"
    for loop in kernels:
        assert loop.spills == []
        assert loop.count("vpdpbusd") == loop.count(instruction)


def test_bytes_without_dot_products_are_multiplied_in_pairs():
    """vpmaddwd is exact; vpmaddubsw, which saturates, is not used."""
    taken, loops = compiled(512, 512, 512, tt.Hardware.load("skylake-desktop-8c"), "int8")
    tile = taken["mr"] * taken["nr"] // taken["lanes"]
    kernels = [loop for loop in loops if loop.count(r"^vpmaddwd\s.*%ymm") == tile]
    assert kernels
    for loop in kernels:
        assert loop.spills == []
        assert loop.count("^vpaddd") >= tile and loop.count("vpmaddubsw") == 0


def test_the_reader_of_assembly_sees_spills():
    text = (
        ".LBB0_1:\n\tvfmadd231ps\t%zmm0, %zmm1, %zmm2\n\tvmovaps\t%zmm2, 64(%rsp)\n\taddq\t$4, %rax\n\tjne\t.LBB0_1\n"
    )
    (loop,) = inner_loops(text)
    assert loop.count("^vfmadd") == 1 and loop.spills == ["vmovaps\t%zmm2, 64(%rsp)"]
    assert inner_loops(text.replace("jne\t.LBB0_1", "jne\t.LBB0_2")) == []


@pytest.mark.parametrize("shape", [(16, 1024, 1024), (127, 509, 257)])
def test_edge_tiles_spill_nothing_either(shape):
    """Return every loop with multiply-accumulates, including those of the last rows and columns."""
    _, loops = compiled(*shape, tt.Hardware.load("zen4-server-8c"), microkernel=(6, 4), weights="packed")
    kernels = [loop for loop in loops if loop.count("^vfmadd")]
    assert len(kernels) >= 2
    assert [spill for loop in kernels for spill in loop.spills] == []


def test_registers_are_no_heap_memory():
    operator = topi.matmul(te.placeholder((16, 64), name="A"), te.placeholder((64, 48), name="B"))
    machine = tt.Hardware.load("skylake-desktop-8c")
    sch = tt.tiling_schedule(operator, replace(machine, cpu=replace(machine.cpu, cores=1)), algorithm="normal")
    source = tvm.compile(sch.mod, target=tt.llvm_target(machine)).mod.inspect_source("ll")
    assert json.loads(str(sch.mod["main"].attrs["tvm_tiling.decision"]))["pack_b"] == "none"
    assert "AllocWorkspace" not in source


@pytest.mark.parametrize(("m", "weights", "asked"), [(49, "packed", True), (8, "packed", False), (49, "plain", False)])
def test_packed_weights_of_many_rows_are_asked_for_prepacked(m, weights, asked):
    machine = tt.Hardware.load("zen4-server-8c")
    taken, loops = compiled(m, 512, 256, machine, weights=weights)
    vectors = taken["nr"] // taken["lanes"]
    multiplied = taken["mr"] * vectors
    for loop in loops:
        steps = loop.count("^vfmadd") // multiplied
        if steps and loop.count("^vfmadd") == steps * multiplied:
            assert loop.count("^prefetcht1") == (steps * vectors if asked else 0)
            assert loop.spills == []
            break
    else:
        raise AssertionError("no loop of whole tiles")


def test_constants_of_a_gelu_do_not_displace_the_sums_of_a_tile(monkeypatch):
    """The register allocator took the loop over the results for as hot as that over the steps, and kept constants of
    the function in registers while it loaded and stored a sum in each step, which doubled the time."""
    c = onnx.numpy_helper.from_array
    weights = [
        c(np.full((768, 3072), 0.01, "float32"), "w"),
        c(np.full(3072, 0.01, "float32"), "bias"),
        c(np.float32(0.5), "half"),
        c(np.float32(2**0.5), "root"),
        c(np.float32(1), "one"),
    ]
    nodes = [
        onnx.helper.make_node("MatMul", ["x", "w"], ["product"]),
        onnx.helper.make_node("Add", ["product", "bias"], ["sum"]),
        onnx.helper.make_node("Div", ["sum", "root"], ["part"]),
        onnx.helper.make_node("Erf", ["part"], ["erf"]),
        onnx.helper.make_node("Add", ["erf", "one"], ["more"]),
        onnx.helper.make_node("Mul", ["sum", "more"], ["twice"]),
        onnx.helper.make_node("Mul", ["twice", "half"], ["y"]),
    ]
    x, y = (onnx.helper.make_tensor_value_info(n, 1, shape) for n, shape in (("x", (384, 768)), ("y", (384, 3072))))
    graph = onnx.helper.make_graph(nodes, "gelu", [x], [y], weights)
    lowered, kept = machine_code._lowered, []

    def keep(func, target):
        kept.append((lowered(func, target), target))
        return kept[-1][0]

    monkeypatch.setattr(machine_code, "_lowered", keep)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    exe = tt.compile(model, target=tt.Hardware.load("zen4-server-8c"), cache=False)
    taken = next(row.decision for row in exe.report().operators if row.kind == "gemm")
    build = tvm.get_global_func("target.build.llvm")
    loops = [loop for mod, target in kept for loop in inner_loops(build(mod, target).inspect_source("asm"))]
    sums = taken["mr"] * taken["nr"] // taken["lanes"]
    kernels = [loop for loop in loops if loop.count("^vfmadd") == sums and loop.count("^vbroadcastss") >= taken["mr"]]
    assert kernels and not any(loop.spills for loop in kernels)
