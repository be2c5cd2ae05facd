"""One matrix multiplication described as data: its TIR, its inputs, its result in NumPy, and the comparison.

Every operand of a run lies between guard bytes that are all ones: NaN in any float type. A run is correct if the output
is, no input has changed, and nothing outside of the output has.
"""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Callable
from dataclasses import dataclass, replace

import ml_dtypes  # registers bfloat16 with NumPy
import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import te, tirx
from tvm.script import tirx as T  # noqa: N812

import tvm_tiling as tt
from tvm_tiling.schedule import this_cpu

GUARD = 256  # bytes before and after every operand; preserves the 64-byte alignment that kernels require
DTYPES = {name: np.dtype(name) for name in ("float64", "float32", "float16", "int8", "uint8", "int16", "int32")}
DTYPES["bfloat16"] = np.dtype(ml_dtypes.bfloat16)
SUMS = {"float64": "float64", "float32": "float32", "float16": "float32", "bfloat16": "float32"}
EPSILON = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
STEP_NEAR_ZERO = {"float16": 2.0**-24}  # distance of neighbours too small for a full mantissa
_erf = np.vectorize(math.erf, otypes=[np.float64])


@dataclass(frozen=True, kw_only=True)
class Product:
    """C[..., m, n] = A[..., m, k] * B[..., k, n], then the steps of `epilogue` in order.

    `out` is the type of the sum, None the default one. `batch_b` is broadcast against `batch` as in NumPy. `pad_a`,
    `pad_b`, `pad_c` are elements between the rows of strided operands (without batch and epilogue). A step of the
    epilogue is a name below or "cast:<type>".
    """

    m: int
    n: int
    k: int
    dtype: str = "float32"
    dtype_b: str | None = None
    out: str | None = None
    batch: tuple[int, ...] = ()
    batch_b: tuple[int, ...] | None = None
    trans_a: bool = False
    trans_b: bool = False
    epilogue: tuple[str, ...] = ()
    pad_a: int = 0
    pad_b: int = 0
    pad_c: int = 0

    @property
    def type_b(self) -> str:
        return self.dtype_b or self.dtype

    @property
    def sum_type(self) -> str:
        return self.out or SUMS.get(self.dtype, "int32")

    @property
    def batch_of_b(self) -> tuple[int, ...]:
        return self.batch if self.batch_b is None else self.batch_b

    @property
    def strided(self) -> bool:
        return bool(self.pad_a or self.pad_b or self.pad_c)

    @property
    def shape_a(self) -> tuple[int, ...]:
        return (*self.batch, *((self.k, self.m) if self.trans_a else (self.m, self.k)))

    @property
    def shape_b(self) -> tuple[int, ...]:
        return (*self.batch_of_b, *((self.n, self.k) if self.trans_b else (self.k, self.n)))

    @property
    def shape_c(self) -> tuple[int, ...]:
        return (*self.batch, self.m, self.n)


# ---- TIR --------------------------------------------------------------------------------------------------------


def tensors(p: Product) -> list[te.Tensor]:
    """The matrix multiplication as a tensor expression: A, B, operands of the epilogue, and the result."""
    a = te.placeholder(p.shape_a, p.dtype, "A")
    b = te.placeholder(p.shape_b, p.type_b, "B")
    k = te.reduce_axis((0, p.k), "k")

    def element(*at):
        *batch, i, j = at
        shared = batch[len(p.batch) - len(p.batch_of_b) :]
        own = [0 if size == 1 else x for size, x in zip(p.batch_of_b, shared, strict=True)]
        left = a(*batch, *((k, i) if p.trans_a else (i, k)))
        right = b(*own, *((j, k) if p.trans_b else (k, j)))
        return te.sum(left.astype(p.sum_type) * right.astype(p.sum_type), k)

    inputs, value = [a, b], te.compute(p.shape_c, element, "C")
    for number, step in enumerate(p.epilogue):
        value = _epilogue_step(p, step, number, value, inputs)
    return [*inputs, value]


