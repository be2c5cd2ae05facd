"""Errors raised by kernels: an index out of the range of another tensor, a divisor of 0, or an impossible size.

A kernel cannot format a message. If it finds such a value it calls the function registered here, which raises the error
in the thread that runs the model.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import tvm_ffi

from .errors import ModelFormatError, TilingError, WorkloadError

REFUSE = "tvm_tiling.refuse_index"
REFUSE_ZERO = "tvm_tiling.refuse_zero"
REFUSE_SIZE = "tvm_tiling.refuse_size"

for _kind in (ModelFormatError, WorkloadError):
    tvm_ffi.register_error(_kind.__name__, _kind)  # otherwise they leave a kernel, or a pass of TVM, as a RuntimeError


def sentence(operator: str, called: str, value: int, low: int, high: int, at: tuple[int, ...]) -> str:
    """The message about a `value`, an index or a quantity named `called`, at the position `at` of its tensor; `low` to
    `high` are accepted."""
    expected = f"{low} to {high}" if low <= high else "none, as the axis has no elements"
    return f"{operator}: {called} {value}{_place(at)} is out of range; expected {expected}"


def zero_sentence(operator: str, at: tuple[int, ...]) -> str:
    """The message about an integer division with a divisor of zero at the position `at`."""
    return f"{operator}: integer division by zero{_place(at)}; expected divisors other than 0"


def _place(at: tuple[int, ...]) -> str:
    return f" at [{', '.join(map(str, at))}]" if at else ""


@tvm_ffi.register_global_func(REFUSE, override=True)
def _refuse(operator: str, called: str, value: int, low: int, high: int, *at: int) -> None:
    raise WorkloadError(sentence(operator, called, value, low, high, at))


@tvm_ffi.register_global_func(REFUSE_ZERO, override=True)
def _refuse_zero(operator: str, *at: int) -> None:
    raise WorkloadError(zero_sentence(operator, at))


@tvm_ffi.register_global_func(REFUSE_SIZE, override=True)
def _refuse_size(named: str) -> None:
    raise WorkloadError(f"{named}: it is computed at run time and too large; expected tensors that fit in memory")


def refused(error: Exception) -> TilingError:
    """The one-line error for an exception raised by a kernel, the virtual machine or a pass of TVM, without the frames
    of TVM."""
    if isinstance(error, TilingError):
        return type(error)(str(error))
    said = next(iter(str(error).strip().splitlines()), type(error).__name__).strip().rstrip(".")
    if said == "std::bad_alloc":
        said = "there is not enough memory for a tensor whose size is computed at run time; expected nonnegative sizes"
    return WorkloadError(f"the run failed: {said}")


@contextmanager
def blocks_closed(builder: Any) -> Iterator[None]:
    """Close the blocks of a function built by a relax.BlockBuilder that an error leaves open; otherwise TVM warns on
    stderr."""
    try:
        yield
    except BaseException:
        while True:
            try:
                builder._end_block()
            except RuntimeError:  # no block is open
                break
        raise
