"""Random operators that take positions from tensors, in ONNX, Relax and Relay, with indices in and out of range.

NumPy is the reference: where it raises IndexError, the model must be refused with a sentence that names the operator,
at compile time if the indices are constants, else at run time; otherwise results equal NumPy's. Each kernel runs
between guard pages (guarded_memory.py), so that an access outside of a tensor ends the process.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from case import Case
from guarded_memory import WalledModel
from tvm import relax

import tvm_tiling as tt
from tvm_tiling.frontend.source import load_model
from tvm_tiling.schedule import hardware_of

op = relax.op
DRAWS = 4  # sets of indices for each compiled model
WHOLE = 0.3  # share of the models that are also compiled and run as users do
FAR = (2**31 - 1, -(2**31), 2**63 - 1, -(2**63), 2**32, 2**40, -(2**33))


@dataclass(frozen=True)
class Indices:
    """A tensor of positions in axes of `extents`, one for each of its columns if there are several."""

    shape: tuple[int, ...]
    extents: tuple[int, ...]
    dtype: str = "int64"
    wraps: bool = True
    is_first: bool = False  # the axes are those of the first dimension, not of the last

    def drawn(self, rng: random.Random, inside: bool) -> np.ndarray:
        """Return valid positions, except for one of them unless `inside`."""
        arrays = np.random.default_rng(rng.randrange(2**32))
        extents = np.array(self.extents if len(self.extents) > 1 else self.extents[0])
        extents = extents.reshape(-1, *[1] * (len(self.shape) - 1)) if self.is_first else extents
        size = np.broadcast_to(extents, self.shape)
        result = np.asarray(arrays.random(self.shape) * size).astype("int64")
        if self.wraps and "uint" not in self.dtype:
            result = np.asarray(np.where(arrays.random(self.shape) < 0.3, result - size, result))
        if not inside and result.size:
            at = tuple(rng.randrange(extent) for extent in self.shape)
            extent = int(size[at])
            least = -extent if self.wraps else 0
            limits = np.iinfo(self.dtype)
            near = [extent, extent + 1, extent + 63, least - 1, least - 2, least - 64, *FAR]
            result[at] = rng.choice([value for value in near if limits.min <= value <= limits.max])
        return result.astype(self.dtype)


@dataclass(frozen=True)
class Operator:
    """`operands` in order, arrays or Indices; `reference` raises IndexError for indices out of range. `named`: the
    operator's name in errors of Relax and of Relay. An unsupported frontend is None."""

    text: str
    operands: tuple[np.ndarray | Indices, ...]
    reference: Callable[..., np.ndarray]
    relax: Callable[..., relax.Expr] | None = None
    onnx: tuple[str, dict[str, Any]] | None = None
    relay: str | None = None
    named: str = ""


# ---- operators ------------------------------------------------------------------------------------------------------


def _shape(rng: random.Random, least: int = 1, most: int = 3) -> tuple[int, ...]:
    return tuple(rng.choice((1, 2, 3, 4, 5, 7, 17)) for _ in range(rng.randint(least, most)))


def _data(rng: random.Random, shape: Sequence[int]) -> np.ndarray:
    return np.random.default_rng(rng.randrange(2**32)).integers(-50, 50, shape).astype("float32")


def _type(rng: random.Random, *others: str) -> str:
    return rng.choice(("int64", "int32", *others))


def _from_zero(indices: np.ndarray) -> None:
    if (indices < 0).any():
        raise IndexError("negative")


def _take(rng: random.Random) -> Operator:
    x = _data(rng, _shape(rng))
    axis = rng.randrange(x.ndim)
    places = Indices(_shape(rng, 0, 2), (x.shape[axis],), _type(rng))
    mode = rng.choice(("raise", "fast", "fast", "clip", "wrap"))

    def reference(data: np.ndarray, indices: np.ndarray) -> np.ndarray:
        if mode == "fast":
            _from_zero(indices)
        return np.take(data, indices, axis, mode="raise" if mode == "fast" else mode)

    if mode == "raise":  # negative ones count from the end
        return Operator(f"Gather {axis}", (x, places), reference, onnx=("Gather", {"axis": axis}))
    return Operator(
        f"take {axis} {mode}",
        (x, replace(places, wraps=False)),
        reference,
        relax=lambda data, i: op.take(data, i, axis, mode=mode),
        relay=f'take(%a, %b, axis={axis}, mode="{mode}")',
        named="take",
    )


def _along(rng: random.Random, x: np.ndarray) -> tuple[int, Indices]:
    """An axis, and indices along it that are smaller than the data in the other axes."""
    axis = rng.randrange(x.ndim)
    shape = tuple(rng.randint(1, 4) if a == axis else rng.randint(1, extent) for a, extent in enumerate(x.shape))
    return axis, Indices(shape, (x.shape[axis],), _type(rng))


