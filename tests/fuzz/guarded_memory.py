"""A model run operator by operator, with each of its tensors between guard pages.

A kernel that reads or writes outside of a tensor, or expects more than the alignment of its elements, ends the process;
bytes that share a page with a tensor are compared.
"""

from __future__ import annotations

import ctypes
import math
import mmap
from collections.abc import Sequence
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import relax, tirx

from tvm_tiling.hardware.description import Hardware
from tvm_tiling.model.kernels import Kernels, Kind
from tvm_tiling.model.link import link_objects
from tvm_tiling.model.pipeline import lower
from tvm_tiling.schedule import llvm_target
from tvm_tiling.temporary import temporary_folder

GUARD = 16 * mmap.PAGESIZE  # bytes on each side
PROT_NONE = 0


class Walled:
    """Return an array whose first byte (`at_end` False) or last bytes are at the boundary of accessible memory."""

    def __init__(self, shape: Sequence[int], dtype: str, at_end: bool) -> None:
        kind = np.dtype(dtype)
        size = math.prod(shape) * kind.itemsize
        room = -(-max(size, 1) // mmap.PAGESIZE) * mmap.PAGESIZE
        memory = mmap.mmap(-1, room + 2 * GUARD)
        whole = np.frombuffer(memory, np.uint8)
        libc = ctypes.CDLL(None)
        for start in (0, GUARD + room):
            address = ctypes.c_void_p(whole.ctypes.data + start)
            assert libc.mprotect(address, ctypes.c_size_t(GUARD), PROT_NONE) == 0
        self._page = whole[GUARD : GUARD + room]
        self._page[:] = 0xFF
        start = room - size if at_end else 0
        self._beside = np.ones(room, bool)
        self._beside[start : start + size] = False
        self.array = np.ndarray(tuple(shape), kind, self._page, start)
        self.tensor = tvm_ffi.from_dlpack(self.array, require_alignment=kind.itemsize)

    def check(self) -> None:
        """Raise AssertionError if a byte outside of the array was written."""
        assert (self._page[self._beside] == 0xFF).all(), "a byte beside a tensor was written"


class WalledModel:
    """A Relax module with fixed shapes, lowered by this package, whose kernels are called on guarded tensors."""

    def __init__(self, module: tvm.IRModule, hardware: Hardware) -> None:
        lowered, _ = lower(module, hardware)
        self._main = lowered["main"]
        functions = {
            variable.name_hint: func.with_attr("global_symbol", variable.name_hint)
            for variable, func in lowered.functions.items()
            if isinstance(func, tirx.PrimFunc)
        }
        with Kernels(llvm_target(hardware), 1) as kernels, temporary_folder() as folder:
            library = link_objects(kernels.objects(functions, lambda _: Kind.SCHEDULED), folder).module
        self._kernels = {name: library[name] for name in functions}

    def run(self, arrays: Sequence[np.ndarray], at_end: bool) -> list[np.ndarray]:
        """Return the outputs for these inputs."""
        made: list[Walled] = []

        def walled(shape: Sequence[Any], dtype: Any) -> Walled:
            made.append(Walled([int(extent) for extent in shape], str(dtype), at_end))
            return made[-1]

        def filled(array: np.ndarray) -> Walled:
            result = walled(array.shape, array.dtype)
            result.array[...] = array
            return result

        known: dict[relax.Var, Any] = {
            parameter: filled(array) for parameter, array in zip(self._main.params, arrays, strict=True)
        }

        def value(expr: relax.Expr) -> Any:
            if isinstance(expr, relax.Var):
                return known[expr]
            if isinstance(expr, tvm.ir.GenericConst):
                return filled(expr.value.numpy())
            if isinstance(expr, relax.Tuple):
                return [value(field) for field in expr.fields]
            if isinstance(expr, relax.TupleGetItem):
                return value(expr.tuple_value)[expr.index]
            name = expr.op.name.removeprefix("relax.")
            if name == "reshape":
                return filled(value(expr.args[0]).array.reshape([int(extent) for extent in expr.args[1]]))
            assert name == "call_tir", f"{name}: not met in a lowered model of fixed shapes"
            types = expr.ty_args[0]
            fields = list(types.fields) if isinstance(types, relax.TupleType) else [types]
            outputs = [walled(field.shape, field.dtype) for field in fields]
            operands = [*value(expr.args[1]), *outputs]
            self._kernels[expr.args[0].name_hint](*[operand.tensor for operand in operands])
            return outputs if isinstance(types, relax.TupleType) else outputs[0]

        try:
            for block in self._main.body.blocks:
                for binding in block.bindings:
                    known[binding.var] = value(binding.value)
            result = value(self._main.body.body)
        finally:
            for one in made:
                one.check()
        return [one.array.copy() for one in (result if isinstance(result, list) else [result])]
