"""What is fused behind a product or a convolution, by name: the steps from a sum to what is stored of it."""

from __future__ import annotations

from ..errors import UnsupportedOperator

BIAS = "bias"  # a number for each column of the result, or channel of the image, is added
RESIDUAL = "residual"  # a number for each element of the result is added
RELU = "relu"  # the larger of it and 0
CLIP = "clip"  # the smaller of it and a constant
CLIPPED_AT = 6  # where the constant does not matter
STEPS = (BIAS, RESIDUAL, RELU, CLIP)
NONE = ""
OTHER = "other"  # anything that these steps do not say


def named(steps: list[str]) -> str:
    """The name of steps in the order in which they are done: "bias+relu"; empty for none."""
    return "+".join(steps)


def steps_of(epilogue: str) -> tuple[str, ...]:
    """The steps of a name. UnsupportedOperator for OTHER and for what is none."""
    steps = tuple(epilogue.split("+")) if epilogue else ()
    if not set(steps) <= set(STEPS):
        raise UnsupportedOperator(f"epilogue {epilogue!r}; expected {', '.join(STEPS)}, with + between them, or none")
    return steps


def said(epilogue: str) -> str:
    """The name of an epilogue that can be written from its name; of any other that of none."""
    return NONE if epilogue == OTHER else epilogue
