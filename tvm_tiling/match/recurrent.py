"""Recognition of recurrences: recurrent_function() describes them in an attribute."""

from __future__ import annotations

import json
from dataclasses import replace

from tvm import tirx

from ..decide.rnn.recurrence import Recurrence
from ..lowering.samples import sampled

ATTRIBUTE = "tvm_tiling.recurrence"


def recurrence_of(func: tirx.PrimFunc) -> Recurrence | None:
    """The Recurrence computed by `func`, whose parameters are its inputs and outputs in order; None for any other
    function."""
    text = func.attrs.get(ATTRIBUTE) if func.attrs is not None else None
    if text is None:
        return None
    plain, shape = json.loads(str(text)), func.params[0].shape  # shape of the projected inputs: steps, batch, ...
    for axis, part in enumerate(("steps", "batch")):
        if plain[part] is None:
            plain[part] = shape[axis]
    return Recurrence(**plain)


def at_sample(recurrence: Recurrence) -> Recurrence:
    """The recurrence at sample sizes, for which decisions are made if its steps or sequences are dynamic."""
    return replace(recurrence, steps=sampled(recurrence.steps), batch=sampled(recurrence.batch))
