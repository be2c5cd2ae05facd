"""Divisions and shifts that must not end the process, compiled and run here.

python divisions.py prints a line of JSON for each model: its name, and the result or the error. The name is printed
first, so that a trap can be identified.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tvm
from onnx import helper, numpy_helper
from tvm import relax, te, tirx

import tvm_tiling as tt

op = relax.op
DTYPES = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
DIVISIONS = ("divide", "floor_divide", "mod", "floor_mod")
SHIFTS = ("left_shift", "right_shift")
THIRD = np.array([-1, 3, -2, 1], "int32")
ZERO_AT_1 = np.array([3, 0, -1, 0])
NODES = (("Div", {}), ("Mod", {}), ("Mod", {"fmod": 1}))


def edges(dtype: str, zero: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Return all pairs of a number at a limit of the type and a divisor; with `zero`, including 0."""
    limits = np.iinfo(dtype)
    values = [limits.min, limits.min + 1, limits.max, limits.max - 1, -3, -2, -1, 0, 1, 2, 3, 7]
    values = sorted({value for value in values if limits.min <= value <= limits.max})
    pairs = [(a, b) for a, b in itertools.product(values, values) if b or zero]
    return tuple(np.array(side, dtype) for side in zip(*pairs, strict=True))  # type: ignore[return-value]