def _gather_elements(rng: random.Random) -> Operator:
    x = _data(rng, _shape(rng))
    axis, places = _along(rng, x)

    def reference(data: np.ndarray, indices: np.ndarray) -> np.ndarray:
        window = tuple(slice(None) if a == axis else slice(extent) for a, extent in enumerate(indices.shape))
        return np.take_along_axis(data[window], indices.astype("int64"), axis)

    return Operator(
        f"gather_elements {axis}",
        (x, places),
        reference,
        relax=lambda data, i: op.gather_elements(data, i, axis),
        onnx=("GatherElements", {"axis": axis}),
        relay=f"gather(%a, %b, axis={axis})",
        named="gather_elements",
    )


def _gather_nd(rng: random.Random) -> Operator:
    x = _data(rng, _shape(rng, 1, 4))
    outer = rng.randrange(min(x.ndim, 2))
    axes = rng.randint(1, x.ndim - outer)
    rows = _shape(rng, 0 if outer == 0 else 1, 2)
    places = Indices((*x.shape[:outer], *rows, axes), x.shape[outer : outer + axes])

    def reference(data: np.ndarray, indices: np.ndarray) -> np.ndarray:
        result = np.empty((*indices.shape[:-1], *data.shape[outer + axes :]), data.dtype)
        for at in np.ndindex(*indices.shape[:-1]):
            result[at] = data[at[:outer]][tuple(indices[at])]
        return result

    return Operator(
        f"gather_nd {outer}",
        (x, places),
        reference,
        relax=lambda data, i: op.gather_nd(data, i, outer),
        onnx=("GatherND", {"batch_dims": outer}),
        named="gather_nd",
    )


def _gather_columns(rng: random.Random) -> Operator:
    """Relay's gather_nd, whose indices have the axes in front."""
    x = _data(rng, _shape(rng, 1, 4))
    axes = rng.randint(1, x.ndim)
    places = Indices((*_shape(rng, 0, 2), axes), x.shape[:axes], _type(rng))
    moved = replace(places, shape=(axes, *places.shape[:-1]), is_first=True)
    return Operator(
        "gather_nd, axes in front",
        (x, moved),
        lambda data, indices: data[tuple(indices)],
        relay="gather_nd(%a, %b)",
        named="gather_nd",
    )


_COMBINE: dict[str, Callable[[Any, Any], Any]] = {
    "update": lambda _, new: new,
    "add": lambda old, new: old + new,
    "mul": lambda old, new: old * new,
    "min": min,
    "max": max,
}


def _onnx_reduction(how: str) -> dict[str, str]:
    return {} if how == "update" else {"reduction": how}


def _scatter_elements(rng: random.Random) -> Operator:
    x, how = _data(rng, _shape(rng)), rng.choice(sorted(_COMBINE))
    axis, places = _along(rng, x)

    def reference(data: np.ndarray, indices: np.ndarray, updates: np.ndarray) -> np.ndarray:
        result = data.copy()
        for at in np.ndindex(*indices.shape):
            where = (*at[:axis], indices[at], *at[axis + 1 :])
            result[where] = _COMBINE[how](result[where], updates[at])
        return result

    return Operator(
        f"scatter_elements {axis} {how}",
        (x, places, _data(rng, places.shape)),
        reference,
        relax=lambda data, i, new: op.scatter_elements(data, i, new, axis, how),
        onnx=("ScatterElements", {"axis": axis, **_onnx_reduction(how)}),
        relay=f'scatter_elements(%a, %b, %c, axis={axis}, reduction="{how}")',
        named="scatter_elements",
    )


def _scatter_nd(rng: random.Random) -> Operator:
    x, how = _data(rng, _shape(rng)), rng.choice(sorted(_COMBINE))
    axes = rng.randint(1, x.ndim)
    places = Indices((*_shape(rng, 1, 2), axes), x.shape[:axes])

    def reference(data: np.ndarray, indices: np.ndarray, updates: np.ndarray) -> np.ndarray:
        result = data.copy()
        combine = np.frompyfunc(_COMBINE[how], 2, 1)
        for at in np.ndindex(*indices.shape[:-1]):
            where = tuple(indices[at])
            result[where] = combine(result[where], updates[at])
        return result

    return Operator(
        f"scatter_nd {how}",
        (x, places, _data(rng, (*places.shape[:-1], *x.shape[axes:]))),
        reference,
        relax=lambda data, i, new: op.scatter_nd(data, i, new, how),
        onnx=("ScatterND", _onnx_reduction(how)),
        named="scatter_nd",
    )


