"""Epilogues by name: the element-wise steps fused between the sums of a matrix multiplication or convolution and the
stored result."""

from __future__ import annotations

from ..errors import UnsupportedOperator

BIAS = "bias"  # adds one value per output column or image channel
RESIDUAL = "residual"  # adds one value per output element
RELU = "relu"  # maximum with 0
CLIP = "clip"  # minimum with a constant
CLIPPED_AT = 6  # used where the value of the constant does not matter
STEPS = (BIAS, RESIDUAL, RELU, CLIP)
NONE = ""
OTHER = "other"  # any epilogue that these steps cannot express


def named(steps: list[str]) -> str:
    """Return the name of the steps in execution order, such as "bias+relu"; "" for no steps."""
    return "+".join(steps)


def steps_of(epilogue: str) -> tuple[str, ...]:
    """Return the steps of an epilogue name. Raises UnsupportedOperator for OTHER and for unknown names."""
    steps = tuple(epilogue.split("+")) if epilogue else ()
    if not set(steps) <= set(STEPS):
        raise UnsupportedOperator(f"epilogue {epilogue!r}; expected a combination of {', '.join(STEPS)} joined by +")
    return steps


def said(epilogue: str) -> str:
    """Return `epilogue` if its steps are known, and NONE for OTHER."""
    return NONE if epilogue == OTHER else epilogue
