"""Recurrences among functions: those that recurrent_function() made carry what they are in an attribute."""

from __future__ import annotations

import json
from dataclasses import replace

from tvm import tirx

from ..decide.rnn.recurrence import Recurrence
from ..lowering.samples import sampled

ATTRIBUTE = "tvm_tiling.recurrence"


def recurrence_of(func: tirx.PrimFunc) -> Recurrence | None:
    """What `func` computes, its parameters being the inputs and outputs of a Recurrence in their order; None for any
    other function."""
    text = func.attrs.get(ATTRIBUTE) if func.attrs is not None else None
    if text is None:
        return None
    told, shape = json.loads(str(text)), func.params[0].shape  # of the projected inputs: steps, batch, ...
    for axis, part in enumerate(("steps", "batch")):
        if told[part] is None:
            told[part] = shape[axis]
    return Recurrence(**told)


def at_sample(recurrence: Recurrence) -> Recurrence:
    """The recurrence that decisions are made for where only a run brings its steps or its sequences."""
    return replace(recurrence, steps=sampled(recurrence.steps), batch=sampled(recurrence.batch))
