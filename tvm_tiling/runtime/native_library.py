"""Shared libraries mapped by the system, without TVM; and TVM's calling convention for their functions."""

from __future__ import annotations

import _ctypes
import ctypes
import weakref
from collections.abc import Callable
from pathlib import Path

PREFIX = "__tvm_ffi_"  # prefix of functions with TVM's calling convention
INTEGER = 1


class Value(ctypes.Structure):
    """A value in TVM's calling convention: a number, or an address with another `type`."""

    _fields_ = (("type", ctypes.c_int32), ("padding", ctypes.c_uint32), ("value", ctypes.c_int64))


_Call = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(Value), ctypes.c_int32, ctypes.POINTER(Value))


class NativeLibrary:
    """A mapped shared library; it is unmapped with its last reference, unless stay() was called."""

    def __init__(self, path: Path) -> None:
        """Map the library. Raises OSError if the file is not a library for this machine."""
        self._library = ctypes.CDLL(str(path), mode=ctypes.RTLD_LOCAL)
        self._unmap = weakref.finalize(self, _ctypes.dlclose, self._library._handle)
        self._unmap.atexit = False  # its threads may be running

    def stay(self) -> None:
        """Keep the library mapped until the process exits."""
        self._unmap.detach()

    def address(self, name: str) -> int | None:
        """The address of a symbol; None if it does not exist."""
        try:
            return _ctypes.dlsym(self._library._handle, name)
        except OSError:
            return None

    def function(self, name: str) -> Callable[..., int] | None:
        """A function on integers in TVM's calling convention; None if it does not exist."""
        address = self.address(PREFIX + name)
        if address is None:
            return None
        call = _Call(address)

        def called(*numbers: int) -> int:
            arguments = (Value * len(numbers))(*(Value(INTEGER, 0, number) for number in numbers))
            result = Value()
            if call(None, arguments, len(numbers), ctypes.byref(result)):
                raise RuntimeError(f"{name} failed")
            return result.value

        called.library = self  # type: ignore[attr-defined]  # mapped as long as the function is there
        return called
