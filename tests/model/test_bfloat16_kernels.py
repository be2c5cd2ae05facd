"""bfloat16 in kernels compared with ml_dtypes: rounding, NaN, functions after a matrix multiplication, and convolutions
that are transformed in float32."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import tvm
from tvm import relax, te, tirx, topi
from tvm.relax import op

import tvm_tiling as tt
from tvm_tiling.decide.options import Options
from tvm_tiling.errors import UnsupportedOperator
from tvm_tiling.schedule import schedule_operator

SPECIAL = (
    *(0x7F800001, 0x7FFFFFFF, 0xFFFFFFFF, 0xFF800001, 0x7FC00000),  # not numbers
    *(0x7F800000, 0xFF800000, 0x7F7FFFFF, 0x00008000, 0x00018000, 0x80008000, 0x00017FFF, 0x80000000, 0, 1, 0x007FFFFF),
)


def numbers(count: int) -> np.ndarray:
    """float32 of arbitrary bits, including special values."""
    bits = np.random.default_rng(0).integers(0, 2**32, count - len(SPECIAL), dtype=np.uint32)
    return np.concatenate([bits, np.array(SPECIAL, np.uint32)]).view(np.float32)


def compiled(shapes, build):
    """Return a model of float32 inputs of these shapes."""
    builder = relax.BlockBuilder()
    inputs = [relax.Var(f"x{number}", relax.TensorType(shape, "float32")) for number, shape in enumerate(shapes)]
    with builder.function("main", inputs):
        with builder.dataflow():
            output = builder.emit_output(build(builder, *inputs))
        builder.emit_func_output(output)
    return tt.compile(builder.get(), cache=False)


def equal(ours: np.ndarray, right: np.ndarray) -> bool:
    """Bit for bit, except for NaN."""
    same = ours.view(np.uint16) == right.view(np.uint16)
    return bool((same | (np.isnan(ours.astype(np.float32)) & np.isnan(right.astype(np.float32)))).all())


@pytest.mark.filterwarnings("ignore:invalid value encountered")
@pytest.mark.parametrize("behind_a_product", [False, True])
def test_every_number_is_rounded_to_the_nearest_and_what_is_none_stays_none(behind_a_product):
    x = numbers(4099)

    def build(builder, value):
        if behind_a_product:
            value = builder.emit(op.matmul(value, relax.const(np.ones((1, 1), np.float32))))
        return op.astype(value, "bfloat16")

    shape = (x.size, 1) if behind_a_product else x.shape
    ours = compiled([shape], build).run(x.reshape(shape)).reshape(-1)
    right = x.astype(ml_dtypes.bfloat16)
    if behind_a_product:
        small = (np.abs(x) < np.finfo(np.float32).tiny) & (
            x != 0
        )  # sums are flushed or not, depending on the processor's mode
        ours, right = ours[~small], right[~small]
    assert equal(ours, right)


@pytest.mark.parametrize("activation", [op.nn.gelu, op.nn.silu, op.tanh, op.nn.relu])
def test_functions_after_a_gemm_are_rounded_once(activation):
    rng = np.random.default_rng(1)
    x, w = rng.standard_normal((37, 65)).astype(np.float32), rng.standard_normal((65, 47)).astype(np.float32) / 8

    def product(builder, value):
        return builder.emit(activation(builder.emit(op.matmul(value, relax.const(w)))))

    wide = compiled([x.shape], lambda b, v: op.add(product(b, v), relax.const(np.float32(0)))).run(x)
    ours = compiled([x.shape], lambda b, v: op.astype(product(b, v), "bfloat16")).run(x)
    assert ours.dtype == ml_dtypes.bfloat16
    # Another schedule may sum in another order, and cross a rounding boundary.
    assert np.abs(ours.astype(np.float32) - wide).max() <= np.abs(wide).max() * 2.0**-8
    assert np.mean(ours == wide.astype(ml_dtypes.bfloat16)) > 0.99


@pytest.mark.values
@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize(("size", "channels", "outputs"), [(14, 32, 64), (13, 20, 33), (7, 128, 48)])
def test_winograd_of_half_precision_is_computed_in_float32(dtype, size, channels, outputs, ahead):
    """The result is that of the float32 algorithm on the same numbers; only the operands have been rounded, and weights
    transformed `ahead` are float32."""
    rng = np.random.default_rng(2)
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    x = rng.standard_normal((1, size, size, channels)).astype(kind)
    w = (rng.standard_normal((3, 3, channels, outputs)) / 16).astype(kind)
    workload = tt.ConvWorkload(
        n=1, h=size, w=size, ci=channels, co=outputs, kh=3, kw=3, padding=(1, 1, 1, 1), dtype=dtype, acc_dtype="float32"
    )
    tiling = tt.decide(workload, algorithm="winograd")
    assert tiling.form == "winograd"
    half, single = (
        run_winograd(x.astype(t), w.astype(t), workload, str(np.dtype(t)), ahead) for t in (kind, np.float32)
    )
    assert np.abs(half - single).max() <= 1e-5 * np.abs(single).max()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("part", ["image", "weights"])
def test_winograd_of_floats_of_which_one_operand_lies_in_16_bits(dtype, part):
    """The matrix multiplication is computed in float32, and memory contents are widened when they are read."""
    shapes = {"image": (1, 12, 12, 16), "weights": (3, 3, 16, 16)}
    kinds = {name: dtype if name == part else "float32" for name in shapes}
    tensors = [te.placeholder(shape, name=name, dtype=kinds[name]) for name, shape in shapes.items()]
    wide = [topi.cast(tensor, "float32") for tensor in tensors]
    function = te.create_prim_func([*tensors, topi.nn.conv(*wide, 1, (1, 1, 1, 1), 1, 1, "NHWC", "HWIO")])
    kernel = tvm.compile(tt.tiling_schedule(function, algorithm="winograd").mod, target=tt.llvm_target())["main"]
    rng = np.random.default_rng(3)
    types = {"bfloat16": ml_dtypes.bfloat16, "float16": np.float16, "float32": np.float32}
    arrays = [rng.standard_normal(shape).astype(types[kinds[name]]) for name, shape in shapes.items()]
    result = tvm.runtime.tensor(np.zeros((1, 12, 12, 16), np.float32))
    kernel(*(as_tensor(array, kinds[name]) for array, name in zip(arrays, shapes, strict=True)), result)
    image, weights = (array.astype(np.float64) for array in arrays)
    padded = np.pad(image, ((0, 0), (1, 1), (1, 1), (0, 0)))
    right = sum(padded[:, i : i + 12, j : j + 12] @ weights[i, j] for i in range(3) for j in range(3))
    assert np.abs(result.numpy() - right).max() <= 1e-5 * np.abs(right).max()


@pytest.mark.parametrize(("machine", "direct"), [("zen4-server-8c", "int16"), ("icelake-server-2c", "float32")])
def test_weights_of_half_precision_are_packed_as_the_algorithm_reads_them(machine, direct):
    function = convolution((1, 14, 14, 32), (3, 3, 32, 64), (1, 1, 1, 1), "bfloat16")
    hardware = tt.Hardware.load(machine)

    def packed(form):
        return schedule_operator(function, "main", hardware, Options(form=form, prepacked=True)).packed_dtype

    assert packed("winograd") == "float32"
    assert packed("direct") == direct


def convolution(image, kernels, padding, dtype):
    """A convolution of `dtype`, accumulated in float32."""
    tensors = [te.placeholder(shape, name=name, dtype=dtype) for shape, name in ((image, "X"), (kernels, "W"))]
    wide = [topi.cast(tensor, "float32") for tensor in tensors]
    return te.create_prim_func([*tensors, topi.nn.conv(*wide, 1, padding, 1, 1, "NHWC", "HWIO")])


def run_winograd(x, w, workload, dtype, ahead):
    function = convolution(x.shape, w.shape, workload.padding, dtype)
    image, weights = (as_tensor(array, dtype) for array in (x, w))
    if ahead:
        kernel = tt.packed_operator(function, algorithm="winograd")
        weights = kernel.pack(weights)
    else:
        kernel = tvm.compile(tt.tiling_schedule(function, algorithm="winograd").mod, target=tt.llvm_target())["main"]
    result = tvm.runtime.tensor(np.zeros((1, workload.ho, workload.wo, workload.co), np.float32))
    kernel(image, weights, result)
    return result.numpy()


def as_tensor(array, dtype):
    if dtype != "bfloat16":
        return tvm.runtime.tensor(array)
    return tvm.runtime.tensor(array.view(np.int16))._create_view(array.shape, dtype)


@pytest.mark.parametrize("dtypes", [("bfloat16", "float32"), ("float32", "float32"), ("float64", "float16")])
def test_operands_that_are_rounded_on_their_way_into_a_gemm(dtypes):
    shapes = (18, 5), (5, 3)
    a, b = (te.placeholder(shape, dtype, name) for shape, dtype, name in zip(shapes, dtypes, "ab", strict=True))
    k = te.reduce_axis((0, 5), "k")
    product = te.compute(
        (18, 3), lambda i, j: te.sum(a[i, k].astype("bfloat16") * b[k, j].astype("bfloat16"), axis=k), "product"
    )
    schedule = tt.tiling_schedule(te.create_prim_func([a, b, product]))
    kernel = tvm.compile(schedule.mod, target=tt.llvm_target())["main"]
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=shape).astype(dtype) for shape, dtype in zip(shapes, dtypes, strict=True)]
    out = tvm.runtime.empty((18, 3), "bfloat16")
    kernel(*(tvm.runtime.tensor(array) for array in arrays), out)
    left, right = (array.astype(ml_dtypes.bfloat16).astype("float64") for array in arrays)
    np.testing.assert_allclose(out.numpy().astype("float64"), left @ right, rtol=2.0**-8, atol=1e-6)


def _bfloat16(value):
    return tirx.const(value, "bfloat16")


COMPUTED = {
    "as it is": lambda x: x,
    "scaled": lambda x: (x.astype("float32") * tirx.const(0.5, "float32")).astype("bfloat16"),
    "squared": lambda x: x * x,
    "positive": lambda x: tirx.Select(x > _bfloat16(0.0), x, _bfloat16(0.0)),
    "negative": lambda x: te.min(_bfloat16(0.0), x),
}
BY_NUMPY = {
    "as it is": lambda x: x,
    "scaled": lambda x: x * 0.5,
    "squared": lambda x: (x * x).astype(ml_dtypes.bfloat16).astype("float64"),
    "positive": lambda x: np.maximum(x, 0),
    "negative": lambda x: np.minimum(x, 0),
}


def padded_product(computed):
    a, b = te.placeholder((10, 16), "bfloat16", "a"), te.placeholder((16, 9), "bfloat16", "b")
    r = te.reduce_axis((0, 16), "r")

    def left(i, r):
        return tirx.if_then_else(tirx.all(i >= 1, i < 11), computed(a[i - 1, r]), _bfloat16(1.0))

    def right(r, j):
        element = b[r, te.max(te.min(j - 1, 8), 0)]
        return tirx.Select(tirx.all(j >= 1, j < 10), computed(element), _bfloat16(2.0))

    product = te.compute((12, 11), lambda i, j: te.sum(left(i, r) * right(r, j), axis=r), "product")
    return te.create_prim_func([a, b, product])


@pytest.mark.parametrize("name", COMPUTED)
def test_operands_that_are_chosen_and_computed_on_their_way_into_a_gemm(name):
    kernel = tvm.compile(tt.tiling_schedule(padded_product(COMPUTED[name])).mod, target=tt.llvm_target())["main"]
    rng = np.random.default_rng(0)
    a, b = (rng.normal(size=shape).astype(ml_dtypes.bfloat16) for shape in ((10, 16), (16, 9)))
    out = tvm.runtime.empty((12, 11), "bfloat16")
    kernel(tvm.runtime.tensor(a), tvm.runtime.tensor(b), out)
    left = np.pad(BY_NUMPY[name](a.astype("float64")), ((1, 1), (0, 0)), constant_values=1)
    right = np.pad(BY_NUMPY[name](b.astype("float64")), ((0, 0), (1, 1)), constant_values=2)
    np.testing.assert_allclose(
        out.numpy().astype("float64"), left @ right, rtol=2.0**-8, atol=1e-5 * np.abs(left).sum(1).max()
    )


def test_what_cannot_be_computed_on_its_way_into_a_gemm_is_refused():
    hardware = tt.Hardware.load("zen4-server-8c")  # which multiplies pairs of bfloat16
    functions = tvm.IRModule({"main": padded_product(te.sqrt), "other": padded_product(COMPUTED["as it is"])})
    with pytest.raises(UnsupportedOperator, match=r"type bfloat16 is computed by [a-z.]*sqrt; expected"):
        tt.tiling_schedule(functions["main"], hardware)
    scheduled = tt.ApplyTiling(hardware)(functions)
    assert scheduled["main"].script() == functions["main"].script()
    assert scheduled["other"].script() != functions["other"].script()
