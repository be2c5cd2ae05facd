"""Maximum, minimum and their positions with NaN and infinities, as in NumPy, ONNX and PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax, sym, tirx

import tvm_tiling as tt
from tvm_tiling.match.extreme import extreme, plain

op = relax.op


def several(values: dict, shape: tuple[int, ...], dtype: str = "float32"):
    """Return an executable of one input that computes each of `values`, functions of (builder, input)."""
    x, builder = relax.Var("x", relax.TensorType(shape, dtype)), relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            results = [builder.emit(make(builder, x)) for make in values.values()]
            out = builder.emit_output(relax.Tuple(results))
        builder.emit_func_output(out)
    return tt.compile(builder.finalize(), cache=False)


def special_inputs(shape: tuple[int, ...], dtype: str = "float32"):
    """Yield (description, array) of numbers, NaN and infinities, alone and mixed."""
    rng = np.random.default_rng(0)
    plain = rng.standard_normal(shape).astype(dtype)
    yield "plain", plain
    for name, value in (("-inf", -np.inf), ("inf", np.inf), ("nan", np.nan)):
        yield f"all {name}", np.full(shape, value, dtype)
        some = plain.copy()
        some[rng.random(shape) < 0.1] = value
        yield f"some {name}", some
    mixed = plain.copy()
    for value in (-np.inf, np.inf, np.nan):
        mixed[rng.random(shape) < 0.2] = value
    yield "all of them", mixed


def check(values: dict, references: dict, shape: tuple[int, ...], dtype: str = "float32") -> None:
    executable = several(values, shape, dtype)
    for kind, x in special_inputs(shape, dtype):
        results = executable.run(x)
        for name, result in zip(values, results if isinstance(results, tuple) else (results,), strict=True):
            np.testing.assert_array_equal(result, references[name](x), err_msg=f"{name} of {kind}")


@pytest.mark.parametrize("shape", [(5, 67), (67, 5), (3, 4), (2, 1)])
def test_reductions(shape):
    values, references = {}, {}
    for axis in (0, 1, None):
        for name in ("max", "min", "argmax", "argmin"):
            values[f"{name} {axis}"] = lambda _, x, name=name, axis=axis: getattr(op, name)(x, axis)
            references[f"{name} {axis}"] = lambda x, name=name, axis=axis: getattr(np, name)(x, axis)
    values["kept"] = lambda _, x: op.argmax(x, 1, keepdims=True)
    references["kept"] = lambda x: np.argmax(x, 1, keepdims=True)
    check(values, references, shape)


def test_the_first_of_equal_extremes_is_the_place():
    executable = several({"max": lambda _, x: op.argmax(x, 1), "min": lambda _, x: op.argmin(x, 1)}, (3, 40))
    x = np.random.default_rng(0).integers(0, 3, (3, 40)).astype("float32")
    for result, expected in zip(executable.run(x), (x.argmax(1), x.argmin(1)), strict=True):
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_other_floats(dtype):
    values = {name: lambda _, x, name=name: getattr(op, name)(x, 1) for name in ("max", "min", "argmax", "argmin")}
    check(values, {name: lambda x, name=name: getattr(np, name)(x, 1) for name in values}, (5, 35), dtype)


@pytest.mark.parametrize("kind", [tirx.Max, tirx.Min])
def test_what_keeps_nan_is_recognised_when_simplified(kind):
    x, y = (tirx.Var(name, "float32") for name in "xy")
    exact = extreme(kind, x, y)
    for expr in (exact, sym.Analyzer().simplify(exact)):
        found = plain(expr)
        assert isinstance(found, kind) and found.a.same_as(x) and found.b.same_as(y)
    assert plain(kind(x, y)) is None and plain(tirx.Select(x < y, kind(x, y), x)) is None
    whole = [tirx.Var(name, "int32") for name in "ij"]
    assert isinstance(extreme(kind, *whole), kind)


def test_whole_numbers_start_at_their_own_end():
    values = {name: lambda _, x, name=name: getattr(op, name)(x, 1) for name in ("max", "min", "argmax", "argmin")}
    executable = several(values, (4, 33), "int32")
    for x in (np.full((4, 33), -(2**31), "int32"), np.full((4, 33), 2**31 - 1, "int32")):
        for name, result in zip(values, executable.run(x), strict=True):
            np.testing.assert_array_equal(result, getattr(np, name)(x, 1))


def test_element_wise():
    values = {
        "relu": lambda _, x: op.nn.relu(x),
        "clip": lambda _, x: op.clip(x, -0.5, 0.5),
        "maximum": lambda builder, x: op.maximum(x, builder.emit(op.negative(x))),
        "minimum": lambda builder, x: op.minimum(x, builder.emit(op.negative(x))),
        "above one": lambda _, x: op.maximum(relax.const(1.0, "float32"), x),
        "below one": lambda _, x: op.minimum(x, relax.const(1.0, "float32")),
    }
    references = {
        "relu": lambda x: np.maximum(x, 0),
        "clip": lambda x: np.clip(x, -0.5, 0.5),
        "maximum": lambda x: np.maximum(x, -x),
        "minimum": lambda x: np.minimum(x, -x),
        "above one": lambda x: np.maximum(x, 1),
        "below one": lambda x: np.minimum(x, 1),
    }
    check(values, references, (5, 67))


@pytest.mark.parametrize(("shape", "layout"), [((2, 3, 9, 11), "NCHW"), ((1, 9, 11, 35), "NHWC")])
def test_pools(shape, layout):
    axes = (2, 3) if layout == "NCHW" else (1, 2)

    def reference(x: np.ndarray) -> np.ndarray:
        widths = [(1, 1) if axis in axes else (0, 0) for axis in range(4)]
        padded = np.pad(x, widths, constant_values=-np.inf)
        windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=axes)
        every = tuple(slice(None, None, 2) if axis in axes else slice(None) for axis in range(4))
        return windows.max(axis=(-1, -2))[every]

    pool = {"pool": lambda _, x: op.nn.max_pool2d(x, (3, 3), (2, 2), (1, 1, 1, 1), layout=layout)}
    check(pool, {"pool": reference}, shape)


def test_softmax_of_rows_with_nan_and_infinities():
    def reference(x: np.ndarray) -> np.ndarray:
        with np.errstate(invalid="ignore"):
            powers = np.exp(x - x.max(-1, keepdims=True))
            return powers / powers.sum(-1, keepdims=True)

    executable = several({"softmax": lambda _, x: op.nn.softmax(x)}, (6, 37))
    for kind, x in special_inputs((6, 37)):
        np.testing.assert_allclose(executable.run(x), reference(x), rtol=1e-5, atol=1e-7, err_msg=kind)


def test_relu_after_a_convolution_keeps_nan():
    rng = np.random.default_rng(0)
    weights = relax.const(rng.standard_normal((8, 3, 3, 3)).astype("float32"))
    values = {"y": lambda builder, x: op.nn.relu(builder.emit(op.nn.conv2d(x, weights, padding=1)))}
    result = several(values, (1, 3, 12, 13)).run(np.full((1, 3, 12, 13), np.nan, "float32"))
    assert np.isnan(result).all()


def test_pytorch_programs():
    torch = pytest.importorskip("torch")

    class Extremes(torch.nn.Module):
        def forward(self, x):
            largest, place = x.max(dim=1)
            smallest, low = x.min(dim=1)
            pooled = torch.nn.functional.max_pool2d(x[None], (3, 3), stride=2, padding=1)
            clamped = x.clamp(-0.5, 0.5)
            return (
                *(largest, place, smallest, low, pooled, clamped, x.amax((0, 2)), x.amin((0, 2))),
                *(torch.relu(x), x.argmax(), x.argmin(-1), torch.maximum(x, -x), x.max(), x.min()),
            )

    shape = (4, 9, 11)
    network = Extremes().eval()
    executable = tt.compile(torch.export.export(network, (torch.zeros(shape),)), cache=False)
    for kind, x in special_inputs(shape):
        expected = network(torch.from_numpy(x))
        for number, (result, value) in enumerate(zip(executable.run(x), expected, strict=True)):
            np.testing.assert_array_equal(result, value.numpy(), err_msg=f"output {number} of {kind}")
