"""Workloads: operators to compute, independent of how. Sizes in elements, all immutable."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import MISSING, dataclass, fields, replace
from functools import cached_property
from typing import Any, ClassVar, NoReturn

from .errors import UnsupportedOperator, WorkloadError, nearest
from .operand_types import PLAIN, WEIGHT_FORMATS, Encoding, OperandTypes, element_bytes, is_integer

MEMORIES = ("external", "internal")


def require_positive(owner: str, name: str, value: object) -> None:
    """Raise WorkloadError with the field and the accepted values unless `value` is a whole number of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise WorkloadError(f"{owner}: {name} = {value!r}; expected a whole number of at least 1")


class _SumOfProducts:
    """Properties common to all workloads of multiply-accumulates, derived from `macs` and the fields of types."""

    op: ClassVar[str]
    named: ClassVar[tuple[str, ...]] = ()
    dtype: str
    acc_dtype: str | None
    b_dtype: str | None = None
    out_dtype: str | None = None
    encoding: Encoding = PLAIN
    b_limit: int | None = None

    def __repr__(self) -> str:
        """Return the constructor's call, without arguments that change nothing; those of `named` are always shown."""
        given = {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]
        for name in [f.name for f in fields(self) if f.default is not MISSING]:  # type: ignore[arg-type]
            if name in self.named:
                continue
            fewer = {other: value for other, value in given.items() if other != name}
            with suppress(WorkloadError):
                if type(self)(**fewer) == self:
                    given = fewer
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in given.items())})"

    def _settle_types(self, owner: str) -> None:
        """Check the types during construction; defaults are stored as None, so that equal types compare equal."""
        encoding = Encoding.parse(self.encoding) if isinstance(self.encoding, str) else self.encoding
        if not isinstance(encoding, Encoding):
            raise WorkloadError(f"{owner}: encoding = {encoding!r}; expected an Encoding or its text")
        types = OperandTypes.of(owner, self.dtype, self.b_dtype, self.acc_dtype, self.out_dtype)
        if self.b_limit is not None:
            require_positive(owner, "b_limit", self.b_limit)
            if not is_integer(types.b):
                raise WorkloadError(f"{owner}: b_limit = {self.b_limit} for B of {types.b}; expected integers")
        settled = {
            "acc_dtype": types.acc,
            "b_dtype": None if types.b == types.a else types.b,
            "out_dtype": None if types.out == types.acc else types.out,
            "encoding": encoding,
        }
        for name in {f.name for f in fields(self)} & set(settled):  # type: ignore[arg-type]
            object.__setattr__(self, name, settled[name])

    @cached_property
    def types(self) -> OperandTypes:
        """Types of A, B, accumulators and result."""
        acc = self.acc_dtype or self.dtype
        return OperandTypes(self.dtype, self.b_dtype or self.dtype, acc, self.out_dtype or acc)

    def type_fields(self, *, exchanged: bool = False) -> dict[str, Any]:
        """The fields that determine types, for another workload of the same operands, which are swapped if `exchanged`.
        Raises UnsupportedOperator if that made an encoded operand the first one."""
        types = self.types
        if exchanged and self.encoding != PLAIN:
            refuse_encoding(self.encoding)
        a, b = (types.b, types.a) if exchanged else (types.a, types.b)
        return {
            "dtype": a,
            "b_dtype": b,
            "acc_dtype": types.acc,
            "out_dtype": types.out,
            "encoding": self.encoding,
            "b_limit": None if exchanged else self.b_limit,
        }

    @property
    def macs(self) -> int:
        """Multiply-accumulates."""
        raise NotImplementedError

    @property
    def flops(self) -> int:
        """Operations: a multiply-add counts as two."""
        return 2 * self.macs

    @cached_property
    def a_bytes(self) -> int:
        """Bytes per element of A."""
        return element_bytes(self.types.a)

    @cached_property
    def b_bytes(self) -> float:
        """Bytes per element of B as stored: a fraction if several share a byte or a scale."""
        return self.encoding.element_bytes(self.types.b)

    @cached_property
    def acc_bytes(self) -> int:
        """Bytes per accumulator."""
        return element_bytes(self.types.acc)

    @cached_property
    def out_bytes(self) -> int:
        """Bytes per element of the result."""
        return element_bytes(self.types.out)

    def to_dict(self) -> dict[str, Any]:
        """The operator's name and every field, as plain values for JSON. Fields added later are omitted if they have
        their default, so that files of older releases remain unchanged."""
        plain = {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]
        for name in _ADDED:
            if plain.get(name) in (None, PLAIN):
                plain.pop(name, None)
            elif name != "b_limit":
                plain[name] = str(plain[name])
        return {"op": self.op, **plain}


