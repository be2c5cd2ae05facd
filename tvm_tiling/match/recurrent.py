"""Recurrences among functions: those that recurrent_function() made carry what they are in an attribute."""

from __future__ import annotations

import json

from tvm import tirx

from ..decide.rnn.recurrence import Recurrence

ATTRIBUTE = "tvm_tiling.recurrence"


def recurrence_of(func: tirx.PrimFunc) -> Recurrence | None:
    """What `func` computes, its parameters being the inputs and outputs of a Recurrence in their order; None for any
    other function."""
    text = func.attrs.get(ATTRIBUTE) if func.attrs is not None else None
    return None if text is None else Recurrence(**json.loads(str(text)))
