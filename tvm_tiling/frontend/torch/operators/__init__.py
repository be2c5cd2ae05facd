"""Converters of core ATen operators, a file per subject, each of which registers its own."""

from ..translation import CONVERTERS
from . import (  # noqa: F401
    activations,
    arithmetic,
    bits,
    comparison,
    complex_numbers,
    convolution,
    creation,
    fourier,
    functions,
    gamma,
    grouped,
    indexing,
    linear_algebra,
    losses,
    normalisation,
    padding,
    polynomials,
    pooling,
    products,
    ranks,
    recurrent,
    reductions,
    resampling,
    running,
    sampling,
    scatter,
    search,
    segments,
    sorting,
    special,
    spectra,
    views,
)

__all__ = ["CONVERTERS"]