_ADDED = ("b_dtype", "out_dtype", "encoding", "b_limit")


def refuse_encoding(encoding: Encoding) -> NoReturn:
    """Raise UnsupportedOperator: no kernel reads B as it is stored."""
    known = ", ".join(repr(name) for name, row in WEIGHT_FORMATS.items() if row.emitted and row.bits is None)
    blocks = ", ".join(repr(name) for name, row in WEIGHT_FORMATS.items() if row.emitted and row.bits is not None)
    raise UnsupportedOperator(
        f"encoding = '{encoding}': no kernel reads B in this format; expected {known}, and for matrix "
        f"multiplications in floats {blocks} in blocks of 16, 32, 64, ..."
    )


@dataclass(frozen=True, kw_only=True, repr=False)
class GemmWorkload(_SumOfProducts):
    """C[batch, m, n] = A[batch, m, k] * B[batch, k, n], all row-major.

    `trans_a` and `trans_b`: the operand is stored transposed (A as [k, m], B as [n, k]; the latter is a dense layer's
    weight). `lda`, `ldb`, `ldc` are the elements between the starts of two stored rows; by default rows are dense.
    `memory_a`, `memory_b` name the memory of the operand on machines with several memories. A batch that shares B is
    one matrix multiplication of batch*m rows.

    `dtype` is A's type, and B's unless `b_dtype` is given; products are accumulated in `acc_dtype`, which is the
    result's type too unless `out_dtype` is given. `encoding` defines how B is stored: an Encoding or its text.
    `b_limit`: every integer of B is known to lie between -b_limit and b_limit.

    Raises WorkloadError, naming the field, for an invalid size, type or leading dimension.
    """

    op: ClassVar[str] = "gemm"

    m: int
    n: int
    k: int
    dtype: str = "float32"
    acc_dtype: str | None = None
    batch: int = 1
    trans_a: bool = False
    trans_b: bool = False
    lda: int | None = None
    ldb: int | None = None
    ldc: int | None = None
    memory_a: str = "external"
    memory_b: str = "external"
    b_dtype: str | None = None
    out_dtype: str | None = None
    encoding: Encoding = PLAIN
    b_limit: int | None = None

    def __post_init__(self) -> None:
        for name in ("m", "n", "k", "batch"):
            require_positive("gemm", name, getattr(self, name))
        self._settle_types("gemm")
        for name, row in (
            ("lda", self.m if self.trans_a else self.k),
            ("ldb", self.k if self.trans_b else self.n),
            ("ldc", self.n),
        ):
            value = getattr(self, name)
            if value is None:
                object.__setattr__(self, name, row)
                continue
            require_positive("gemm", name, value)
            if value < row:
                raise WorkloadError(f"gemm: {name} = {value}; expected at least {row}, the length of a row")
        for name in ("memory_a", "memory_b"):
            if getattr(self, name) not in MEMORIES:
                raise WorkloadError(f"gemm: {name} = {getattr(self, name)!r}; expected {', '.join(MEMORIES)}")

    @property
    def macs(self) -> int:
        """Multiply-accumulates: batch*m*n*k."""
        return self.batch * self.m * self.n * self.k

    @property
    def bytes(self) -> int:
        """Bytes of A, B and C, each once."""
        stored = math.ceil(self.k * self.n * self.b_bytes)
        return self.batch * (self.m * self.k * self.a_bytes + stored + self.m * self.n * self.out_bytes)

    def exchanged(self) -> GemmWorkload:
        """The same multiplication with its operands swapped: the transposed C is B transposed times A transposed."""
        row_a = self.n == 1 and self.ldb == 1 and not self.trans_b  # a column, as a row of adjacent elements
        return replace(
            self,
            m=self.n,
            n=self.m,
            trans_a=not self.trans_b and not row_a,
            trans_b=not self.trans_a,
            lda=None if row_a else self.ldb,
            ldb=self.lda,
            ldc=None,
            memory_a=self.memory_b,
            memory_b=self.memory_a,
            **self.type_fields(exchanged=True),
        )


# Names of the activations' axes; a number after "c" is the channels of one block, e.g. "NCHW16c".
LAYOUTS = ("NHWC", "NCHW", "NCHW4c", "NCHW8c", "NCHW16c", "NCHW32c")