def _index_tensor(rng: random.Random) -> Operator:
    x = _data(rng, _shape(rng))
    count, shape = rng.randint(1, x.ndim), _shape(rng, 1, 2)
    places = [Indices(shape, (extent,), "int64") for extent in x.shape[:count]]
    return Operator(
        "index_tensor",
        (x, *places),
        lambda data, *indices: data[tuple(indices)],
        relax=lambda data, *indices: op.index_tensor(data, list(indices)),
        named="index_tensor",
    )


def _index_put(rng: random.Random) -> Operator:
    x, adds = _data(rng, _shape(rng, 1, 2)), rng.random() < 0.5
    count = rng.randint(1, 6)
    places = [Indices((count,), (extent,), "int64") for extent in x.shape]

    def reference(data: np.ndarray, *rest: np.ndarray) -> np.ndarray:
        result, (*indices, values) = data.copy(), rest
        for at in range(count):
            where = tuple(index[at] for index in indices)
            result[where] = result[where] + values[at] if adds else values[at]
        return result

    return Operator(
        f"index_put {adds}",
        (x, *places, _data(rng, (count,))),
        reference,
        relax=lambda data, *rest: op.index_put(data, relax.Tuple(list(rest[:-1])), rest[-1], adds),
        named="index_put",
    )


def _reverse_sequence(rng: random.Random) -> Operator:
    x = _data(rng, _shape(rng, 2, 3))
    time, batch = rng.choice(((0, 1), (1, 0)))
    lengths = Indices((x.shape[batch],), (x.shape[time] + 1,), "int64", wraps=False)

    def reference(data: np.ndarray, length: np.ndarray) -> np.ndarray:
        if ((length < 0) | (length > data.shape[time])).any():
            raise IndexError("length")
        result, moved = data.copy(), np.moveaxis(data, (batch, time), (0, 1))
        for row, count in enumerate(length):
            np.moveaxis(result, (batch, time), (0, 1))[row, :count] = moved[row, :count][::-1]
        return result

    return Operator(
        f"reverse_sequence {time}",
        (x, lengths),
        reference,
        relax=lambda data, i: op.reverse_sequence(data, i, time, batch),
        onnx=("ReverseSequence", {"time_axis": time, "batch_axis": batch}),
        relay=f"reverse_sequence(%a, %b, seq_axis={time}, batch_axis={batch})",
        named="reverse_sequence",
    )


def _max_unpool(rng: random.Random) -> Operator:
    x = _data(rng, (1, rng.randint(1, 2), rng.randint(1, 3), rng.randint(1, 3)))
    shape = (*x.shape[:2], 2 * x.shape[2], 2 * x.shape[3])
    places = Indices(x.shape, (int(np.prod(shape)),), "int64", wraps=False)

    def reference(data: np.ndarray, indices: np.ndarray) -> np.ndarray:
        _from_zero(indices)
        result = np.zeros(int(np.prod(shape)), data.dtype)
        for value, place in zip(data.reshape(-1), indices.reshape(-1), strict=True):
            result[place] = value
        return result.reshape(shape)

    return Operator(
        "MaxUnpool", (x, places), reference, onnx=("MaxUnpool", {"kernel_shape": [2, 2], "strides": [2, 2]})
    )


OPERATORS = (
    _take,
    _gather_elements,
    _gather_nd,
    _gather_columns,
    _scatter_elements,
    _scatter_nd,
    _index_tensor,
    _index_put,
    _reverse_sequence,
    _max_unpool,
)

# ---- models ---------------------------------------------------------------------------------------------------------


def _as_relax(chosen: Operator, arrays: Sequence[np.ndarray], constant: set[int], sums: bool) -> Any:
    builder = relax.BlockBuilder()
    inputs = {
        place: relax.Var(f"in_{place}", relax.TensorType(array.shape, str(array.dtype)))
        for place, array in enumerate(arrays)
        if place not in constant
    }
    with builder.function("main", list(inputs.values())):
        with builder.dataflow():
            given = [
                inputs[p] if p in inputs else relax.const(array, str(array.dtype)) for p, array in enumerate(arrays)
            ]
            assert chosen.relax is not None
            result = builder.emit(chosen.relax(*given))
            if sums:  # which is fused with the gather
                result = builder.emit(op.add(result, relax.const(1.0, "float32")))
            output = builder.emit_output(result)
        builder.emit_func_output(output)
    return builder.get(), {}


