"""The errors that a user can cause.

All are subclasses of :class:`TilingError`; the message says what is wrong, where, and what is expected.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Sequence
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class TilingError(Exception):
    """Base class of all errors that a user of this package can cause."""


class WorkloadError(TilingError, ValueError):
    """A workload has an invalid size, type or stride."""


class HardwareError(TilingError, ValueError):
    """A hardware description is invalid, or no configuration of the workload fits the described machine."""


class ModelFormatError(TilingError, ValueError):
    """A model cannot be read: the file is truncated, malformed or of another format."""


class LimitError(ModelFormatError):
    """A model exceeds a limit on memory or work; the message says which limit to raise."""


class ProgramError(ModelFormatError):
    """A program of the simulated accelerator is invalid: an impossible instruction or table, a corrupted file or
    text."""


class SimulationError(TilingError, RuntimeError):
    """A program of the simulated accelerator cannot run: an out-of-range address, a read of uninitialised memory, two
    unordered accesses, or a deadlock of queues."""


class UnsupportedOperator(TilingError):
    """No schedule rule supports this operator."""


def attempted(function: Callable[P, R], *arguments: P.args, **options: P.kwargs) -> R | UnsupportedOperator:
    """The result of `function`; if no rule supports the operator, the error with the reason, returned instead of
    raised."""
    try:
        return function(*arguments, **options)
    except UnsupportedOperator as error:
        # Frames, which reference models with their weights, would otherwise stay until the garbage collector finds
        # them.
        error.__context__ = error.__cause__ = None
        return error.with_traceback(None)


class DatabaseError(TilingError):
    """A database of measured configurations cannot be used."""


class LeftToTorch(UserWarning):
    """torch.compile: PyTorch itself runs a graph, for the reason given in the message."""


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of an error message: the known names, preceded by the most similar one to `name`."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"{hint}expected {', '.join(names)}" if names else "none is defined"


def other_version(found: object, readable: Sequence[int], instead: str) -> str:
    """The end of an error message for a file with a format version not in `readable`; `instead` says what to do about
    an older one."""
    expected = " or ".join(map(str, readable))
    if isinstance(found, int) and found > max(readable):
        return f"format version {found}, written by a newer tvm-tiling; expected {expected}: install that tvm-tiling"
    return f"format version {str(found)[:40]}; expected {expected}: {instead}"
