"""The errors a user can cause.

Every one derives from :class:`TilingError` and its message says what was wrong, where, and what would be accepted.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Sequence
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class TilingError(Exception):
    """Base of every error that a user of this package can cause."""


class WorkloadError(TilingError, ValueError):
    """A workload has an impossible size, type or stride."""


class HardwareError(TilingError, ValueError):
    """A hardware description is wrong, or no configuration of the workload fits the machine described."""


class ModelFormatError(TilingError, ValueError):
    """A model cannot be read: cut short, of another format, or not as its format demands."""


class LimitError(ModelFormatError):
    """A model asks for more memory or work than its limits allow; the message says which limit to raise."""


class ProgramError(ModelFormatError):
    """A program of the simulated accelerator is none: an impossible instruction or table, a corrupted file or text."""


class SimulationError(TilingError, RuntimeError):
    """A program of the simulated accelerator cannot run as written: an address out of its memory, a read of what was
    never written, two accesses in no order, queues that wait for each other."""


class UnsupportedOperator(TilingError):
    """No schedule rule serves this operator."""


def attempted(function: Callable[P, R], *arguments: P.args, **options: P.kwargs) -> R | UnsupportedOperator:
    """What `function` returns; where no rule serves the operator, the error that says why, not raised."""
    try:
        return function(*arguments, **options)
    except UnsupportedOperator as error:
        # Frames, which hold models with their weights, would stay until the garbage collector finds them.
        error.__context__ = error.__cause__ = None
        return error.with_traceback(None)


class DatabaseError(TilingError):
    """A database of measured configurations cannot be used."""


class LeftToTorch(UserWarning):
    """torch.compile: PyTorch itself runs a graph, for the reason that the message gives."""


def nearest(name: str, known: Iterable[str]) -> str:
    """The tail of an error sentence: the known names, led by the one most like `name`."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"{hint}accepted: {', '.join(names)}"


def other_version(found: object, readable: Sequence[int], instead: str) -> str:
    """The tail of an error sentence for a file of a format version that is not in `readable`; `instead` says what to do
    about one that is older."""
    expected = " or ".join(map(str, readable))
    if isinstance(found, int) and found > max(readable):
        return f"format version {found}, written by a newer tvm-tiling; expected {expected}: install that tvm-tiling"
    return f"format version {str(found)[:40]}; expected {expected}: {instead}"
