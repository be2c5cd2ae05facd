"""The properties that two operators must share for one's configuration to serve the other, and the axes in which they
may differ."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeAlias

from ...errors import DatabaseError, WorkloadError
from ...operand_types import PLAIN, PREPACKED
from ...workload import ConvWorkload, GemmWorkload

Workload: TypeAlias = GemmWorkload | ConvWorkload

# The axes of an operator, most variable first, since the index begins with them.
GEMM_AXES = ("n", "k", "m", "batch")
CONV_AXES = ("co", "ci", "w", "h", "n")
DEEP_CONV_AXES = (*CONV_AXES, "d")
MOST_AXES = len(DEEP_CONV_AXES)
MOST_EXTENT = 2**53  # of an axis and of the product of all: what databases and floating-point numbers count exactly
_LEADING = ("lda", "ldb", "ldc")
_OWN = {"op", "dtype", "acc_dtype", "layout"}
_NOT_FIXED = {"gemm": {*GEMM_AXES, *_OWN}, "conv": {*DEEP_CONV_AXES, *_OWN}}
_KINDS: dict[str, type[Workload]] = {"gemm": GemmWorkload, "conv": ConvWorkload}
# Field names as stored: a key's digest depends on them, so they must not change.
_FIELDS = ("op", "dtype", "acc_dtype", "layout", "epilogue", "ahead", "axes", "fixed")


@dataclass(frozen=True, kw_only=True)
class ShapeKey:
    """All properties of an operator that must be equal.

    `fixed` are the kernel, stride, padding, dilation and groups of a convolution; the transposes, memories and padded
    leading dimensions of a matrix multiplication. `epilogue` names the fused epilogue, `prepacked` says that weights
    are prepacked. `axes` are the names of the axes that may be multiples.
    """

    op: str
    dtype: str
    acc_dtype: str
    layout: str
    epilogue: str
    prepacked: bool
    axes: tuple[str, ...]
    fixed: tuple[tuple[str, Any], ...]

    @functools.cached_property
    def text(self) -> str:
        """The key as JSON in which equal keys have equal text."""
        return json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"))

    @functools.cached_property
    def digest(self) -> str:
        """32 hexadecimal digits of the key."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:32]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        fixed = {name: list(value) if isinstance(value, tuple) else value for name, value in self.fixed}
        own = {"ahead": self.prepacked, "axes": list(self.axes), "fixed": fixed}
        return {name: own[name] if name in own else getattr(self, name) for name in _FIELDS}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> ShapeKey:
        """Read the output of `to_dict`. DatabaseError for anything else."""
        if not isinstance(record, Mapping) or set(record) != set(_FIELDS) or record["op"] not in _KINDS:
            raise DatabaseError(f"key: {record!r}; expected a table of {', '.join(_FIELDS)} with op gemm or conv")
        if not isinstance(record["fixed"], Mapping) or not isinstance(record["axes"], list):
            raise DatabaseError("key: invalid axes or fixed; expected a list of names and a table")
        fixed = {name: tuple(value) if isinstance(value, list) else value for name, value in record["fixed"].items()}
        own = {name: value for name, value in record.items() if name != "ahead"}
        own |= {"prepacked": record["ahead"], "axes": tuple(record["axes"]), "fixed": tuple(sorted(fixed.items()))}
        return cls(**own)

    def workload(self, extents: Sequence[int]) -> Workload:
        """Return the operator of that shape, with extents in the order of `axes`. WorkloadError if it is impossible,
        such as an image smaller than the kernel or channels not divisible by groups."""
        fields = {**dict(self.fixed), **dict(zip(self.axes, extents, strict=True))}
        if self.op == "gemm":
            return GemmWorkload(dtype=self.dtype, acc_dtype=self.acc_dtype, **fields)
        return ConvWorkload(dtype=self.dtype, acc_dtype=self.acc_dtype, layout=self.layout, **fields)


def key_of(workload: Workload, *, epilogue: str = "", prepacked: bool = False) -> ShapeKey:
    """Return the key of an operator. DatabaseError for anything else, or an epilogue that is not a string."""
    if not isinstance(workload, GemmWorkload | ConvWorkload):
        raise DatabaseError(f"{type(workload).__name__} is not a workload; expected GemmWorkload, ConvWorkload")
    if not isinstance(epilogue, str):
        raise DatabaseError(f"epilogue = {epilogue!r}; expected a string, empty for none")
    gemm = isinstance(workload, GemmWorkload)
    op = "gemm" if gemm else "conv"
    prepacked = prepacked or workload.encoding == PREPACKED
    stored = replace(workload, encoding=PLAIN) if workload.encoding == PREPACKED else workload
    fixed = {name: value for name, value in stored.to_dict().items() if name not in _NOT_FIXED[op]}
    if isinstance(workload, GemmWorkload):
        for name, row in zip(_LEADING, dense_rows(workload), strict=True):
            if fixed[name] == row:
                del fixed[name]
    elif not workload.output_padding_d:
        del fixed["output_padding_d"]  # for compatibility with keys that predate this field
    return ShapeKey(
        op=op,
        dtype=workload.dtype,
        acc_dtype=workload.acc_dtype or workload.dtype,
        layout=_product_layout(workload) if isinstance(workload, GemmWorkload) else workload.layout,
        epilogue=epilogue,
        prepacked=bool(prepacked),
        axes=GEMM_AXES if isinstance(workload, GemmWorkload) else _conv_axes(workload),
        fixed=tuple(sorted(fixed.items())),
    )


def extents_of(workload: Workload) -> tuple[int, ...]:
    """Return the extents of an operator's axes, in the order of its key. DatabaseError if they are too large to be
    stored."""
    axes = GEMM_AXES if isinstance(workload, GemmWorkload) else _conv_axes(workload)
    extents = tuple(int(getattr(workload, axis)) for axis in axes)
    if max(extents) > MOST_EXTENT:
        raise DatabaseError(f"an axis has {max(extents)} elements; expected at most {MOST_EXTENT}")
    return extents


def workload_from_dict(record: Mapping[str, Any]) -> Workload:
    """Read a workload from the output of its `to_dict`. DatabaseError for any other table, WorkloadError for an invalid
    field."""
    if not isinstance(record, Mapping) or record.get("op") not in _KINDS:
        raise DatabaseError(f"workload: {record!r}; expected a table with op gemm or conv")
    kind = _KINDS[record["op"]]
    known = {f.name for f in fields(kind)}
    given = {name: value for name, value in record.items() if name != "op"}
    if unknown := set(given) - known:
        raise DatabaseError(f"workload: unknown field {min(unknown)!r}; expected {', '.join(sorted(known))}")
    try:
        return kind(**given)
    except TypeError as error:
        raise WorkloadError(f"{record['op']}: {error}") from None


def dense_rows(workload: GemmWorkload) -> tuple[int, int, int]:
    """Return the elements of a stored row of A, B and C."""
    return (
        workload.m if workload.trans_a else workload.k,
        workload.k if workload.trans_b else workload.n,
        workload.n,
    )


def _conv_axes(workload: ConvWorkload) -> tuple[str, ...]:
    return DEEP_CONV_AXES if workload.d > 1 or workload.kd > 1 else CONV_AXES


def _product_layout(workload: GemmWorkload) -> str:
    """Return "nn", "nt", "tn" or "tt", with t for a transposed operand."""
    return "".join("t" if transposed else "n" for transposed in (workload.trans_a, workload.trans_b))