def _epilogue_step(p: Product, step: str, number: int, x: te.Tensor, inputs: list[te.Tensor]) -> te.Tensor:
    def each(f):
        return te.compute(x.shape, lambda *at: f(x(*at), at), f"{step.replace(':', '_')}_{number}")

    if step.startswith("cast:"):
        return each(lambda v, _: v.astype(step[5:]))
    if step in ("bias_n", "bias_m", "residual"):
        shape = {"bias_n": (p.n,), "bias_m": (p.m, 1), "residual": p.shape_c}[step]
        other = te.placeholder(shape, x.dtype, f"{step}_{number}_input")
        inputs.append(other)
        where = {"bias_n": lambda at: at[-1:], "bias_m": lambda at: (at[-2], 0), "residual": lambda at: at}[step]
        return each(lambda v, at: v + other(*where(at)))
    f = {
        "relu": lambda v: te.max(v, tirx.const(0, x.dtype)),
        "tanh": te.tanh,
        "gelu": lambda v: (
            v * tirx.const(0.5, x.dtype) * (tirx.const(1, x.dtype) + te.erf(v * tirx.const(0.5**0.5, x.dtype)))
        ),
        "scale": lambda v: v * tirx.const(0.125, x.dtype),
        "square": lambda v: v * v,
    }[step]
    return each(lambda v, _: f(v))


def strided_func(p: Product) -> tirx.PrimFunc:
    """The matrix multiplication on strided buffers; a transposed operand is one whose rows are the contiguous axis."""
    strides_a, strides_b, strides_c = (_strides(p, name) for name in "abc")
    m, n, k, out = p.m, p.n, p.k, p.sum_type

    @T.prim_func(s_tir=True)
    def main(
        A: T.Buffer((m, k), p.dtype, strides=strides_a),
        B: T.Buffer((k, n), p.type_b, strides=strides_b),
        C: T.Buffer((m, n), out, strides=strides_c),
    ):
        for i, j, x in T.grid(m, n, k):
            with T.sblock("C"):
                vi, vj, vx = T.axis.remap("SSR", [i, j, x])
                with T.init():
                    C[vi, vj] = T.Cast(out, 0)
                C[vi, vj] = C[vi, vj] + T.Cast(out, A[vi, vx]) * T.Cast(out, B[vx, vj])

    return main


def _strides(p: Product, operand: str) -> tuple[int, int]:
    pad, transposed, rows, columns = {
        "a": (p.pad_a, p.trans_a, p.m, p.k),
        "b": (p.pad_b, p.trans_b, p.k, p.n),
        "c": (p.pad_c, False, p.m, p.n),
    }[operand]
    strides = (1, rows + pad) if transposed else (columns + pad, 1)
    # A single row or column has no gaps, and NumPy before 2.3 exports such arrays as if they were contiguous.
    gaps = any(
        size > 1 and step != whole for size, step, whole in zip((rows, columns), strides, (columns, 1), strict=True)
    )
    return strides if gaps else (columns, 1)


def operator(p: Product) -> te.Tensor | tirx.PrimFunc:
    if p.strided:
        return strided_func(p)
    *_, result = tensors(p)
    return result


# ---- arrays ------------------------------------------------------------------------------------------------------


class Guarded:
    """Return an array between guard bytes, or one with guard bytes between its rows."""

    def __init__(self, shape: tuple[int, ...], dtype: str, strides: tuple[int, int] | None = None) -> None:
        kind = DTYPES[dtype]
        steps = strides or tuple(math.prod(shape[d + 1 :]) for d in range(len(shape)))
        extent = 1 + sum((size - 1) * step for size, step in zip(shape, steps, strict=True))
        raw, start = self.place(extent * kind.itemsize)
        self.raw = raw
        self.array = np.ndarray(shape, kind, raw, start, tuple(step * kind.itemsize for step in steps))
        if dtype == "bfloat16":
            flat = tvm.runtime.from_dlpack(raw[start : start + extent * 2])
            assert strides is None
            self.tensor = flat._create_view(shape, "bfloat16")
        else:
            self.tensor = tvm_ffi.from_dlpack(self.array, require_alignment=64, require_contiguous=False)
        self.before = raw.copy()

    def place(self, size: int) -> tuple[np.ndarray, int]:
        """Return bytes of ones and the offset of an array of `size` bytes in them."""
        raw = np.full(size + 2 * GUARD + 64, 0xFF, np.uint8)
        return raw, -raw.ctypes.data % 64 + GUARD

    def fill(self, values: np.ndarray) -> Guarded:
        self.array[...] = values
        self.before = self.raw.copy()
        return self

    def unchanged(self) -> bool:
        return np.array_equal(self.raw, self.before)

    def unchanged_around(self) -> bool:
        """Return whether every byte is unchanged, except those of the array."""
        now = self.array.copy()
        self.array.view(_bits(self.array))[...] = -1
        same = np.array_equal(self.raw, self.before)
        self.array[...] = now
        return same


