"""The supported Relay operators by name: each a function from its operands to Relax."""

from __future__ import annotations

from collections.abc import Callable

from ..operands import Operands, Value
from . import (
    broadcast,
    convolution,
    creation,
    elementwise,
    image,
    indexing,
    normalisation,
    padding,
    pooling,
    products,
    qnn_layers,
    qnn_scaling,
    reductions,
    shape_moves,
    slicing,
    sorting,
    vision,
)

OPERATORS: dict[str, Callable[[Operands], Value]] = {
    **broadcast.OPERATORS,
    **convolution.OPERATORS,
    **creation.OPERATORS,
    **elementwise.OPERATORS,
    **image.OPERATORS,
    **indexing.OPERATORS,
    **normalisation.OPERATORS,
    **padding.OPERATORS,
    **pooling.OPERATORS,
    **products.OPERATORS,
    **qnn_layers.OPERATORS,
    **qnn_scaling.OPERATORS,
    **reductions.OPERATORS,
    **shape_moves.OPERATORS,
    **slicing.OPERATORS,
    **sorting.OPERATORS,
    **vision.OPERATORS,
}