@dataclass(frozen=True, kw_only=True, repr=False)
class ConvWorkload(_SumOfProducts):
    """A convolution: `n` images of [d x] h x w x ci, `co` kernels of [kd x] kh x kw x ci/groups.

    `padding` is (top, left, bottom, right); a single number applies to all, as in padding=1. `layout` names the axes of
    input and output. One dimension is h = kh = 1; three dimensions have d and kd, whose stride, padding (front, back),
    dilation and output padding end in `_d`.

    `transposed`: output point i * stride - padding + tap * dilation receives input point i, and `output_padding` (rows,
    columns) are added at the bottom and the right, `output_padding_d` planes at the back.

    Types as in GemmWorkload: A is the input, B the kernels. `memory_a` and `memory_b` are those of the matrix
    multiplication on accelerators, whose first operand is the kernels.

    Raises WorkloadError, naming the field, for an invalid size, type, layout or stride.
    """

    op: ClassVar[str] = "conv"

    n: int
    h: int
    w: int
    ci: int
    co: int
    kh: int
    kw: int
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1
    dtype: str = "float32"
    acc_dtype: str | None = None
    layout: str = "NHWC"
    d: int = 1
    kd: int = 1
    stride_d: int = 1
    padding_d: tuple[int, int] = (0, 0)
    dilation_d: int = 1
    transposed: bool = False
    output_padding: tuple[int, int] = (0, 0)
    output_padding_d: int = 0
    memory_a: str = "external"
    memory_b: str = "external"
    b_dtype: str | None = None
    out_dtype: str | None = None
    encoding: Encoding = PLAIN
    b_limit: int | None = None

    def __post_init__(self) -> None:
        for name in ("n", "h", "w", "ci", "co", "kh", "kw", "groups", "d", "kd", "stride_d", "dilation_d"):
            require_positive("conv", name, getattr(self, name))
        for name, length, least in (
            ("stride", 2, 1),
            ("dilation", 2, 1),
            ("padding", 4, 0),
            ("padding_d", 2, 0),
            ("output_padding", 2, 0),
        ):
            value = getattr(self, name)
            numbers = tuple(value) if isinstance(value, (list, tuple)) else (value,)
            if len(numbers) == 1:
                numbers *= length
            if len(numbers) != length or any(type(v) is not int or v < least for v in numbers):
                raise WorkloadError(
                    f"conv: {name} = {value!r}; expected {length} whole numbers of at least {least}, or one for all"
                )
            object.__setattr__(self, name, numbers)
        if self.layout not in LAYOUTS:
            raise WorkloadError(f"conv: unknown layout {self.layout!r}; {nearest(self.layout, LAYOUTS)}")
        if self.ci % self.groups or self.co % self.groups:
            raise WorkloadError(
                f"conv: groups = {self.groups}; expected a divisor of ci = {self.ci} and co = {self.co}"
            )
        behind = self.output_padding_d
        if type(behind) is not int or behind < 0:
            raise WorkloadError(f"conv: output_padding_d = {behind!r}; expected a whole number of at least 0")
        for end, more, strides in (("", self.output_padding, self.stride), ("_d", (behind,), (self.stride_d,))):
            told = f"conv: output_padding{end} = {getattr(self, f'output_padding{end}')}"
            if any(more) and not self.transposed:
                raise WorkloadError(f"{told}; expected 0, or transposed=True")
            if self.transposed and any(p >= s for p, s in zip(more, strides, strict=True)):
                raise WorkloadError(f"{told}; expected less than stride{end} = {getattr(self, f'stride{end}')}")
        self._settle_types("conv")
        if min(self.do, self.ho, self.wo) < 1:
            deep = self.d > 1 or self.kd > 1
            kernel = f"{self.kd}x{self.kh}x{self.kw}" if deep else f"{self.kh}x{self.kw}"
            image = f"{self.d}x{self.h}x{self.w}" if deep else f"{self.h}x{self.w}"
            raise WorkloadError(
                f"conv: kernel = {kernel} is larger than the padded input of {image}; expected a smaller one"
            )

    def _points(self, size: int, kernel: int, stride: int, before: int, behind: int, dilation: int, more: int) -> int:
        span = dilation * (kernel - 1) + 1
        if self.transposed:
            return (size - 1) * stride + span - before - behind + more
        return (size + before + behind - span) // stride + 1

    @property
    def do(self) -> int:
        """Output planes."""
        return self._points(self.d, self.kd, self.stride_d, *self.padding_d, self.dilation_d, self.output_padding_d)

    @property
    def ho(self) -> int:
        """Output rows."""
        top, _, bottom, _ = self.padding
        return self._points(self.h, self.kh, self.stride[0], top, bottom, self.dilation[0], self.output_padding[0])

    @property
    def wo(self) -> int:
        """Output columns."""
        _, left, _, right = self.padding
        return self._points(self.w, self.kw, self.stride[1], left, right, self.dilation[1], self.output_padding[1])

    @property
    def macs(self) -> int:
        """Multiply-accumulates, including those with the padding."""
        points = self.d * self.h * self.w if self.transposed else self.do * self.ho * self.wo
        return self.n * points * self.co * (self.ci // self.groups) * self.kd * self.kh * self.kw

    @property
    def bytes(self) -> int:
        """Bytes of input, kernels and output, each once."""
        image = self.n * self.d * self.h * self.w * self.ci
        kernels = self.co * self.ci // self.groups * self.kd * self.kh * self.kw
        result = self.n * self.do * self.ho * self.wo * self.co
        return image * self.a_bytes + math.ceil(kernels * self.b_bytes) + result * self.out_bytes


# Gates of a unit, whose sums are adjacent in the combined weights (design page 04).
CELL_GATES = {"lstm": 4, "gru": 3, "rnn": 1}
ACTIVATIONS = ("tanh", "relu")


@dataclass(frozen=True, kw_only=True, repr=False)
class RnnWorkload(_SumOfProducts):
    """Recurrent layers: `batch` sequences of `steps` vectors of `input_size` elements through `layers` layers of
    `hidden_size` units, in both directions if `bidirectional` (the next layer then takes 2 * hidden_size elements).

    `cell` is "lstm", "gru" or "rnn". `linear_before_reset`, of a GRU: the reset gate multiplies the matrix product with
    h, as in PyTorch and cuDNN; otherwise it multiplies h, and the matrix multiplication depends on it. `activation`, of
    a plain RNN: "tanh" or "relu".

    Raises WorkloadError, naming the field, for an invalid size, type, cell or activation.
    """

    op: ClassVar[str] = "rnn"
    named: ClassVar[tuple[str, ...]] = ("cell",)

    cell: str = "lstm"
    batch: int = 1
    steps: int
    input_size: int
    hidden_size: int
    layers: int = 1
    bidirectional: bool = False
    dtype: str = "float32"
    acc_dtype: str | None = None
    linear_before_reset: bool = True
    activation: str = "tanh"

    def __post_init__(self) -> None:
        if self.cell not in CELL_GATES:
            raise WorkloadError(f"rnn: unknown cell {self.cell!r}; {nearest(str(self.cell), CELL_GATES)}")
        for name in ("batch", "steps", "input_size", "hidden_size", "layers"):
            require_positive(self.cell, name, getattr(self, name))
        for name in ("bidirectional", "linear_before_reset"):
            if not isinstance(getattr(self, name), bool):
                raise WorkloadError(f"{self.cell}: {name} = {getattr(self, name)!r}; expected True or False")
        if self.activation not in ACTIVATIONS:
            raise WorkloadError(f"{self.cell}: activation {self.activation!r}; expected {', '.join(ACTIVATIONS)}")
        if self.activation != "tanh" and self.cell != "rnn":
            raise WorkloadError(f"{self.cell}: activation {self.activation!r} requires the cell 'rnn'; expected 'tanh'")
        self._settle_types(self.cell)

    @cached_property
    def types(self) -> OperandTypes:
        """Types of inputs and states, of weights, of accumulators, and of the state after a step, which is the input of
        the next one."""
        return replace(super().types, out=self.dtype)

    @property
    def gates(self) -> int:
        """Gates per unit of the cell."""
        return CELL_GATES[self.cell]

    @property
    def directions(self) -> int:
        """Two if bidirectional, otherwise one."""
        return 2 if self.bidirectional else 1

    @property
    def input_sizes(self) -> tuple[int, ...]:
        """The number of elements that a step of each layer takes in addition to the state."""
        return (self.input_size,) + (self.directions * self.hidden_size,) * (self.layers - 1)

    @property
    def weights(self) -> int:
        """Elements of all layers' weights, without biases."""
        columns = sum(size + self.hidden_size for size in self.input_sizes)
        return self.directions * self.gates * self.hidden_size * columns

    @property
    def macs(self) -> int:
        """Multiply-accumulates: every weight once for each step of each sequence."""
        return self.batch * self.steps * self.weights

    @property
    def bytes(self) -> int:
        """Bytes of inputs, weights and the last layer's outputs, each once."""
        outputs = self.batch * self.steps * self.directions * self.hidden_size
        return (self.batch * self.steps * self.input_size + self.weights + outputs) * self.a_bytes