def shifts(dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """Return all pairs of a number and a shift distance, including excessive ones."""
    limits, bits = np.iinfo(dtype), 8 * np.dtype(dtype).itemsize
    places = [place for place in (0, 1, bits - 1, bits, bits + 1, 100, -1, -bits) if limits.min <= place <= limits.max]
    pairs = list(itertools.product((limits.min, limits.max, 1, 77), places))
    return tuple(np.array(side, dtype) for side in zip(*pairs, strict=True))  # type: ignore[return-value]


def model(make: Callable[..., relax.Expr], *inputs: np.ndarray) -> tvm.IRModule:
    """Return a Relax function: the result of `make` for a builder and inputs like these."""
    builder = relax.BlockBuilder()
    variables = [relax.Var(f"x{i}", relax.TensorType(x.shape, str(x.dtype))) for i, x in enumerate(inputs)]
    with builder.function("main", variables):
        with builder.dataflow():
            output = builder.emit_output(builder.emit(make(builder, *variables)))
        builder.emit_func_output(output)
    return builder.get()


def node(kind: str, given: dict[str, np.ndarray], constants: dict[str, np.ndarray], **attributes: Any) -> Any:
    """Return an ONNX model with one node called "quotient"."""
    made = helper.make_node(kind, [*given, *constants], ["y"], name="quotient", **attributes)
    kinds = {name: helper.np_dtype_to_tensor_dtype(value.dtype) for name, value in (given | constants).items()}
    graph = helper.make_graph(
        [made],
        "division",
        [helper.make_tensor_value_info(name, kinds[name], value.shape) for name, value in given.items()],
        [helper.make_tensor_value_info("y", next(iter(kinds.values())), None)],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def relay(text: str, dtype: str, count: int) -> bytes:
    """Return a Relay model of one expression over %a and %b."""
    kind = f"Tensor[({count}), {dtype}]"
    return f'#[version = "0.0.5"]\ndef @main(%a: {kind}, %b: {kind}) {{\n  {text}\n}}\n'.encode()


KERNELS: dict[str, Callable[[Any, Any], Any]] = {
    "truncdiv": tirx.truncdiv,
    "truncmod": tirx.truncmod,
    "floordiv": tirx.floordiv,
    "floormod": tirx.floormod,
}


def kernel(function: Callable[[Any, Any], Any]) -> Callable[..., relax.Expr]:
    """Return an expression whose kernel divides without a check, as a frontend may emit it."""

    def divided(a: te.Tensor, b: te.Tensor) -> te.Tensor:
        return te.compute(a.shape, lambda i: function(a[i], b[i]), name="divided")

    return lambda builder, a, b: builder.call_te(divided, a, b)


def by_loop(builder: relax.BlockBuilder, a: relax.Expr) -> relax.Expr:
    """Divide numbers by their positions, the first of which is 0."""
    return builder.call_te(lambda x: te.compute(x.shape, lambda i: tirx.truncdiv(x[i], tirx.Cast("int32", i))), a)


def by_operator(name: str) -> Callable[..., relax.Expr]:
    return lambda _, a, b: getattr(op, name)(a, b)


def several(*functions: Callable[..., relax.Expr]) -> Callable[..., relax.Expr]:
    """Return an expression of the results of all functions."""
    return lambda builder, *operands: relax.Tuple([builder.emit(f(builder, *operands)) for f in functions])


def chain(builder: relax.BlockBuilder, a: relax.Expr, b: relax.Expr) -> relax.Expr:
    """Divide twelve times."""
    for _ in range(12):
        a = builder.emit(op.floor_divide(a, b))
    return a


def cases() -> Iterator[tuple[str, Any, tuple[np.ndarray, ...]]]:
    """Yield name, model, inputs."""
    for dtype in DTYPES:
        # Together, because each compilation takes time of its own.
        for name, makes, given in (
            ("divisions", [by_operator(name) for name in DIVISIONS], edges(dtype)),
            ("shifts", [by_operator(name) for name in SHIFTS], shifts(dtype)),
            ("kernels", [kernel(function) for function in KERNELS.values()], edges(dtype, zero=True)),
        ):
            yield f"{name} {dtype}", model(several(*makes), *given), given
    a, zero = np.array([-(2**31), 7, -7, 5], "int32"), ZERO_AT_1.astype("int32")
    for name in DIVISIONS:
        function = getattr(op, name)
        yield f"computed zero {name}", model(lambda _, x, y, f=function: f(x, y), a, zero), (a, zero)
        yield f"constant zero {name}", model(lambda _, x, f=function: f(x, relax.const(zero)), a), (a,)
        yield f"the number zero {name}", model(lambda _, x, f=function: f(x, relax.const(0, "int32")), a), (a,)
        yield f"the number -1 {name}", model(lambda _, x, f=function: f(x, relax.const(-1, "int32")), a), (a,)
        both = model(lambda _, x, f=function: op.add(x, f(relax.const(a), relax.const(-a | 1))), a)
        yield f"constants {name}", both, (np.zeros_like(a),)
    large = np.arange(1 << 16, dtype="int32").reshape(256, 256) - (1 << 16)
    large[200, 3] = 0
    yield "computed zero among many", model(lambda _, x: op.floor_divide(x, x), large), (large,)
    yield "divided by its place", model(by_loop, a), (a,)
    yield "a chain of twelve", model(chain, a, THIRD), (a, THIRD)
    for places in (40, -1):
        for name in SHIFTS:
            shift = model(lambda _, x, s=name, n=places: getattr(op, s)(x, relax.const(n, "int32")), a)
            yield f"{name} by {places}", shift, (a,)
    for kind, attributes in NODES:
        name = f"{kind}{attributes.get('fmod', '')}"
        x, y = edges("int32")
        yield f"{name} edges", node(kind, {"a": x, "b": y}, {}, **attributes), (x, y)
        yield f"{name} of constants", node(kind, {}, {"a": x, "b": y}, **attributes), ()
        yield f"{name} computed zero", node(kind, {"a": a, "b": zero}, {}, **attributes), (a, zero)
        yield f"{name} constant zero", node(kind, {"a": a}, {"b": zero}, **attributes), (a,)
        yield f"{name} constants with a zero", node(kind, {}, {"a": a, "b": zero}, **attributes), ()
    for name in ("trunc_divide", "trunc_mod", "divide", "mod", "floor_divide", "floor_mod"):
        x, y = edges("int64")
        yield f"Relay {name} edges", relay(f"{name}(%a, %b)", "int64", len(x)), (x, y)
        yield f"Relay {name} computed zero", relay(f"{name}(%a, %b)", "int32", 4), (a, zero)


def main() -> None:
    for name, given, inputs in cases():
        print(json.dumps({"name": name}), flush=True)
        try:
            result = tt.compile(given, cache=False).run(*inputs)
        except tt.TilingError as error:
            print(json.dumps({"name": name, "said": f"{type(error).__name__}: {error}"}), flush=True)
            continue
        results = [r.tolist() for r in result] if isinstance(result, tuple) else result.tolist()
        print(json.dumps({"name": name, "result": results}), flush=True)


if __name__ == "__main__":
    main()
