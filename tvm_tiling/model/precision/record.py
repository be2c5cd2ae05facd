"""What a compiled model says of its precision: which it is, how far its results are from float32, what was compared."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

MOST_LAYERS = 5  # shown
PRECISIONS = ("float32", "bfloat16", "float16", "int8", "auto")


@dataclass(frozen=True, kw_only=True)
class Compared:
    """One precision on the inputs given for calibration. `error`: the largest of any output and input, as the norm of
    its difference from float32 beside its own; NaN where it is not finite and float32's is. `seconds`: the median
    of runs on the first input, None where nothing was timed. `refused`: why the model is not served so, or empty."""

    precision: str
    error: float = 0.0
    seconds: float | None = None
    refused: str = ""


@dataclass(frozen=True)
class LayerError:
    """How far the weights of a node moved: the norm of the difference beside their own."""

    node: str
    error: float


@dataclass(frozen=True, kw_only=True)
class PrecisionRecord:
    """The precision that a model was compiled for.

    `error`: as of Compared, None where no inputs were given to measure it. `inputs`: how many were. `tolerance`: what
    "auto" accepted, None elsewhere. `left`: nodes that multiply by weights in floats, since 8 bits keep too little of
    what they take. `compared`: what "auto" chose from. `weights`: the format of weights in blocks and how many share a
    scale, as in "int4:32", empty for floats; `layers` are how far each moved.
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
        """Plain values, numbers that JSON does not have as None."""
        plain = asdict(self)
        if not self.weights:
            del plain["weights"], plain["layers"]
        for each in (plain, *plain["compared"]):
            if each["error"] is not None and not math.isfinite(each["error"]):
                each["error"] = None
        return plain

    def described(self) -> dict[str, Any]:
        """What a description of a model says of it: nothing where nobody asked for another precision."""
        return {} if self == PrecisionRecord() else {"precision": self.to_dict()}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> PrecisionRecord:
        """What to_dict() made of one. ValueError for anything else."""
        if plain["precision"] not in PRECISIONS:
            raise ValueError(f"precision {plain['precision']!r}")
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
        """A line, and one for each precision that was compared."""
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
    """An error as to_dict() writes it: None stands for no number where there were inputs to measure it."""
    if value is None:
        return math.nan if inputs else None
    return float(value)


def _percent(error: float) -> str:
    return "not a number where float32 has one, so unusably far" if math.isnan(error) else f"{100 * error:.2g} percent"
