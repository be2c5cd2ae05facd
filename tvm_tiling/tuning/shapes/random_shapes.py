"""Random shapes from given ranges, for a database that covers more than the shapes of some models."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from ...errors import DatabaseError, nearest
from ...hardware.description import Hardware
from ...hardware.machine import Machine
from ...workload import ConvWorkload, GemmWorkload
from .key import CONV_AXES, GEMM_AXES, Workload

AXES = {"gemm": GEMM_AXES, "conv": CONV_AXES}
RANGES: Mapping[str, Mapping[str, tuple[int, int]]] = MappingProxyType(
    {
        "gemm": {"m": (16, 4096), "n": (64, 4096), "k": (64, 4096), "batch": (1, 1)},
        "conv": {"n": (1, 1), "h": (7, 112), "w": (7, 112), "ci": (16, 512), "co": (16, 512)},
    }
)
KERNELS = ((1, 1), (1, 2), (3, 1), (3, 2), (5, 1))  # taps along each axis, and stride


def usual_dtype(hardware: Hardware) -> str:
    """Return the default element type for measurements: int8 on an accelerator that supports it, otherwise float32."""
    return "int8" if hardware.cpu is None and Machine(hardware).takes("int8") else "float32"


@dataclass(frozen=True, kw_only=True)
class RandomShapes:
    """`count` shapes of one operator, "gemm" or "conv", deterministic for each `seed`.

    `ranges` are the minimum and maximum of an axis, by default those of RANGES. Extents are log-uniform, and multiples
    of `multiple` if the range contains one. `dtype` defaults to int8 on an accelerator that supports it, otherwise
    float32. Convolutions have square images if the ranges of h and w are equal, a border that preserves their size, and
    one of `kernels`: taps along each axis, and stride.
    """

    op: str
    count: int
    ranges: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    multiple: int = 8
    dtype: str | None = None
    kernels: tuple[tuple[int, int], ...] = KERNELS
    seed: int = 0

    def __post_init__(self) -> None:
        if self.op not in AXES:
            raise DatabaseError(f"random shapes: op = {self.op!r}; expected {', '.join(map(repr, AXES))}")
        for name in ("count", "multiple"):
            if type(getattr(self, name)) is not int or getattr(self, name) < 1:
                raise DatabaseError(f"random shapes: {name} = {getattr(self, name)!r}; expected a number above 0")
        for axis, span in self.ranges.items():
            if axis not in AXES[self.op]:
                raise DatabaseError(f"random shapes: axis {axis!r}; {nearest(axis, AXES[self.op])}")
            if len(span) != 2 or any(type(end) is not int for end in span) or not 1 <= span[0] <= span[1]:
                raise DatabaseError(f"random shapes: {axis} = {span!r}; expected minimum and maximum, above 0")

    def workloads(self, hardware: Hardware) -> Iterator[Workload]:
        """Yield the shapes for a machine."""
        rng = random.Random(self.seed)
        dtype = self.dtype or usual_dtype(hardware)
        ranges = {**RANGES[self.op], **self.ranges}
        for _ in range(self.count):
            extents: dict[str, Any] = {axis: self._extent(rng, *ranges[axis]) for axis in AXES[self.op]}
            if self.op == "gemm":
                yield GemmWorkload(dtype=dtype, **extents)
                continue
            if ranges["h"] == ranges["w"]:
                extents["w"] = extents["h"]
            taps, stride = rng.choice(self.kernels)
            border = (taps - 1) // 2
            yield ConvWorkload(
                kh=taps,
                kw=taps,
                stride=(stride, stride),
                padding=(border, border, border, border),
                dtype=dtype,
                **extents,
            )

    def _extent(self, rng: random.Random, least: int, most: int) -> int:
        drawn = round(math.exp(rng.uniform(math.log(least), math.log(most))))
        rounded = round(drawn / self.multiple) * self.multiple
        return rounded if least <= rounded <= most else drawn
