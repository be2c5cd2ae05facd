"""Functions as piecewise polynomials, fitted when a program is translated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from tvm import relax, te, tirx

from ..translation import Translation, shape_of

_WIDE = "float64"
_DEGREE = 11
_HELD: dict[str, torch.Tensor] = {}


@dataclass(frozen=True)
class Table:
    """A float64 function on [low, high], divided into equal intervals."""

    name: str
    function: Callable[[torch.Tensor], torch.Tensor] = field(compare=False)
    low: float
    high: float
    pieces: int

    def coefficients(self) -> torch.Tensor:
        """Polynomial coefficients, (pieces, degree + 1), in the position within a piece, from -1 to 1, highest power
        first."""
        if self.name not in _HELD:
            count = _DEGREE + 1
            nodes = np.cos((np.arange(count) + 0.5) * np.pi / count)
            width = (self.high - self.low) / self.pieces
            middles = self.low + width * (np.arange(self.pieces) + 0.5)
            places = torch.from_numpy(middles[:, None] + nodes[None] * width / 2)
            values = self.function(places).numpy()
            fitted = np.polynomial.chebyshev.chebfit(nodes, values.T, _DEGREE)
            powers = np.stack(
                [np.pad(c := np.polynomial.chebyshev.cheb2poly(row), (0, count - len(c))) for row in fitted.T]
            )
            _HELD[self.name] = torch.from_numpy(np.ascontiguousarray(powers[:, ::-1]))
        return _HELD[self.name]

    def value(self, held: te.Tensor, place: Any) -> Any:
        """The function at a position in the range."""
        low, width = tirx.const(self.low, _WIDE), tirx.const((self.high - self.low) / self.pieces, _WIDE)
        zero, one, most = (tirx.const(float(number), _WIDE) for number in (0, 1, self.pieces))
        # NaN positions read from within the table; their result is not used.
        moved, piece, inner = (tirx.Var(name, kind) for name, kind in (("m", _WIDE), ("i", "int32"), ("u", _WIDE)))
        limited = tirx.Select(tirx.isnan(moved), zero, tirx.max(tirx.min(moved, most), zero))
        total = held[piece, 0]
        for power in range(1, _DEGREE + 1):
            total = total * inner + held[piece, power]
        total = tirx.Let(inner, (moved - tirx.Cast(_WIDE, piece)) * tirx.const(2.0, _WIDE) - one, total)
        total = tirx.Let(piece, tirx.min(tirx.Cast("int32", limited), tirx.const(self.pieces - 1, "int32")), total)
        return tirx.Let(moved, (place - low) / width, total)


def table(name: str, function: Callable[[torch.Tensor], torch.Tensor], low: float, high: float, pieces: int) -> Table:
    return Table(name, function, low, high, pieces)


def evaluated(
    t: Translation, name: str, element: Callable[..., Any], x: relax.Expr, tables: Sequence[Table]
) -> relax.Expr:
    """Apply `element` to every number of x; it takes the number and each table as a function of a position."""
    held = [t.constant(each.coefficients()) for each in tables]

    def compute(data: te.Tensor, *tensors: te.Tensor) -> te.Tensor:
        def one(*at: Any) -> Any:
            functions = [
                lambda place, each=each, tensor=tensor: each.value(tensor, place)
                for each, tensor in zip(tables, tensors, strict=True)
            ]
            return element(data(*at), *functions)

        return te.compute(shape_of(x), one, name=name)

    return t.te(compute, x, *held, primfunc_name_hint=name)