def _bits(array: np.ndarray) -> np.dtype:
    return np.dtype(f"int{8 * array.itemsize}")


def random_values(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Return normally distributed floats, or integers over the whole range."""
    if dtype in EPSILON:
        return rng.standard_normal(shape).astype(DTYPES[dtype])
    info = np.iinfo(DTYPES[dtype])
    low, high = (-1000, 1000) if dtype == "int32" else (info.min, info.max)
    return rng.integers(low, high, shape, dtype=DTYPES[dtype], endpoint=True)


# ---- NumPy -------------------------------------------------------------------------------------------------------


def expected(p: Product, inputs: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray, str]:
    """Return the result in float64 or int64, the error allowed for each element, and the output's type.

    Allowed: sqrt(k) + 4 roundings of the sum's type, relative to the sum of absolute products (k float32 products added
    in any order stay within that except with a probability of e^-k), and one rounding of each later type.
    """
    exact = np.float64 if p.dtype in EPSILON else np.int64
    # The source converts both factors to the sum's type before it multiplies.
    a, b = (x.astype(DTYPES[p.sum_type]).astype(exact) for x in inputs[:2])
    a = np.swapaxes(a, -1, -2) if p.trans_a and not p.strided else a
    b = np.swapaxes(b, -1, -2) if p.trans_b and not p.strided else b
    value, kind = _matmul(a, b), p.sum_type
    if kind not in EPSILON:
        value, error = value.astype(DTYPES[kind]).astype(np.int64), np.zeros(value.shape)
    else:
        work = EPSILON["float64" if kind == "float64" else "float32"]
        error = (math.sqrt(p.k) + 4) * work * np.matmul(np.abs(a), np.abs(b)) + EPSILON[kind] * np.abs(value)
        error += STEP_NEAR_ZERO.get(kind, 0.0)
    extra = iter(inputs[2:])
    for step in p.epilogue:
        value, error, kind = _expected_step(step, value, error, kind, extra)
    return value, error, kind


def _matmul(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Multiply the matrices; integers through float64, ten times faster and exact while every sum of absolute products
    is below 2^53."""
    if a.dtype == np.int64 and a.shape[-1] * math.prod(int(np.abs(x).max(initial=0)) for x in (a, b)) < 2**53:
        return np.matmul(a.astype(np.float64), b.astype(np.float64)).astype(np.int64)
    return np.matmul(a, b)


def _expected_step(step, value, error, kind, extra):
    if step.startswith("cast:"):
        kind = step[5:]
        if kind not in EPSILON:
            return value.astype(np.int64).astype(DTYPES[kind]).astype(np.int64), error, kind
        value = value.astype(np.float64)
    elif step in ("bias_n", "bias_m", "residual"):
        other = next(extra).astype(value.dtype)
        value = value + other
    elif step == "square":
        value, error = value * value, 2 * error * np.abs(value) + error * error
    elif step == "scale":
        value, error = value * 0.125, error * 0.125
    elif step == "gelu":
        value, error = value * 0.5 * (1 + _erf(value * math.sqrt(0.5))), 1.2 * error + 1e-6 * np.abs(value)
    else:
        value = {"relu": lambda v: np.maximum(v, 0), "tanh": np.tanh}[step](value)
        error = error + (1e-6 if step == "tanh" else 0)
    return value, error + EPSILON.get(kind, 0.0) * (np.abs(value) + error) + STEP_NEAR_ZERO.get(kind, 0.0), kind


# ---- runs --------------------------------------------------------------------------------------------------------


def native(**changes: object) -> tt.Hardware:
    """Return this CPU with one core and the given changes: kernels for such a description run here, too."""
    cpu = this_cpu().cpu
    assert cpu is not None
    if "cores" in changes:
        changes["threads"] = changes["cores"]
    return tt.Hardware(name="native", cpu=replace(cpu, **{"cores": 1, "threads": 1, **changes}))


def avx2(vector_bits: int = 256, **changes: object) -> tt.Hardware:
    """Return this CPU with 16 registers of 256 bits and without AVX-512."""
    features = ("avx", "avx2", "fma", "f16c", "bmi", "bmi2")
    return native(mcpu="", features=features, vector_bits=vector_bits, vector_registers=16, **changes)


