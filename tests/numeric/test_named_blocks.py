"""Blocks of the kernels for TVM users: found by name, with loops and regions, annotated, and with a consumer moved to
their loops, as documented in docs/schedules.md."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import tvm
from tvm import relax, s_tir, te, tirx, topi

import tvm_tiling as tt
from tvm_tiling.lowering.named_blocks import without_blocks

pytestmark = pytest.mark.blocks


def product(m, k, n, dtype="float32"):
    a, b = te.placeholder((m, k), dtype, "A"), te.placeholder((k, n), dtype, "B")
    r = te.reduce_axis((0, k), name="r")
    return te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")


def convolution(size, ci, co, kernel, groups=1):
    x = te.placeholder((1, size, size, ci), name="X")
    w = te.placeholder((kernel, kernel, ci // groups, co), name="W")
    return topi.nn.conv(x, w, [1, 1], [kernel // 2] * 4, [1, 1], groups, "NHWC", "HWIO")


def machine(cores=2):
    known = tt.Hardware.load("icelake-server-2c")
    return replace(known, cpu=replace(known.cpu, cores=cores, threads=cores))


def children(sch, block):
    """Return the names of the blocks directly within a block."""
    return [str(sch.get(child).name_hint) for child in sch.get_child_blocks(sch.get_sblock(block))]


def kinds(names):
    """Return the names without the numbers of repeated ones."""
    return list(dict.fromkeys(name.rstrip("0123456789").rstrip("_") for name in names))


TILE = ["microkernel", "epilogue"]
# algorithm: operator, options, blocks of the root block, blocks of a tile
FORMS = {
    "normal": (product(64, 64, 64), {"form": "normal"}, ["tile"], TILE),
    "packed": (product(768, 1024, 1024), {"microkernel": (8, 2)}, ["pack_b", "tile"], TILE),
    "inline": (product(24, 1024, 64), {"form": "inline", "microkernel": (12, 2)}, ["copy_a", "tile"], TILE),
    "stream along n": (product(1, 512, 512), {"form": "stream"}, ["tile"], TILE),
    "split K": (product(8, 16384, 16), {}, ["tile", "add_partial_sums"], ["microkernel", "partial_sums"]),
    "direct": (convolution(14, 32, 32, 3), {"form": "direct"}, ["pack_w", "copy_input", "tile"], TILE),
    "winograd": (
        convolution(16, 32, 32, 3),
        {"form": "winograd"},
        ["pack_w", "transform_input", "tile", "transform_output"],
        ["microkernel"],
    ),
    "wfold": (convolution(28, 3, 4, 3), {"form": "wfold"}, ["pack_w", "clear_input", "copy_input", "tile"], TILE),
    "depthwise": (convolution(14, 32, 32, 3, groups=32), {"form": "depthwise"}, ["tile"], TILE),
}


@pytest.mark.parametrize("form", FORMS)
def test_blocks_have_the_documented_names(form):
    op, options, outer, inner = FORMS[form]
    sch = tt.tiling_schedule(op, machine(), **options)
    found = children(sch, "root")
    assert kinds(found) == outer
    assert kinds(children(sch, "tile")) == inner
    for name in (*found, *children(sch, "tile")):
        assert str(sch.get(sch.get_sblock(name)).name_hint) == name


def test_the_weights_packing_has_a_block_too():
    sch = tt.tiling_schedule(product(64, 64, 64), machine(), weights="packed")
    assert str(sch.get(sch.get_sblock("pack_b", func_name="main_pack")).name_hint) == "pack_b"


def test_a_block_has_its_loops_as_variables_and_says_what_it_accesses():
    sch = tt.tiling_schedule(product(64, 96, 64), machine(), microkernel=(4, 2), algorithm="normal")
    tile = sch.get_sblock("tile")
    extents = [int(sch.get(loop).extent) for loop in sch.get_loops(tile)]
    assert extents == [2, 1, 1, 1, 16, 1]  # task, batch, columns, K, rows of tiles, panels
    assert [int(axis.dom.extent) for axis in sch.get(tile).iter_vars] == extents[:1] + extents[2:]
    regions = {
        str(r.source.name): [int(s.extent) for s in r.region] for r in (*sch.get(tile).reads, *sch.get(tile).writes)
    }
    assert regions == {"A": [4, 96], "B": [96, 32], "C": [4, 32]}
    assert int(sch.get(sch.get_loops(sch.get_sblock("microkernel"))[-1]).extent) == 96


def test_variables_are_spatial_reductions_or_opaque():
    """The rows of a tile are different results in each iteration, blocks of K add to the same; tasks that pack the same
    do so repeatedly."""
    sch = tt.tiling_schedule(product(96, 2048, 128), machine(), microkernel=(8, 2))
    tile = [int(axis.iter_type) for axis in sch.get(sch.get_sblock("tile")).iter_vars]
    spatial, reduction, opaque = tirx.IterVar.DataPar, tirx.IterVar.CommReduce, tirx.IterVar.Opaque
    assert tile == [spatial, spatial, reduction, spatial, spatial]
    sch = tt.tiling_schedule(product(768, 1024, 1024), machine(), microkernel=(8, 2))
    assert opaque in [int(axis.iter_type) for axis in sch.get(sch.get_sblock("pack_b")).iter_vars]


def test_edges_are_blocks_of_their_own():
    sch = tt.tiling_schedule(product(66, 64, 72), machine(cores=1), microkernel=(4, 2), algorithm="normal")
    tiles = ["tile", "tile_1", "tile_2", "tile_3"]
    assert [name for name in children(sch, "root") if not name.startswith("pack_b")] == tiles
    written = [sch.get(sch.get_sblock(tile)).writes[0].region for tile in tiles]
    assert [[int(r.extent) for r in region] for region in written] == [[4, 32], [4, 8], [2, 32], [2, 8]]


def test_annotations_stay_in_the_module_and_kernels_run_as_before():
    sch = tt.tiling_schedule(product(64, 64, 64))
    tile = sch.get_sblock("tile")
    sch.annotate(tile, "note", "seen")
    sch.annotate(sch.get_loops(tile)[0], "loop_note", 1)
    text = sch.mod.script()
    assert 'T.sblock_attr({"note": "seen"})' in text and '"loop_note": 1' in text
    check(sch.mod["main"], (64, 64, 64), np.positive)


def test_what_is_done_after_is_in_the_trace():
    """The trace of the schedule starts with its blocks: user transformations replay on a new instance of the
    schedule."""
    op = product(64, 64, 64)
    sch = tt.tiling_schedule(op, machine(), microkernel=(4, 2))
    tile = sch.get_sblock("tile")
    stored = sch.cache_write(tile, 0, "global")
    sch.reverse_compute_at(stored, sch.get_loops(tile)[-2])
    again = tt.tiling_schedule(op, machine(), microkernel=(4, 2))
    sch.trace.apply_to_schedule(again, remove_postproc=False)
    tvm.ir.assert_structural_equal(again.mod, sch.mod)


# ---- a consumer ------------------------------------------------------------------------------------------------------


def exponential(m, n):
    x = te.placeholder((m, n), name="X")
    return te.create_prim_func([x, te.compute((m, n), lambda i, j: te.exp(x[i, j]), name="consumer")])


def fused(kernel, m, n, behind=None):
    """A scheduled kernel and a consumer of its result, an exponential, as Relax fuses two functions."""
    behind = behind or exponential(m, n)
    builder = relax.BlockBuilder()
    functions = [builder.add_func(f.without_attr("global_symbol"), name) for name, f in (("c", kernel), ("d", behind))]
    shapes = [tuple(int(e) for e in p.shape) for p in kernel.params]

    def parameters():
        return [relax.Var(f"p{i}", relax.TensorType(shape, "float32")) for i, shape in enumerate(shapes[:-1])]

    arguments = parameters()
    result = relax.TensorType((m, n), "float32")
    with builder.function("fused", arguments, attrs={"Primitive": True}):
        with builder.dataflow():
            c = builder.emit(relax.call_tir(functions[0], arguments, result))
            d = builder.emit_output(relax.call_tir(functions[1], (c,), result))
        builder.emit_func_output(d)
    variable, arguments = builder.get().get_global_var("fused"), parameters()
    with builder.function("main", arguments):
        with builder.dataflow():
            whole = builder.emit_output(relax.Call(variable, arguments))
        builder.emit_func_output(whole)
    module = relax.transform.FuseTIR()(builder.get())
    return s_tir.Schedule(module["fused"].with_attr("global_symbol", "main"))


def check(func, size, behind):
    m, k, n = size
    a, b = np.random.rand(m, k).astype("float32"), np.random.rand(k, n).astype("float32") / k
    out = tvm.runtime.empty((m, n), "float32")
    tvm.compile(func, target=tt.llvm_target())["main"](tvm.runtime.tensor(a), tvm.runtime.tensor(b), out)
    np.testing.assert_allclose(out.numpy(), behind(a @ b), rtol=1e-4)


CONSUMED = {
    "read in place": ((64, 64, 64), {"microkernel": (4, 2), "form": "normal"}),
    "rows copied": ((512, 64, 512), {"microkernel": (8, 2), "form": "pack"}),
    "packed": ((768, 1024, 1024), {"microkernel": (8, 2), "form": "pack"}),
    "K in blocks": ((96, 2048, 128), {"microkernel": (8, 2)}),
    "K in blocks of two lengths": ((48, 1000, 512), {"microkernel": (8, 2), "form": "pack"}),
    "stream": ((1, 256, 1024), {"form": "stream"}),
}


@pytest.mark.parametrize("case", CONSUMED)
def test_a_consumer_moves_to_every_loop_around_a_tile(case):
    (m, k, n), options = CONSUMED[case]
    kernel = tt.tiling_schedule(product(m, k, n), machine(), **options).mod["main"]
    sch = fused(kernel, m, n)
    depth = len(sch.get_loops(sch.get_sblock("tile")))
    assert depth >= 3
    for number in range(depth):
        sch = fused(kernel, m, n)
        loop = sch.get_loops(sch.get_sblock("tile"))[number]
        sch.reverse_compute_at(sch.get_sblock("consumer"), loop)
        assert len(sch.get_loops(sch.get_sblock("consumer"))) > number + 1
        check(sch.mod["main"], (m, k, n), np.exp)


def test_with_rows_left_over_a_consumer_moves_to_the_loops_around_all_tiles():
    (m, k, n) = (66, 64, 64)
    kernel = tt.tiling_schedule(product(m, k, n), microkernel=(4, 2), algorithm="normal").mod["main"]
    sch = fused(kernel, m, n)
    loops = sch.get_loops(sch.get_sblock("tile"))
    with pytest.raises(s_tir.ScheduleError, match="all the producer"):
        sch.reverse_compute_at(sch.get_sblock("consumer"), loops[-1])
    sch.reverse_compute_at(sch.get_sblock("consumer"), loops[0])
    check(sch.mod["main"], (m, k, n), np.exp)


def test_tvm_refuses_a_consumer_where_shares_of_the_cores_differ():
    (m, k, n) = (60, 512, 32)
    kernel = tt.tiling_schedule(product(m, k, n), machine(), microkernel=(4, 2), algorithm="normal").mod["main"]
    sch = fused(kernel, m, n)
    with pytest.raises(s_tir.ScheduleError, match="stage pipeline"):
        sch.reverse_compute_at(sch.get_sblock("consumer"), sch.get_loops(sch.get_sblock("tile"))[0])
    # The alternative: the kernel is scheduled with its consumer, which becomes its epilogue.
    summed = product(m, k, n)
    whole = tt.tiling_schedule(te.compute((m, n), lambda i, j: te.exp(summed[i, j])))
    check(whole.mod["main"], (m, k, n), np.exp)


def test_a_module_of_relax_is_tiled_first_and_fused_then():
    """It has 64-bit indices, the kernels' loops 32-bit ones."""
    (m, k, n) = (96, 64, 128)
    builder = relax.BlockBuilder()
    a, b = (relax.Var(name, relax.TensorType(shape, "float32")) for name, shape in (("a", (m, k)), ("b", (k, n))))
    with builder.function("main", [a, b]):
        with builder.dataflow():
            c = builder.emit_output(relax.op.exp(builder.emit(relax.op.matmul(a, b))))
        builder.emit_func_output(c)
    module = tt.ApplyTiling(machine())(relax.transform.LegalizeOps()(builder.get()))
    sch = fused(module["matmul"], m, n, module["tir_exp"])
    sch.reverse_compute_at(sch.get_sblock("compute"), sch.get_loops(sch.get_sblock("tile"))[0])
    check(sch.mod["main"], (m, k, n), np.exp)


@pytest.mark.parametrize("form", ["matrix multiplication", "winograd", "wfold"])
def test_the_code_is_the_same_without_blocks(form):
    """Models are compiled in this way, which is faster."""
    matmul = form == "matrix multiplication"
    op = product(37, 129, 70) if matmul else convolution(14, 16, 48, 3)

    def code() -> tuple[str, int]:
        module = tt.tiling_schedule(op, algorithm=None if matmul else form).mod
        return tvm.compile(module, target=tt.llvm_target()).mod.inspect_source("asm"), module.script().count("sblock(")

    named, blocks = code()
    with without_blocks():
        unnamed, roots = code()
    assert named == unnamed and blocks > roots == 1
