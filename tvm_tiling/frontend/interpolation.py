"""Interpolation of a tensor along one axis: sums of a few elements whose indices and weights are known at compile
time."""

from __future__ import annotations

from typing import Any

from tvm import relax, te


def interpolated(
    builder: relax.BlockBuilder, data: relax.Expr, axis: int, places: relax.Expr, weights: relax.Expr
) -> relax.Var:
    """Return `data` with sums along `axis`, one for each row of `places` and `weights`, both (outputs, taps)."""

    def interpolate(x: te.Tensor, index: te.Tensor, weight: te.Tensor) -> te.Tensor:
        shape = [index.shape[0] if place == axis else extent for place, extent in enumerate(x.shape)]
        tap = te.reduce_axis((0, index.shape[1]), name="tap")

        def element(*at: Any) -> Any:
            source = [index[at[axis], tap] if place == axis else position for place, position in enumerate(at)]
            return te.sum(x[tuple(source)] * weight[at[axis], tap], axis=tap)

        return te.compute(shape, element, name="interpolate")

    return builder.emit_te(interpolate, data, places, weights, primfunc_name_hint="interpolate")
