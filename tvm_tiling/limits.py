"""Limits on the memory and work of reading and compiling a model, however small its file; users can raise them.

A file of a hundred bytes can name tensors of terabytes, constants of any size to be computed, and functions that call
each other twice at every level. Each is rejected as soon as its size is known, before memory is allocated for it.
Weights are bounded by the file that contains them and not limited: constants computed from weights alone may be as
large as the limit, or a multiple of the weights.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, fields, replace

from .errors import LimitError, WorkloadError, nearest

VARIABLE = "TVM_TILING_LIMITS"
MAX_EXTENT = 2**31 - 1  # of one dimension: kernels count elements along an axis in 32 bits
MOST_PARTS = 1 << 10  # of a batch, which a run computes one after the other
GROWTH = 8  # bytes of constants computed from weights per byte of weights: 4-bit weights as float32
_UNITS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}  # binary, as exponents of two
_MANY = 1 << 40
_ACCEPTED = "expected NAME=NUMBER, with an optional suffix K, M, G or T for powers of 1024, as in tensor_bytes=16G"


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The limits of a model.

    tensor_bytes: bytes of one tensor that the model takes or computes. The default, 4 GiB, holds the scores of 32 heads
    of attention over 5,792 tokens in float32. constant_bytes: bytes of all constants computed when the model is read,
    or eight times the weights in the file if that is more; the default, 640 MiB, holds VGG-19's weights, which the onnx
    package represents as one number each. nodes: operators after inlining of functions, and tensors within one tuple.
    operations: multiply-accumulates of one run; the default is that of 70 billion parameters over 16,000 tokens. Raises
    WorkloadError for a limit below 1.
    """

    tensor_bytes: int = 1 << 32
    constant_bytes: int = 5 << 27
    nodes: int = 50_000
    operations: int = 1 << 50

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise WorkloadError(f"limit {field.name} = {value!r}; expected a whole number of at least 1")

    def require_tensor(self, what: str, size: int, weights: int = 0) -> None:
        """Raise LimitError if the tensor `what` has too many bytes; `weights`: bytes of the weights in the file."""
        if size > max(self.tensor_bytes, weights):
            raise LimitError(
                f"{what} is a tensor of {readable(size)}; expected up to {readable(self.tensor_bytes)}, "
                f"{raised('tensor_bytes', size)}"
            )

    def require_constants(self, what: str, size: int, weights: int = 0) -> None:
        """Raise LimitError if the constants to be computed, of which `what` is the last one, have too many bytes."""
        if size > max(self.constant_bytes, GROWTH * weights):
            raise LimitError(
                f"{what} is a constant to be computed, which increases the size of such constants to "
                f"{readable(size)}; expected up to {readable(self.constant_bytes)}, or {GROWTH} times the "
                f"weights in the file, {raised('constant_bytes', size)}"
            )

    def require_nodes(self, what: str, count: int, held: int = 0) -> None:
        """Raise LimitError if `what` are too many operators or tensors; `held`: their number in the file."""
        if count > max(self.nodes, held):
            many = str(count) if count < _MANY else f"more than {_MANY}"
            raise LimitError(f"{what}: {many}; expected up to {self.nodes}, {raised('nodes', min(count, _MANY))}")

    def require_operations(self, what: str, count: int) -> None:
        """Raise LimitError if a run up to `what` takes too many multiply-accumulates."""
        if count > self.operations:
            raise LimitError(
                f"{what}: a run up to it takes {count:.3g} multiply-accumulates; expected up to "
                f"{self.operations:.3g}, {raised('operations', count)}"
            )

    def with_text(self, text: str) -> Limits:
        """These limits with changes by name, as in "tensor_bytes=16G,nodes=100000". Raises WorkloadError for invalid
        text."""
        changed: dict[str, int] = {}
        known = [field.name for field in fields(self)]
        for part in filter(None, (part.strip() for part in text.split(","))):
            name, equals, number = (word.strip() for word in part.partition("="))
            if equals and name not in known:
                raise WorkloadError(f"{name!r} is not a limit; {nearest(name, known)}")
            digits, unit = (number, "") if number.isdigit() else (number[:-1], number[-1:].lower())
            if not equals or unit not in _UNITS or not (digits.isascii() and digits.isdigit()) or len(digits) > 18:
                raise WorkloadError(f"limit {part[:80]!r} is not a number with a name; {_ACCEPTED}")
            changed[name] = int(digits) << _UNITS[unit]
        return replace(self, **changed)


def usual() -> Limits:
    """The limits if none are given: the defaults with the changes in the environment variable TVM_TILING_LIMITS."""
    return Limits().with_text(os.environ.get(VARIABLE, ""))


def raised(name: str, needed: int) -> str:
    """How to raise a limit to at least `needed`."""
    enough = 1 << max(0, needed - 1).bit_length()
    exponent = min((enough.bit_length() - 1) // 10 * 10, 40)
    unit = next(unit for unit, power in _UNITS.items() if power == exponent).upper()
    text = f"{name}={enough >> exponent}{unit}"
    return f"or more with limits=Limits({name}=...), --model-limit {text} or {VARIABLE}={text}"


def readable(size: int) -> str:
    """Bytes in human-readable form."""
    for unit, power in (("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size >= 1 << power:
            return f"{size / (1 << power):.4g} {unit}"
    return f"{size} bytes"
