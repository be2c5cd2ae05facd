"""Errors of users about an operator: one sentence each, without TVM's traceback."""

from __future__ import annotations

import pytest
import tvm
from products import Product, native, operator
from tvm import relax, te, topi

import tvm_tiling as tt
from tvm_tiling.errors import UnsupportedOperator
from tvm_tiling.schedule import packed_operator


def message(error: type[Exception], op, target=None, **options) -> str:
    """Return the message with which scheduling `op` fails."""
    with pytest.raises(error) as caught:
        tt.tiling_schedule(op, native() if target is None else target, **options)
    assert isinstance(caught.value, tt.TilingError)
    text = str(caught.value)
    assert "\n" not in text and len(text) < 300
    assert not any(word in text for word in ("Traceback", "Check failed", ".cc", "0x", "InternalError"))
    return text


def matmul(m=8, n=8, k=8, **rest):
    return operator(Product(m=m, n=n, k=k, **rest))


def topi_matmul(m, k, n):
    return topi.matmul(te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B"))


@pytest.mark.parametrize("size", [0, -3])
@pytest.mark.parametrize("axis", range(3))
def test_a_size_below_one(axis, size):
    sizes = [8, 8, 8]
    sizes[axis] = size
    assert f"of block 'T_matmul' has extent {size}; expected 1 or more" in message(
        tt.UnsupportedOperator, topi_matmul(*sizes)
    )


def test_operands_that_do_not_match():
    a, b = te.placeholder((8, 7), name="A"), te.placeholder((9, 8), name="B")
    x = te.reduce_axis((0, 9), "x")
    op = te.compute((8, 8), lambda i, j: te.sum(a[i, x] * b[x, j], x))
    assert "A's axis 1 is read up to 9, but has 7 elements" in message(tt.UnsupportedOperator, op)


@pytest.mark.parametrize("dtype", ["int16", "int32", "bool", "uint32"])
def test_a_type_that_is_not_supported(dtype):
    a, b = te.placeholder((8, 8), dtype, "A"), te.placeholder((8, 8), dtype, "B")
    x = te.reduce_axis((0, 8), "x")
    op = te.compute((8, 8), lambda i, j: te.sum(a[i, x].astype("int32") * b[x, j].astype("int32"), x))
    text = message(tt.UnsupportedOperator, op)
    # The conversion does not preserve an unsigned number as large as the sum's type, so it stays in the operand.
    dtype = "int32" if dtype == "uint32" else dtype
    assert f"operands of type {dtype} are not supported; expected float64, float32" in text


def test_operands_of_two_types():
    text = message(tt.UnsupportedOperator, matmul(dtype="float16", dtype_b="float32", out="float32"))
    assert "its operands are float16 and float32; expected one type" in text


@pytest.mark.parametrize(
    ("make", "part"),
    [
        (lambda x: topi.nn.relu(x), "it has 0 reductions; expected one"),
        (lambda x: topi.nn.softmax(x), "it has 2 reductions; expected one"),
        (lambda x: topi.sum(x, 1), "is not a sum of products"),
        (lambda x: topi.max(x, 1), "is not a sum of products"),
        (lambda x: topi.matmul(topi.matmul(x, x), x), "it has 2 reductions; expected one"),
    ],
)
def test_what_is_not_a_gemm(make, part):
    assert part in message(tt.UnsupportedOperator, make(te.placeholder((8, 8), name="X")))


def test_the_function_is_named():
    mod = tvm.IRModule({"exp": te.create_prim_func([x := te.placeholder((8,), name="X"), topi.exp(x)])})
    assert message(tt.UnsupportedOperator, mod).startswith("exp: not a matrix multiplication")


def test_a_module_without_functions():
    assert message(tt.UnsupportedOperator, tvm.IRModule()).startswith("the IRModule contains no PrimFunc; expected ")
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((8, 8), "float32"))
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(relax.op.nn.relu(x)))
    assert "contains no PrimFunc" in message(tt.UnsupportedOperator, builder.get())


