"""Our own kernel, and the same kernel with its microkernel forced."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, ClassVar

from tvm_tiling.workload import GemmWorkload

from ..operands import Operands
from .base import Peer, Prepared
from .tvm_product import as_tensor, bind, tir


class Ours(Peer):
    """The kernel that the formulas decide on, or one with its register tile (rows, vectors) and its form forced."""

    library: ClassVar[bool] = False
    needs = ("tvm",)

    def __init__(self, name: str = "ours", microkernel: tuple[int, int] | None = None, form: str | None = None) -> None:
        self.name = name
        self.microkernel = microkernel
        self.form = form

    def refuses(self, workload: GemmWorkload, packed: bool) -> str | None:
        if self.form in (None, "pack") or workload.dtype not in ("int8", "uint8"):
            return None
        return f"form {self.form!r} reads A in place, products of {workload.dtype} need it converted"

    def prepare(self, operands: Operands, packed: bool) -> Prepared:
        note = "{}x{} {}".format(*self.microkernel, self.form or "") if self.microkernel else self.form or ""
        return bind(build(operands.workload, packed, operands.b, self.microkernel, self.form), operands, note.strip())


class OursWithLongerRows(Peer):
    """Our kernel on the same values with rows `elements` further apart: what a leading dimension costs (page 03)."""

    library: ClassVar[bool] = False
    needs = ("tvm",)

    def __init__(self, elements: int) -> None:
        self.name = f"ld+{elements}"
        self.elements = elements

    def prepare(self, operands: Operands, packed: bool) -> Prepared:
        return Ours().prepare(operands.with_longer_rows(self.elements), packed)


def build(
    workload: GemmWorkload,
    packed: bool,
    b: Any,
    microkernel: tuple[int, int] | None = None,
    form: str | None = None,
) -> Callable[[Any, Any, Any], object]:
    """Compile the product; the result takes tensors a, b and out, and writes out.

    Where `packed`, B is laid out here and now, and the b that is passed later is not read.
    """
    import tvm

    tt: Any = importlib.import_module("tvm_tiling")
    if packed:
        kernel = tt.packed_matmul(tir(workload), target="llvm", microkernel=microkernel, form=form)
        laid_out = kernel.pack(as_tensor(b))
        return lambda a, _, out: kernel(a, laid_out, out)
    schedule = tt.tiling_schedule(tir(workload), target="llvm", microkernel=microkernel, form=form)
    return tvm.compile(schedule.mod, target=tt.llvm_target())["main"]