def machine_for(form: str | None, machine: Callable[..., tt.Hardware] | None = None, cores: int = 1) -> tt.Hardware:
    """Return a machine that has register tiles for `form`: inline copy needs more rows than may be read in place."""
    return (machine or native)(cores=cores, **({"priority_ratio": 0.3} if form == "inline" else {}))


def decision(func: tirx.PrimFunc) -> dict[str, object]:
    return json.loads(str(func.attrs["tvm_tiling.decision"]))


ON_X86 = pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="describes an x86-64 processor")


def inputs_of(p: Product, seed: int = 0) -> list[Guarded]:
    """Return random values for every input."""
    rng = np.random.default_rng(seed)
    if p.strided:
        a = Guarded((p.m, p.k), p.dtype, _strides(p, "a"))
        b = Guarded((p.k, p.n), p.type_b, _strides(p, "b"))
        pairs = [(a, p.dtype), (b, p.type_b)]
    else:
        pairs = [(Guarded(tuple(map(int, t.shape)), str(t.dtype)), str(t.dtype)) for t in tensors(p)[:-1]]
    return [guarded.fill(random_values(rng, guarded.array.shape, dtype)) for guarded, dtype in pairs]


def check(
    p: Product,
    hardware: tt.Hardware | None = None,
    *,
    inputs: list[Guarded] | None = None,
    seed: int = 0,
    form: str | None = None,
    microkernel: tuple[int, int] | None = None,
    weights: str = "plain",
) -> dict[str, object]:
    """Schedule, compile and run the matrix multiplication and compare it with NumPy; return the decision."""
    hardware = hardware or native()
    sch = tt.tiling_schedule(operator(p), hardware, algorithm=form, microkernel=microkernel, weights=weights)
    taken = decision(sch.mod["main"])
    lib = tvm.compile(sch.mod, target=tt.llvm_target(hardware))
    operands = inputs or inputs_of(p, seed)
    value, allowed, kind = expected(p, [x.array for x in operands])
    output = Guarded(p.shape_c, kind, _strides(p, "c") if p.strided else None)
    arguments = [x.tensor for x in operands]
    if weights == "packed":
        buffer = sch.mod["main_pack"].params[1]
        packed = Guarded(tuple(int(s) for s in buffer.shape), str(buffer.dtype))
        lib["main_pack"](arguments[1], packed.tensor)
        assert packed.unchanged_around(), "packing writes beside the packed operand"
        packed.before = packed.raw.copy()
        operands, arguments = [*operands, packed], [arguments[0], packed.tensor, *arguments[2:]]
    lib["main"](*arguments, output.tensor)
    context = f"{p}, form {form}, microkernel {microkernel}, {weights}: {taken}"
    assert all(x.unchanged() for x in operands), f"an input was written: {context}"
    assert output.unchanged_around(), f"something beside the output was written: {context}"
    assert_close(output.array, value, allowed, context)
    return taken


def assert_close(result: np.ndarray, value: np.ndarray, allowed: np.ndarray, context: str = "") -> None:
    """Equal to `value` within `allowed`, NaN where it is NaN and infinite where it is infinite."""
    if result.dtype.kind in "iu":
        wrong = result.astype(np.int64) != value
    else:
        with np.errstate(invalid="ignore"):
            near = np.abs(result.astype(np.float64) - value) <= allowed
        wrong = ~(near | (result == value) | (np.isnan(result) & np.isnan(value)))
    if wrong.any():
        at = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise AssertionError(
            f"{wrong.sum()} of {wrong.size} wrong, first {at}: {result[at]} is not {value[at]}; {context}"
        )


def legal_tiles(registers: int) -> list[tuple[int, int]]:
    """Return every (rows, vectors) that the number of registers allows."""
    return [(m, z) for z in range(1, registers) for m in range(1, registers) if (m + 1) * z + 1 <= registers]


def check_tile(hardware: tt.Hardware, tile: tuple[int, int], dtype: str = "float32", **options: str) -> None:
    """Return a matrix multiplication of two register tiles and a tail in both directions, with that tile forced."""
    rows, vectors = tile
    columns = vectors * hardware.cpu.lanes(4)
    p = Product(m=2 * rows + rows // 2, n=2 * columns + 5, k=19, dtype=dtype)
    taken = check(p, hardware, microkernel=tile, **options)
    assert (taken["mr"], taken["nr"]) == (rows, columns)
