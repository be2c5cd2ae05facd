"""Matrix multiplications as TOPI and Relax emit them, with fused operators before and after, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
import tvm_ffi
from products import Product, assert_close, decision, expected, native, random_values, tensors
from tvm import relax, te, tirx, topi
from tvm.script import ir as I  # noqa: N812
from tvm.script import relax as R  # noqa: N812

import tvm_tiling as tt


def run(op, arrays, shape, dtype="float32", hardware=None, **options):
    """Schedule and run `op` on copies of `arrays`."""
    hardware = hardware or native()
    lib = tvm.compile(tt.tiling_schedule(op, hardware, **options).mod, target=tt.llvm_target(hardware))
    out = tvm.runtime.empty(shape, dtype)
    lib["main"](*(tvm.runtime.tensor(x) for x in arrays), out)
    return out.numpy()


def values(*shapes, dtype="float32"):
    rng = np.random.default_rng(3)
    return [random_values(rng, shape, dtype) for shape in shapes]


def placeholders(*shapes, dtype="float32"):
    return [te.placeholder(shape, dtype, f"P{n}") for n, shape in enumerate(shapes)]


@pytest.mark.parametrize(("trans_a", "trans_b"), [(False, False), (True, False), (False, True), (True, True)])
def test_topi_matmul(trans_a, trans_b):
    p = Product(m=17, n=33, k=31, trans_a=trans_a, trans_b=trans_b)
    a, b = placeholders(p.shape_a, p.shape_b)
    arrays = values(p.shape_a, p.shape_b)
    c = topi.nn.relu(topi.matmul(a, b, trans_a, trans_b))
    value, allowed, _ = expected(p, arrays)
    assert_close(run(c, arrays, p.shape_c), np.maximum(value, 0), allowed)


@pytest.mark.parametrize(("m", "n"), [(1, 33), (17, 127), (17, 1)])
def test_topi_dense(m, n):
    p = Product(m=m, n=n, k=65, trans_b=True, epilogue=("bias_n", "relu"))
    shapes = (p.shape_a, p.shape_b, (n,))
    x, w, bias = placeholders(*shapes)
    arrays = values(*shapes)
    value, allowed, _ = expected(p, arrays)
    assert_close(run(topi.nn.relu(topi.nn.dense(x, w, bias)), arrays, (m, n)), value, allowed)


@pytest.mark.parametrize(("dtype", "out"), [("float32", "float32"), ("int8", "int32")])
def test_topi_batch_matmul(dtype, out):
    p = Product(m=15, n=17, k=33, batch=(5,), trans_b=True, dtype=dtype)
    x, y = placeholders(p.shape_a, p.shape_b, dtype=dtype)
    arrays = values(p.shape_a, p.shape_b, dtype=dtype)
    value, allowed, _ = expected(p, arrays)
    result = run(topi.nn.batch_matmul(x, y, out_dtype=out), arrays, p.shape_c, out)
    assert_close(result, value, allowed)


def test_operands_that_are_computed():
    p = Product(m=18, n=33, k=65)
    x, y = placeholders(p.shape_a, p.shape_b)
    arrays = values(p.shape_a, p.shape_b)
    value, allowed, _ = expected(p, [np.maximum(arrays[0], 0), arrays[1] * np.float32(0.5)])
    c = topi.matmul(topi.nn.relu(x), topi.multiply(y, tirx.const(0.5, "float32")))
    assert_close(run(c, arrays, p.shape_c), value, allowed)


def test_one_tensor_as_both_operands():
    p = Product(m=19, n=19, k=33, trans_b=True)
    (x,) = placeholders((19, 33))
    (array,) = values((19, 33))
    value, allowed, _ = expected(p, [array, array])
    assert_close(run(topi.matmul(x, x, False, True), [array], p.shape_c), value, allowed)


def test_a_result_that_is_transposed():
    p = Product(m=19, n=35, k=33)
    x, y = placeholders(p.shape_a, p.shape_b)
    k = te.reduce_axis((0, 33), "k")
    arrays = values(p.shape_a, p.shape_b)
    value, allowed, _ = expected(p, arrays)
    c = te.compute((35, 19), lambda j, i: te.sum(x[i, k] * y[k, j], k))
    assert_close(run(c, arrays, (35, 19)), value.T, allowed.T)
    d = topi.transpose(topi.matmul(x, y))
    assert_close(run(d, arrays, (35, 19)), value.T, allowed.T)


def test_a_batch_that_shares_a():
    p = Product(m=7, n=17, k=33)
    x, y = placeholders((7, 33), (3, 33, 17))
    k = te.reduce_axis((0, 33), "k")
    arrays = values((7, 33), (3, 33, 17))
    c = te.compute((3, 7, 17), lambda b, i, j: te.sum(x[i, k] * y[b, k, j], k))
    result = run(c, arrays, (3, 7, 17))
    for n in range(3):
        value, allowed, _ = expected(p, [arrays[0], arrays[1][n]])
        assert_close(result[n], value, allowed)


def test_several_axes_summed_and_fused():
    """A matrix multiplication over [h, w] pixels and a reduction over [r, c], like a 1x1 or unrolled convolution."""
    x, y = placeholders((3, 5, 2, 11), (2, 11, 17))
    r, c = te.reduce_axis((0, 2), "r"), te.reduce_axis((0, 11), "c")
    arrays = values((3, 5, 2, 11), (2, 11, 17))
    value, allowed, _ = expected(Product(m=15, n=17, k=22), [arrays[0].reshape(15, 22), arrays[1].reshape(22, 17)])
    op = te.compute((3, 5, 17), lambda h, w, j: te.sum(x[h, w, r, c] * y[r, c, j], [r, c]))
    assert_close(run(op, arrays, (3, 5, 17)).reshape(15, 17), value, allowed)


def test_a_module_of_several_functions():
    products = {"first": Product(m=17, n=33, k=31), "second": Product(m=2, n=17, k=65, epilogue=("relu",))}
    mod = tvm.IRModule({name: te.create_prim_func(tensors(p)) for name, p in products.items()})
    sch = tt.tiling_schedule(mod, native(), weights="packed")
    assert {g.name_hint for g in sch.mod.functions} == {"first", "first_pack", "second", "second_pack"}
    lib = tvm.compile(sch.mod, target=tt.llvm_target())
    for name, p in products.items():
        a, b = values(p.shape_a, p.shape_b)
        buffer = sch.mod[f"{name}_pack"].params[1]
        packed = tvm.runtime.empty([int(s) for s in buffer.shape], str(buffer.dtype))
        lib[f"{name}_pack"](tvm.runtime.tensor(b), packed)
        out = tvm.runtime.empty(p.shape_c, "float32")
        lib[name](tvm.runtime.tensor(a), packed, out)
        value, allowed, _ = expected(p, [a, b])
        assert_close(out.numpy(), value, allowed)


@pytest.mark.parametrize(("m", "n"), [(17, 33), (17, 1), (1, 33)])
def test_packed_operator(m, n):
    from tvm_tiling.schedule import packed_operator

    p = Product(m=m, n=n, k=31, trans_b=True)
    *_, result = tensors(p)
    a, b = values(p.shape_a, p.shape_b)
    product = packed_operator(result, native())
    packed, out = product.pack(tvm.runtime.tensor(b)), tvm.runtime.empty(p.shape_c, "float32")
    product(tvm.runtime.tensor(a), packed, out)
    value, allowed, _ = expected(p, [a, b])
    assert_close(out.numpy(), value, allowed)
    # A single column needs no layout: the packed form is a copy.
    assert (product.tiling.pack_b == "ahead") == (n > 1)


# ---- Relax -------------------------------------------------------------------------------------------------------


@I.ir_module
class Layers:
    """relu(x * w + b) * v, and a softmax that no rule supports."""

    @R.function
    def main(
        x: R.Tensor((17, 65), "float32"),  # noqa: N805
        w: R.Tensor((65, 33), "float32"),
        b: R.Tensor((33,), "float32"),
        v: R.Tensor((33, 19), "float32"),
    ):
        with R.dataflow():
            y = R.nn.relu(R.add(R.matmul(x, w), b))
            z = R.nn.softmax(R.matmul(y, v))
            R.output(z)
        return z


def test_relax():
    mod = Layers
    for step in ("LegalizeOps", "AnnotateTIROpPattern", "FuseOps", "FuseTIR"):
        mod = getattr(relax.transform, step)()(mod)
    before = {g.name_hint for g in mod.functions}
    mod = tt.ApplyTiling(native())(mod)
    assert {g.name_hint for g in mod.functions} == before
    functions = {g.name_hint: f for g, f in mod.functions.items() if isinstance(f, tirx.PrimFunc)}
    supported = {name for name, f in functions.items() if "tvm_tiling.decision" in (f.attrs or {})}
    assert supported == {"fused_matmul_add_relu", "matmul1"} and set(functions) - supported == {"softmax"}
    assert decision(functions["fused_matmul_add_relu"])["op"] == "gemm"

    machine = relax.VirtualMachine(tvm.compile(mod, target=tt.llvm_target()), tvm.cpu())
    x, w, b, v = values((17, 65), (65, 33), (33,), (33, 19))
    result = machine["main"](*(tvm.runtime.tensor(t) for t in (x, w, b, v))).numpy()
    x, w, b, v = (t.astype(np.float64) for t in (x, w, b, v))
    z = np.maximum(x @ w + b, 0) @ v
    z = np.exp(z - z.max(-1, keepdims=True))
    np.testing.assert_allclose(result, z / z.sum(-1, keepdims=True), rtol=1e-3, atol=1e-6)


def test_relax_functions_are_scheduled_once():
    mod = Layers
    for step in ("LegalizeOps", "AnnotateTIROpPattern", "FuseOps", "FuseTIR"):
        mod = getattr(relax.transform, step)()(mod)
    once = tt.ApplyTiling(native())(mod)
    assert tvm_ffi.structural_equal(tt.ApplyTiling(native())(once), once)
