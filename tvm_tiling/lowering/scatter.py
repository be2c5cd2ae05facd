"""Scatter: elements written or combined at positions held by tensors, as one loop nest for all operators of this
kind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T  # noqa: N812

from .checked import Part, in_shares, loops, shares

REDUCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "update": lambda _, new: new,
    "add": lambda old, new: old + new,
    "mul": lambda old, new: old * new,
    "min": tirx.min,
    "max": tirx.max,
    "mean": lambda old, new: (old + new) / tirx.const(2, str(new.ty)),
}

# Destination of an update, given the loop variables and the inputs' buffers, and which element of the updates it is.
Target = Callable[[list[Any], Sequence[tirx.Buffer]], tuple[list[Any], list[Any]]]


def scattered(
    data: te.Tensor,
    indices: Sequence[te.Tensor],
    updates: te.Tensor,
    extents: Sequence[Any],
    target: Target,
    how: str,
    apart: int | None = None,
) -> te.Tensor:
    """Return `data` with `updates` written, or combined by `how`, at the position that `target` gives for each
    iteration of the loops over `extents`.

    Updates of the same element are applied in loop order. Indices are valid positions. apart: a loop whose iterations
    write different elements, if there is one.
    """
    combine = REDUCTIONS[how]

    def emit(inputs: Sequence[tirx.Buffer], out: tirx.Buffer) -> tirx.Stmt:
        source, places, new = inputs[0], inputs[1:-1], inputs[-1]
        with IRBuilder() as builder, T.seq_scope():

            def copy(part: Part) -> None:
                with loops(data.shape, part) as at:
                    T.buffer_store(out, tirx.BufferLoad(source, at), at)

            def write(part: Part) -> None:
                with loops(extents, part) as at:
                    where, taken = target(at, places)
                    value = combine(tirx.BufferLoad(out, where), tirx.BufferLoad(new, taken))
                    T.buffer_store(out, value, where)

            in_shares(shares(data.shape, 0) if data.shape else 1, 0, copy)
            in_shares(1 if apart is None else shares(extents, apart), apart or 0, write)
        return builder.get()

    return te.extern(
        [data.shape],
        [data, *indices, updates],
        lambda inputs, outputs: emit(inputs, outputs[0]),
        dtype=data.dtype,
        out_buffers=[tirx.decl_buffer(data.shape, data.dtype, "scattered", layout=None)],
        name="scatter",
    )