@pytest.mark.parametrize("op", ["gemm", 7, None])
def test_what_is_not_an_operator(op):
    assert "is not an operator; expected a te.Tensor" in message(tt.UnsupportedOperator, op)


@pytest.mark.parametrize("target", ["cuda", "llvm -mcpu=skylake", 7, tvm.target.Target("c")])
def test_a_target_that_is_not_supported(target):
    assert "is not supported; expected 'llvm', a preset" in message(tt.HardwareError, matmul(), target)


def test_a_machine_without_a_unit_for_it():
    machine = tt.Hardware.rnn(multipliers=64)
    assert "rnn has no unit for a matrix multiplication of 8 x 8 by 8 x 8, only column; expected" in message(
        tt.HardwareError, matmul(), machine
    )
    with pytest.raises(tt.HardwareError, match="has no CPU"):
        tt.llvm_target(tt.Hardware.load("neartile"))


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (
            {"form": "fast"},
            "algorithm = 'fast' is not a kernel variant of a gemm on a CPU; expected normal, nocopy",
        ),
        ({"form": "stream"}, "supports at most"),
        ({"form": "inline"}, "copies rows beyond"),
        ({"microkernel": (100, 4)}, "needs 405 vector registers"),
        ({"microkernel": (0, 1)}, "expected (m, z) of at least 1"),
        ({"microkernel": "6x4"}, "expected two whole numbers"),
    ],
)
def test_what_cannot_be_forced(options, part):
    assert part in message(tt.HardwareError, matmul(m=5, n=16, k=16), native(priority_ratio=1.0), **options)


@pytest.mark.parametrize("form", ["normal", "nocopy", "inline", "stream"])
def test_forms_that_a_gemm_cannot_take(form):
    assert "expected " in message(tt.HardwareError, matmul(dtype="int8"), form=form)


@pytest.mark.parametrize("weights", ["wrong", None, True])
def test_weights_that_are_neither_plain_nor_packed(weights):
    text = message(tt.UnsupportedOperator, matmul(), weights=weights)
    assert text == f"weights = {weights!r}; expected 'plain', 'packed'"


def test_weights_that_cannot_be_packed_prepacked():
    x, y = te.placeholder((8, 8), name="X"), te.placeholder((8, 8), name="Y")
    computed = topi.matmul(x, topi.exp(y))
    assert "the second operand is computed" in message(tt.UnsupportedOperator, computed, weights="packed")
    twice = topi.matmul(x, x)
    assert "is also read elsewhere" in message(tt.UnsupportedOperator, twice, weights="packed")
    residual = topi.add(topi.matmul(x, y), y)
    assert "is also read elsewhere" in message(tt.UnsupportedOperator, residual, weights="packed")
    with pytest.raises(tt.UnsupportedOperator, match="the second operand is computed"):
        packed_operator(computed, native())


def test_the_pass_leaves_what_it_cannot_serve():
    exp = te.create_prim_func([x := te.placeholder((8,), name="X"), topi.exp(x)])
    mod = tvm.IRModule({"exp": exp.with_attr("global_symbol", "exp")})
    after = tt.ApplyTiling(native())(mod)
    assert after["exp"].same_as(mod["exp"])


@pytest.mark.parametrize(("k", "supported"), [(131071, True), (131072, False)])
def test_long_sums_in_int64_are_refused_where_int32_may_overflow(k, supported):
    a, b = te.placeholder((1, k), "int8", "A"), te.placeholder((k, 2), "int8", "B")
    r = te.reduce_axis((0, k), "r")
    out = te.compute((1, 2), lambda i, j: te.sum(a[i, r].astype("int64") * b[r, j].astype("int64"), r), "C")
    if supported:
        tt.tiling_schedule(out, native())
        return
    with pytest.raises(UnsupportedOperator, match="131072 products of int8 may exceed int32, but accumulate in int64"):
        tt.tiling_schedule(out, native())
