"""Converters of core ATen operators, a file per subject, each of which registers its own."""

from ..translation import CONVERTERS
from . import (  # noqa: F401
    activations,
    arithmetic,
    comparison,
    convolution,
    creation,
    functions,
    indexing,
    normalisation,
    padding,
    pooling,
    products,
    recurrent,
    reductions,
    resampling,
    sampling,
    scatter,
    sorting,
    views,
)

__all__ = ["CONVERTERS"]