def _as_onnx(chosen: Operator, arrays: Sequence[np.ndarray], constant: set[int], sums: bool) -> Any:
    from onnx import TensorProto, helper, numpy_helper

    assert chosen.onnx is not None
    kind, attributes = chosen.onnx
    names = [f"in_{place}" for place in range(len(arrays))]
    nodes = [helper.make_node(kind, names, ["made"], name="looked", **attributes)]
    nodes.append(
        helper.make_node("Add", ["made", "one"], ["out"]) if sums else helper.make_node("Identity", ["made"], ["out"])
    )
    held = [numpy_helper.from_array(np.array(1.0, "float32"), "one")]
    held += [numpy_helper.from_array(arrays[place], names[place]) for place in constant]
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for place, (name, array) in enumerate(zip(names, arrays, strict=True))
        if place not in constant
    ]
    output = helper.make_tensor_value_info("out", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "random", inputs, [output], initializer=held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), {}


def _as_relay(chosen: Operator, arrays: Sequence[np.ndarray], constant: set[int], sums: bool) -> Any:
    parameters = ", ".join(
        f"%{name}: Tensor[({', '.join(map(str, array.shape))}), {array.dtype}]"
        for name, array in zip("abc", arrays, strict=False)
    )
    text = f"add({chosen.relay}, 1f)" if sums else chosen.relay
    module = f'#[version = "0.0.5"]\ndef @main({parameters}) {{\n  {text}\n}}\n'
    return module.encode(), {"abc"[place]: arrays[place] for place in constant}


FRONTENDS: dict[str, Callable[..., Any]] = {"relax": _as_relax, "onnx": _as_onnx, "relay": _as_relay}


def _require_refusal(error: tt.TilingError, chosen: Operator, frontend: str) -> None:
    said = str(error)
    name = f"node 'looked' ({chosen.onnx[0]})" if frontend == "onnx" and chosen.onnx else chosen.named
    if frontend == "relay":
        name = str(chosen.relay).partition("(")[0]
    assert "\n" not in said and name in said and "is out of range; expected " in said, said


def _same(found: Sequence[np.ndarray], expected: np.ndarray) -> None:
    assert found[0].shape == expected.shape
    np.testing.assert_array_equal(found[0], expected)


def random_indices(rng: random.Random) -> Case:
    """One operator in one frontend, with several sets of indices, or one constant set."""
    chosen = rng.choice(OPERATORS)(rng)
    frontend = rng.choice([name for name in FRONTENDS if getattr(chosen, name) is not None])
    is_constant, sums, is_whole = rng.random() < 0.25, rng.random() < 0.5, rng.random() < WHOLE
    sets = []
    for _ in range(1 if is_constant else DRAWS):
        outside = rng.choice([place for place, o in enumerate(chosen.operands) if isinstance(o, Indices)])
        is_inside = rng.random() < 0.5
        sets.append(
            [
                o.drawn(rng, is_inside or place != outside) if isinstance(o, Indices) else o
                for place, o in enumerate(chosen.operands)
            ]
        )
    constant = {p for p, o in enumerate(chosen.operands) if isinstance(o, Indices)} if is_constant else set()
    shapes = " ".join(f"{o.shape} {o.dtype}" for o in chosen.operands)
    indices = [[a.tolist() for a, o in zip(s, chosen.operands, strict=True) if isinstance(o, Indices)] for s in sets]

    def check() -> None:
        expected: list[np.ndarray | None] = []
        for arrays in sets:
            try:
                expected.append(chosen.reference(*arrays) + np.float32(sums))
            except IndexError:
                expected.append(None)
        model, params = FRONTENDS[frontend](chosen, sets[0], constant, sums)
        try:
            imported = load_model(model, params=params)
            walled = WalledModel(imported.module, hardware_of("llvm"))
            whole = tt.compile(model, params=params, cache=False) if is_whole else None
        except tt.TilingError as error:
            if not is_constant or expected[0] is not None:
                raise
            return _require_refusal(error, chosen, frontend)
        assert not is_constant or expected[0] is not None, "constants out of range were compiled"
        for arrays, wanted in zip(sets, expected, strict=True):
            free = [array for place, array in enumerate(arrays) if place not in constant]
            runs: list[Callable[[], Any]] = [lambda at=at, free=free: walled.run(free, at) for at in (False, True)]
            if whole is not None:
                runs.append(lambda free=free: [whole.run(*free)])
            for run in runs:
                try:
                    found = run()
                except tt.TilingError as error:
                    if wanted is not None:
                        raise
                    _require_refusal(error, chosen, frontend)
                    continue
                assert wanted is not None, "indices out of range gave a result"
                _same(found, wanted)

    kind = "constant" if is_constant else "computed"
    return Case(f"{frontend} {chosen.text} {shapes} {kind} {sums} {is_whole} {indices}", check)
