"""Our own kernel, and the same kernel with a forced microkernel or algorithm."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, ClassVar

from tvm_tiling.decide.gemm.cpu_gemm import decide_on_cpu
from tvm_tiling.errors import HardwareError
from tvm_tiling.operand_types import HALVES
from tvm_tiling.workload import ConvWorkload, GemmWorkload

from ..operands import ConvOperands, GemmOperands, Operands, Workload
from .base import Peer, Prepared
from .tvm_operator import as_tensor, bind, this_machine, tir


class Ours(Peer):
    """The kernel of the analytical decision, or one with a forced algorithm and, for matrix multiplications, a forced
    register tile."""

    library: ClassVar[bool] = False
    needs = ("tvm",)
    supports = (GemmWorkload, ConvWorkload)

    def __init__(self, name: str = "ours", microkernel: tuple[int, int] | None = None, form: str | None = None) -> None:
        self.name = name
        self.microkernel = microkernel
        self.form = form

    def refuses(self, workload: Workload, packed: bool) -> str | None:
        if isinstance(workload, ConvWorkload):
            return "a register tile can be forced for matrix multiplications only" if self.microkernel else None
        if self.microkernel is None and self.form is None:
            return None
        try:
            decide_on_cpu(workload, this_machine(), form=self.form, microkernel=self.microkernel)
        except HardwareError as error:
            return str(error)
        return None

    def prepare(self, operands: Operands, packed: bool) -> Prepared:
        note = "{}x{} {}".format(*self.microkernel, self.form or "") if self.microkernel else self.form or ""
        second = operands.inputs[1]
        return bind(build(operands.workload, packed, second, self.microkernel, self.form), operands, note.strip())


class OursInFloat32(Peer):
    """Our kernel on the same values in float32, to show the gain of half precision."""

    name = "float32"
    library: ClassVar[bool] = False
    needs = ("tvm",)
    supports = (GemmWorkload, ConvWorkload)

    def refuses(self, workload: Workload, packed: bool) -> str | None:
        return None if workload.dtype in HALVES else f"applies to {' and '.join(HALVES)} only"

    def prepare(self, operands: Operands, packed: bool) -> Prepared:
        assert isinstance(operands, GemmOperands | ConvOperands)
        return Ours().prepare(operands.in_float32(), packed)


class OursWithLongerRows(Peer):
    """Our kernel on the same values with `elements` of padding per row, to show the cost of a leading dimension."""

    library: ClassVar[bool] = False
    needs = ("tvm",)

    def __init__(self, elements: int) -> None:
        self.name = f"ld+{elements}"
        self.elements = elements

    def prepare(self, operands: GemmOperands, packed: bool) -> Prepared:
        return Ours().prepare(operands.with_longer_rows(self.elements), packed)


def build(
    workload: Workload,
    packed: bool,
    second: Any,
    microkernel: tuple[int, int] | None = None,
    form: str | None = None,
) -> Callable[[Any, Any, Any], object]:
    """Compile the workload; the result takes tensors of both operands and of the output, which it writes.

    If `packed`, the second operand is laid out immediately, and the one that is passed later is not read.
    """
    import tvm

    if packed:
        from tvm_tiling.runtime.tensors import largest_of

        weights = as_tensor(second)
        kernel = packed_kernel(workload, microkernel, form, largest_of([weights]))  # as the model compiler does
        laid_out = kernel.pack(weights)
        return lambda first, _, out: kernel(first, laid_out, out)
    tt: Any = importlib.import_module("tvm_tiling")
    schedule = tt.tiling_schedule(tir(workload), target="llvm", algorithm=form, microkernel=microkernel)
    return tvm.compile(schedule.mod, target=tt.llvm_target())["main"]


def packed_kernel(
    workload: Workload,
    microkernel: tuple[int, int] | None = None,
    form: str | None = None,
    within: int | None = None,
) -> Any:
    """Return the compiled workload for a prepacked second operand, whose integers are `within` these bounds; its
    `tiling` is the decision."""
    tt: Any = importlib.import_module("tvm_tiling")
    op = tir(workload)
    return tt.packed_operator(op, target="llvm", microkernel=microkernel, algorithm=form, weights_within=within or None)
