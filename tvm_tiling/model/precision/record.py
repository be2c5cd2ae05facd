"""The precision of a compiled model: its type, its error relative to float32, and the comparison of candidates."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

MOST_LAYERS = 5  # shown
PRECISIONS = ("float32", "bfloat16", "float16", "int8", "auto")


@dataclass(frozen=True, kw_only=True)
class Compared:
    """One precision on the calibration inputs. `error`: the maximum over outputs and inputs of the norm of the
    difference from float32, relative to the float32 norm; NaN if a result is not finite and float32's is. `seconds`:
    the median latency on the first input, None if not measured. `refused`: the reason why this precision is not
    supported for the model, or empty."""

    precision: str
    error: float = 0.0
    seconds: float | None = None
    refused: str = ""


@dataclass(frozen=True)
class LayerError:
    """The error of a node's weights: the norm of the difference relative to their own norm."""

    node: str
    error: float


@dataclass(frozen=True, kw_only=True)
class PrecisionRecord:
    """The precision for which a model was compiled.

    `error`: as in Compared, None without inputs to measure it. `inputs`: the number of inputs. `tolerance`: the error
    accepted by "auto", None otherwise. `left`: nodes that multiply by weights in floats, because their inputs lose too
    much accuracy in 8 bits. `compared`: the candidates of "auto". `weights`: the format of blocked weights and the
    number of weights per scale, such as "int4:32", empty for floats; `layers` has the error of each.
    """

    precision: str = "float32"
    error: float | None = None
    inputs: int = 0
    tolerance: float | None = None
    left: tuple[str, ...] = ()
    compared: tuple[Compared, ...] = field(default=())
    weights: str = ""
    layers: tuple[LayerError, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain values, with None for numbers that JSON does not support."""
        plain = asdict(self)
        if not self.weights:
            del plain["weights"], plain["layers"]
        for each in (plain, *plain["compared"]):
            if each["error"] is not None and not math.isfinite(each["error"]):
                each["error"] = None
        return plain

    def described(self) -> dict[str, Any]:
        """The entry in a model's description: empty if no other precision was requested."""
        return {} if self == PrecisionRecord() else {"precision": self.to_dict()}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> PrecisionRecord:
        """The record from a to_dict() result. Raises ValueError for anything else."""
        if plain["precision"] not in PRECISIONS:
            raise ValueError(f"precision {plain['precision']!r} is not supported")
        return cls(
            precision=str(plain["precision"]),
            error=_number(plain["error"], int(plain["inputs"])),
            inputs=int(plain["inputs"]),
            tolerance=None if plain["tolerance"] is None else float(plain["tolerance"]),
            left=tuple(map(str, plain["left"])),
            compared=tuple(
                Compared(
                    precision=str(each["precision"]),
                    error=_number(each["error"], 1) or 0.0,
                    seconds=None if each["seconds"] is None else float(each["seconds"]),
                    refused=str(each["refused"]),
                )
                for each in plain["compared"]
            ),
            weights=str(plain.get("weights", "")),
            layers=tuple(LayerError(str(each["node"]), float(each["error"])) for each in plain.get("layers", ())),
        )

    def __str__(self) -> str:
        """One line, and one for each precision that was compared."""
        lines = [f"precision: {self.precision}{self._error_text()}"]
        if self.left:
            shown = ", ".join(self.left[:3]) + (f" and {len(self.left) - 3} more" if len(self.left) > 3 else "")
            lines.append(f"in float32 for their accuracy: {shown}")
        lines += [f"  {self._compared_text(each)}" for each in self.compared]
        if self.weights:
            name, block = self.weights.split(":")
            mean = sum(each.error for each in self.layers) / max(1, len(self.layers))
            lines.append(f"weights: {name} in blocks of {block}, {_percent(mean)} from float32 in the mean; farthest:")
            farthest = sorted(self.layers, key=lambda each: -each.error)[:MOST_LAYERS]
            lines += [f"  {each.node}: {_percent(each.error)}" for each in farthest]
        return "\n".join(lines)

    def _compared_text(self, each: Compared) -> str:
        if each.refused:
            return f"{each.precision}: {each.refused}"
        time = "not timed, " if each.seconds is None else f"{1e3 * each.seconds:.3g} ms, "
        more = f", more than {_percent(self.tolerance or 0.0)}" if each.seconds is None else ""
        return f"{each.precision}: {time}{_percent(each.error)} from float32{more}"

    def _error_text(self) -> str:
        if self.precision == "float32":
            return ""
        if self.error is None:
            return ", error not measured: no inputs were given by calibration=[inputs]"
        return f", {_percent(self.error)} from float32 on {self.inputs} input{'s' * (self.inputs != 1)}"


FLOAT32 = PrecisionRecord()


def _number(value: Any, inputs: int) -> float | None:
    """An error as written by to_dict(): None means NaN if there were inputs to measure it."""
    if value is None:
        return math.nan if inputs else None
    return float(value)


def _percent(error: float) -> str:
    return "not a number where float32 has one, so unusably far" if math.isnan(error) else f"{100 * error:.2g} percent"
