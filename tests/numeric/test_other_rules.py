"""Operators other than matrix multiplications and convolutions, as Relax legalises and fuses them, against NumPy at
awkward sizes.

Every case runs with one task and with three, in vectors of the machine's width and of half of it.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import tvm
from products import DTYPES, Guarded
from tvm import relax, s_tir, te, tirx

from tvm_tiling.lowering.vector_math import with_vector_math
from tvm_tiling.schedule import llvm_target, this_cpu
from tvm_tiling.schedules import plain_loops
from tvm_tiling.schedules.fallback import schedule_fallback

op, nn = relax.op, relax.op.nn
SIZES = (1, 7, 31, 33, 127)


def relax_functions(build, *inputs):
    """Return the PrimFuncs of one Relax expression of inputs (shape, dtype), fused."""
    builder = relax.BlockBuilder()
    names = [relax.Var(f"x{i}", relax.TensorType(shape, dtype)) for i, (shape, dtype) in enumerate(inputs)]
    with builder.function("main", names):
        with builder.dataflow():
            out = builder.emit_output(builder.emit(build(*names)))
        builder.emit_func_output(out)
    module = builder.finalize()
    transform = relax.transform
    for step in (
        transform.LegalizeOps(),
        transform.AnnotateTIROpPattern(),
        transform.FuseOps(),
        transform.FuseTIR(),
        transform.DeadCodeElimination(),
    ):
        module = step(module)
    return [f for f in module.functions.values() if isinstance(f, tirx.PrimFunc)]


def the_function(build, *inputs):
    functions = relax_functions(build, *inputs)
    assert len(functions) == 1, "the case is one function after fusion"
    return functions[0]


@pytest.fixture(params=[(1, 1), (3, 1), (3, 2)], ids=["one_task", "three_tasks", "half_vectors"])
def hardware(request):
    """This machine with that many cores and free thread start-up, and vectors shortened by a factor."""
    cores, shorter = request.param
    machine = this_cpu()
    bits = max(128, machine.cpu.vector_bits // shorter)
    costs = replace(machine.cpu.kernel_costs, parallel_start=1e-9)
    return replace(machine, cpu=replace(machine.cpu, cores=cores, threads=cores, vector_bits=bits, costs=costs))


def run(func, hardware, *arrays):
    """Return the outputs of the scheduled function, after checking that nothing around them or in the inputs has
    changed."""
    scheduled = schedule_fallback(func, "main", hardware)
    built = tvm.compile(tvm.IRModule({"main": scheduled}), target=llvm_target())["main"]
    outputs = [(tuple(int(s) for s in p.shape), str(p.dtype)) for p in func.params[len(arrays) :]]
    places = [guarded(a.shape, str(a.dtype), a) for a in arrays] + [guarded(shape, dtype) for shape, dtype in outputs]
    built(*(tensor for tensor, _, _ in places))
    for _, guard, given in places:
        if guard is not None:
            assert guard.unchanged() if given is not None else guard.unchanged_around()
    results = [np.array(guard.array) if guard else tensor.numpy() for tensor, guard, _ in places[len(arrays) :]]
    return results if len(results) > 1 else results[0]


def guarded(shape, dtype, array=None):
    if dtype not in DTYPES or not shape:
        tensor = tvm.runtime.empty(shape, dtype) if array is None else tvm.runtime.tensor(array)
        return tensor, None, array
    guard = Guarded(shape, dtype)
    if array is not None:
        guard.fill(array)
    return guard.tensor, guard, array


def numbers(shape, dtype="float32", seed=0):
    rng = np.random.default_rng(seed)
    if dtype == "bool":
        return rng.random(shape) > 0.5
    if dtype.startswith("float"):
        return rng.uniform(-3, 3, shape).astype(dtype)
    return rng.integers(-50, 50, shape).astype(dtype)


def check(hardware, build, arrays, want, rtol=2e-6, atol=2e-6):
    func = the_function(build, *((a.shape, str(a.dtype)) for a in arrays))
    got = run(func, hardware, *arrays)
    pairs = zip(got, want, strict=True) if isinstance(want, list) else [(got, want)]
    for one, wanted in pairs:
        assert one.shape == wanted.shape
        np.testing.assert_allclose(one.astype("float64"), np.asarray(wanted, "float64"), rtol=rtol, atol=atol)


# ---- element by element ----------------------------------------------------------------------------------------------


@pytest.mark.values
@pytest.mark.parametrize("size", SIZES)
def test_chains_with_broadcasts(hardware, size):
    x, bias, row = numbers((2, 3, 5, size)), numbers((1, 3, 1, 1)), numbers((size,))
    want = np.maximum(x + bias, 0) * row
    check(hardware, lambda a, b, c: op.multiply(nn.relu(op.add(a, b)), c), [x, bias, row], want)


@pytest.mark.values
@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "uint8", "int32", "int64"])
@pytest.mark.parametrize("size", [1, 33, 200])
def test_every_type(hardware, dtype, size):
    x, y = numbers((3, size), dtype), numbers((3, size), dtype, 1)
    check(hardware, lambda a, b: op.maximum(op.add(a, b), a), [x, y], np.maximum(x + y, x))


@pytest.mark.values
@pytest.mark.parametrize("source", ["float32", "float16", "int8", "int32", "bool"])
@pytest.mark.parametrize("target", ["float32", "float16", "int8", "int32"])
def test_casts(hardware, source, target):
    x = numbers((5, 37), source)
    check(hardware, lambda a: op.astype(a, target), [x], x.astype(target))


def test_conditions_and_comparisons(hardware):
    c, x, y = numbers((7, 33), "bool"), numbers((7, 33)), numbers((1, 33), seed=1)
    check(hardware, op.where, [c, x, y], np.where(c, x, y))
    check(hardware, op.less, [x, y], x < y)


def test_several_outputs(hardware):
    x = numbers((5, 33, 3))
    func = the_function(lambda a: op.split(a, [7, 20], 1), (x.shape, "float32"))
    for got, want in zip(run(func, hardware, x), np.split(x, [7, 20], 1), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.values
@pytest.mark.parametrize("function", ["exp", "tanh", "sigmoid", "erf", "log"])
def test_functions_in_half_precision(hardware, function):
    x = np.abs(numbers((3, 37), "float16")) + np.float16(0.1)
    want = FUNCTIONS[function][1](x.astype("float64")).astype("float16")
    check(hardware, lambda a: getattr(op, function)(a), [x], want, rtol=1e-3)


# ---- movement --------------------------------------------------------------------------------------------------------


@pytest.mark.values
@pytest.mark.parametrize("shape", [(1, 33), (15, 17), (16, 32), (33, 127), (100, 31)])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "int64"])
def test_transposes(hardware, shape, dtype):
    x = numbers(shape, dtype)
    check(hardware, lambda a: op.permute_dims(a, [1, 0]), [x], x.T)


@pytest.mark.values
@pytest.mark.parametrize("axes", [(0, 2, 3, 1), (0, 3, 1, 2), (3, 2, 1, 0), (2, 0, 3, 1)])
def test_transposes_with_work_behind(hardware, axes):
    x = numbers((2, 17, 19, 33))
    y = numbers(tuple(x.shape[a] for a in axes), seed=1)
    want = np.maximum(x.transpose(axes) + y, 0)
    check(hardware, lambda a, b: nn.relu(op.add(op.permute_dims(a, list(axes)), b)), [x, y], want)


@pytest.mark.values
@pytest.mark.parametrize(("groups", "each"), [(2, 65), (3, 34), (4, 34), (8, 3), (9, 20)])
@pytest.mark.parametrize("dtype", ["int8", "float32"])
@pytest.mark.parametrize("padded", [False, True])
def test_channels_exchanged_between_groups(hardware, groups, each, dtype, padded):
    x = numbers((2, 3, 5, groups * each), dtype)
    want = x.reshape(2, 3, 5, groups, each).swapaxes(3, 4).reshape(x.shape)
    want = np.pad(want, ((0, 0), (1, 1), (1, 1), (0, 0))) if padded else want

    def exchanged(a):
        parts = op.permute_dims(op.reshape(a, (2, 3, 5, groups, each)), [0, 1, 2, 4, 3])
        result = op.reshape(parts, x.shape)
        return nn.pad(result, [0, 0, 1, 1, 1, 1, 0, 0], "constant", 0) if padded else result

    check(hardware, exchanged, [x], want)


@pytest.mark.values
@pytest.mark.parametrize("axis", [0, 1, 2, 3])
def test_concatenations(hardware, axis):
    parts = [numbers((2, 3, 5, 7) if i != 1 else tuple(7 + (d == axis) * 4 for d in range(4)), seed=i) for i in (0, 2)]
    wide = [d + 9 * (i == axis) for i, d in enumerate((2, 3, 5, 7))]
    parts.append(numbers(wide, seed=3))
    check(
        hardware, lambda a, b, c: nn.relu(op.concat([a, b, c], axis)), parts, np.maximum(np.concatenate(parts, axis), 0)
    )


@pytest.mark.values
@pytest.mark.parametrize("axis", [1, 3])
def test_a_concatenation_of_many_tensors(hardware, axis):
    shapes = [tuple(i % 7 + 1 if d == axis else size for d, size in enumerate((2, 3, 5, 17))) for i in range(40)]
    parts = [numbers(shape, seed=i) for i, shape in enumerate(shapes)]
    check(hardware, lambda *x: nn.relu(op.concat(list(x), axis)), parts, np.maximum(np.concatenate(parts, axis), 0))


@pytest.mark.parametrize("widths", [((1, 2), (0, 0)), ((0, 0), (3, 1)), ((2, 1), (0, 17)), ((0, 0), (0, 0))])
def test_pads(hardware, widths):
    x = numbers((2, 3, 13, 31))
    flat = [0, 0, 0, 0, *widths[0], *widths[1]]
    check(
        hardware,
        lambda a: nn.pad(a, flat, "constant", 1.5),
        [x],
        np.pad(x, ((0, 0), (0, 0), *widths), constant_values=1.5),
    )


@pytest.mark.values
@pytest.mark.parametrize("step", [1, 2, 3, 5])
def test_slices(hardware, step):
    x = numbers((7, 131))
    check(hardware, lambda a: op.strided_slice(a, [1], [2], [127], [step]), [x], x[:, 2:127:step])


def test_reshapes_are_copies(hardware):
    x = numbers((6, 35))
    want = x.reshape(5, 7, 6).transpose(1, 0, 2)
    check(hardware, lambda a: op.permute_dims(op.reshape(a, (5, 7, 6)), [1, 0, 2]), [x], want)


@pytest.mark.parametrize("width", [1, 33, 64])
def test_embeddings(hardware, width):
    table, index = numbers((50, width)), np.random.default_rng(1).integers(0, 50, (3, 5)).astype("int64")
    check(hardware, lambda t, i: op.take(t, i, 0), [table, index], table[index])


def test_nearest_resize(hardware):
    x = numbers((1, 3, 7, 9))

    def twice(a):
        mode = "asymmetric"
        return op.image.resize2d(
            a, (14, 18), method="nearest_neighbor", coordinate_transformation_mode=mode, rounding_method="floor"
        )

    check(hardware, twice, [x], x.repeat(2, 2).repeat(2, 3))


def test_linear_resize(hardware):
    x = numbers((1, 2, 7, 9))

    def halves(size):
        at = np.clip((np.arange(2 * size) + 0.5) / 2 - 0.5, 0, size - 1)
        low = np.floor(at).astype(int)
        weights = np.zeros((2 * size, size))
        np.add.at(weights, (np.arange(2 * size), low), 1 - (at - low))
        np.add.at(weights, (np.arange(2 * size), np.minimum(low + 1, size - 1)), at - low)
        return weights

    want = np.einsum("yh,xw,nchw->ncyx", halves(7), halves(9), x)
    check(hardware, lambda a: op.image.resize2d(a, (14, 18), method="linear"), [x], want)


# ---- reductions ------------------------------------------------------------------------------------------------------


@pytest.mark.values
@pytest.mark.parametrize("axes", [[0], [1], [2], [0, 1], [1, 2], [0, 2], [0, 1, 2]])
@pytest.mark.parametrize("last", [1, 33, 127])
def test_sums_over_any_axes(hardware, axes, last):
    x = numbers((3, 31, last))
    check(hardware, lambda a: op.sum(a, axes), [x], x.astype("float64").sum(tuple(axes)), rtol=1e-5, atol=1e-4)


@pytest.mark.values
@pytest.mark.parametrize("name", ["max", "min", "prod", "mean"])
@pytest.mark.parametrize("axis", [0, 1])
def test_other_reductions(hardware, name, axis):
    x = numbers((31, 70)) / 2
    want = getattr(np, name)(x.astype("float64"), axis)
    check(hardware, lambda a: getattr(op, name)(a, [axis]), [x], want, rtol=1e-5, atol=1e-5)


@pytest.mark.values
@pytest.mark.parametrize("dtype", ["int8", "int32", "float16"])
def test_reductions_of_every_type(hardware, dtype):
    x = numbers((5, 70), dtype)
    check(hardware, lambda a: op.max(a, [1]), [x], x.max(1))
    check(hardware, lambda a: op.max(a, [0]), [x], x.max(0))


@pytest.mark.values
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_positions(hardware, axis, name):
    x = numbers((7, 31, 33), "int32").astype("float32")  # with ties: the first one counts
    check(hardware, lambda a: getattr(op, name)(a, axis), [x], getattr(np, name)(x, axis))


def test_what_runs_before_and_after_a_sum(hardware):
    x = numbers((5, 70))
    want = np.exp(x.astype("float64")).sum(1)
    check(hardware, lambda a: op.sum(op.exp(a), [1]), [x], want, rtol=1e-5)
    check(hardware, lambda a: op.variance(a, [1]), [x], x.astype("float64").var(1), rtol=1e-5)
    check(hardware, lambda a: op.std(a, [0]), [x], x.astype("float64").std(0), rtol=1e-5)


# ---- rows ------------------------------------------------------------------------------------------------------------


def softmax(x, axis):
    e = np.exp(x.astype("float64") - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


@pytest.mark.values
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("axis", [1, 2, 3])
def test_softmax(hardware, size, axis):
    x = numbers((2, 5, 7, size)) * 10
    check(hardware, lambda a: nn.softmax(a, axis), [x], softmax(x, axis), rtol=5e-6)
    check(hardware, lambda a: nn.log_softmax(a, axis), [x], np.log(softmax(x, axis)), rtol=5e-6, atol=1e-5)


def test_softmax_of_masked_rows(hardware):
    x = numbers((4, 33))
    x[:, 5:] = -np.inf
    check(hardware, lambda a: nn.softmax(a, 1), [x], softmax(x, 1))


@pytest.mark.values
@pytest.mark.parametrize("size", SIZES)
def test_layer_norms(hardware, size):
    x, gamma, beta = numbers((3, 5, size)), numbers((size,)), numbers((size,), seed=2)
    wide = x.astype("float64")
    normal = (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + 1e-5)
    check(hardware, lambda a, g, b: nn.layer_norm(a, g, b, [-1]), [x, gamma, beta], normal * gamma + beta, 1e-4, 1e-4)
    root = wide / np.sqrt((wide**2).mean(-1, keepdims=True) + 1e-5)
    check(hardware, lambda a, g: nn.rms_norm(a, g, [-1]), [x, gamma], root * gamma, 1e-5, 1e-5)


@pytest.mark.values
@pytest.mark.parametrize("groups", [1, 3, 6])
def test_group_norms(hardware, groups):
    x, gamma, beta = numbers((2, 6, 7, 9)), numbers((6,)), numbers((6,), seed=2)
    wide = x.astype("float64").reshape(2, groups, -1)
    normal = (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + 1e-5)
    want = normal.reshape(x.shape) * gamma[:, None, None] + beta[:, None, None]

    def norm(a, g, b):
        return nn.group_norm(a, g, b, groups, 1, [2, 3])

    check(hardware, norm, [x, gamma, beta], want, 1e-4, 1e-4)


def test_batch_norm_that_was_not_folded(hardware):
    x = numbers((2, 6, 7, 9))
    gamma, beta, mean, var = (np.abs(numbers((6,), seed=i)) for i in range(4))

    def norm(*a):
        return relax.TupleGetItem(nn.batch_norm(*a, 1, training=False), 0)

    func = the_function(norm, *((a.shape, "float32") for a in (x, gamma, beta, mean, var)))
    got = run(func, hardware, x, gamma, beta, mean, var)
    of = [a[:, None, None] for a in (gamma, beta, mean, var)]
    np.testing.assert_allclose(got, (x - of[2]) / np.sqrt(of[3] + 1e-5) * of[0] + of[1], rtol=1e-4, atol=1e-4)


# ---- pooling ---------------------------------------------------------------------------------------------------------


def pooled(x, size, stride, padding, kind, count_include_pad):
    """NCHW in float64; padding is top, left, bottom, right."""
    top, left, bottom, right = padding
    fill = -np.inf if kind == "max" else 0.0
    width = ((0, 0), (0, 0), (top, bottom), (left, right))
    p = np.pad(x.astype("float64"), width, constant_values=fill)
    ones = np.pad(np.ones(x.shape), width, constant_values=float(count_include_pad))
    windows = np.lib.stride_tricks.sliding_window_view(p, size, (2, 3))[:, :, :: stride[0], :: stride[1]]
    counts = np.lib.stride_tricks.sliding_window_view(ones, size, (2, 3))[:, :, :: stride[0], :: stride[1]]
    return windows.max((4, 5)) if kind == "max" else windows.sum((4, 5)) / counts.sum((4, 5))


@pytest.mark.values
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("kind", ["max", "avg", "avg_with_pad"])
@pytest.mark.parametrize(
    ("image", "size", "stride", "padding"),
    [
        ((13, 33), (3, 3), (2, 2), (1, 1, 1, 1)),
        ((31, 40), (3, 3), (1, 1), (1, 1, 1, 1)),
        ((8, 127), (2, 2), (2, 2), (0, 0, 0, 0)),
        ((7, 7), (5, 3), (1, 3), (2, 0, 1, 2)),
        ((2, 2), (3, 3), (1, 1), (1, 1, 1, 1)),
    ],
)
def test_pooling(hardware, layout, kind, image, size, stride, padding):
    x = numbers((2, 5, *image))
    want = pooled(x, size, stride, padding, kind[:3], kind == "avg_with_pad")

    def pool(a):
        if kind == "max":
            return nn.max_pool2d(a, size, stride, padding, layout=layout)
        with_pad = kind == "avg_with_pad"
        return nn.avg_pool2d(a, size, stride, padding, count_include_pad=with_pad, layout=layout)

    if layout == "NHWC":
        x, want = np.ascontiguousarray(x.transpose(0, 2, 3, 1)), want.transpose(0, 2, 3, 1)
    check(hardware, pool, [x], want)


@pytest.mark.parametrize("channels", [1, 33])
def test_rounded_up_pooling(hardware, channels):
    x = numbers((1, channels, 14, 13))
    want = pooled(x, (3, 3), (2, 2), (1, 1, 2, 2), "max", False)
    check(hardware, lambda a: nn.max_pool2d(a, (3, 3), (2, 2), (1, 1, 1, 1), ceil_mode=True), [x], want)


@pytest.mark.values
@pytest.mark.parametrize("channels", [1, 33, 127])
def test_global_pooling(hardware, channels):
    x = numbers((2, channels, 7, 7))
    want = x.astype("float64").mean((2, 3), keepdims=True)
    check(hardware, lambda a: nn.adaptive_avg_pool2d(a, (1, 1)), [x], want)
    last = np.ascontiguousarray(x.transpose(0, 2, 3, 1))
    want = want.transpose(0, 2, 3, 1)
    check(hardware, lambda a: nn.adaptive_avg_pool2d(a, (1, 1), layout="NHWC"), [last], want)


def test_windows_of_varying_size_run_in_plain_loops(hardware):
    x = numbers((1, 4, 7, 7))
    bounds = [(0, 3), (2, 5), (4, 7)]
    want = np.array([[[[x[0, c, a:b, d:e].mean() for d, e in bounds] for a, b in bounds] for c in range(4)]])
    check(hardware, lambda a: nn.adaptive_avg_pool2d(a, (3, 3)), [x], want)


def test_plain_loops_hide_no_other_error_than_that_of_a_primitive(monkeypatch):
    def fail(_self, _loop):
        raise ValueError("a fault")

    large = tvm.te.compute((128, 128), lambda i, j: i + j)
    monkeypatch.setattr(s_tir.Schedule, "parallel", fail)
    with pytest.raises(ValueError, match="a fault"):
        plain_loops.apply(te.create_prim_func([large]), "main", replace(this_cpu().cpu, cores=2, threads=2))


# ---- functions -------------------------------------------------------------------------------------------------------

FUNCTIONS = {
    "exp": (tirx.exp, np.exp),
    "log": (tirx.log, np.log),
    "tanh": (tirx.tanh, np.tanh),
    "sigmoid": (tirx.sigmoid, lambda x: np.where(x < 0, np.exp(np.minimum(x, 0)), 1) / (1 + np.exp(-np.abs(x)))),
    "erf": (tirx.erf, np.vectorize(math.erf, otypes=["float64"])),
}
ULPS = {"exp": 2.0, "log": 2.0, "tanh": 3.0, "sigmoid": 3.0, "erf": 2.0}


def values(function, x):
    """The vectorised function of float32 numbers."""
    n = len(x)
    source = te.placeholder((n,), "float32")
    func = te.create_prim_func([source, te.compute((n,), lambda i: FUNCTIONS[function][0](source[i]))])
    return run(func, this_cpu(), x)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_accuracy_of_functions(function):
    rng = np.random.default_rng(3)
    bits = rng.integers(0, 2**32, 20_000, dtype=np.uint64).astype(np.uint32).view(np.float32)
    parts = [bits[np.isfinite(bits)], rng.uniform(-3, 3, 20_000), rng.uniform(-104, 89, 20_000)]
    x = np.concatenate(parts).astype("float32")
    x = np.abs(x) if function == "log" else x
    with np.errstate(all="ignore"):
        want = FUNCTIONS[function][1](x.astype("float64"))
        rounded = want.astype("float32")
        finite = np.isfinite(rounded)
        error = np.abs(values(function, x).astype("float64") - want)[finite] / np.spacing(np.abs(rounded[finite]))
    assert error.max() <= ULPS[function]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_functions_at_the_ends(function):
    x = np.array([0.0, np.inf, -np.inf, np.nan, 3e38, -3e38, 1e-45, 1.0] * 4, "float32")
    with np.errstate(all="ignore"):
        want = FUNCTIONS[function][1](x.astype("float64")).astype("float32")
    np.testing.assert_allclose(values(function, x), want, rtol=3e-7)


def test_what_is_not_written_out_stays():
    x = tirx.Var("x", "float64")
    assert "T.exp" in str(with_vector_math(tirx.exp(x)))
    square = with_vector_math(tirx.power(tirx.Var("y", "float32"), tirx.const(2.0, "float32")))
    assert "pow" not in str(square)
