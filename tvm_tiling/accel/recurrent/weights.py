"""The combined weights of a recurrent layer (design page 04): one matrix whose columns are those of x followed by those
of h, and whose rows are the gates, with those of a unit adjacent."""

from __future__ import annotations

import numpy as np

from ...errors import WorkloadError
from ...workload import RnnWorkload

# Rows of the sums of a unit, with the gates in PyTorch's order of weights.
SUMS = {"lstm": ("i", "f", "g", "o"), "gru": ("r", "z", "n"), "rnn": ("h",)}


def sum_names(workload: RnnWorkload) -> tuple[str, ...]:
    """Return the sums of each unit. A GRU whose reset gate multiplies the product has two for its candidate, of x and
    of h."""
    if workload.cell == "gru" and workload.linear_before_reset:
        return ("r", "z", "nx", "nh")
    return SUMS[workload.cell]


def row_places(workload: RnnWorkload) -> dict[str, tuple[int, int]]:
    """Return the location of the sums of each name: (row of unit 0, rows from one unit to the next). Sums of one
    product are interleaved."""
    names = sum_names(workload)
    if workload.cell == "gru" and not workload.linear_before_reset:
        return {"r": (0, 2), "z": (1, 2), "n": (2 * workload.hidden_size, 1)}
    return {name: (place, len(names)) for place, name in enumerate(names)}


def combined_weights(workload: RnnWorkload, of_inputs: np.ndarray, of_state: np.ndarray) -> np.ndarray:
    """Return [columns, rows] from PyTorch's weights of a layer, gates * hidden x inputs and gates * hidden x hidden.

    WorkloadError if these have other shapes.
    """
    hidden, gates = workload.hidden_size, workload.gates
    for name, weights in (("of_inputs", of_inputs), ("of_state", of_state)):
        wanted = (gates * hidden, hidden) if name == "of_state" else (gates * hidden, "any")
        if (
            weights.ndim != 2
            or weights.shape[0] != gates * hidden
            or (name == "of_state" and weights.shape[1] != hidden)
        ):
            raise WorkloadError(f"combined weights: {name} has shape {weights.shape}; expected {wanted}")
    inputs = of_inputs.shape[1]
    places = row_places(workload)
    combined = np.zeros((inputs + hidden, len(places) * hidden), of_inputs.dtype)
    for number, gate in enumerate(SUMS[workload.cell]):
        rows = slice(number * hidden, (number + 1) * hidden)
        for columns, weights, half in ((slice(0, inputs), of_inputs, "x"), (slice(inputs, None), of_state, "h")):
            start, step = places[gate] if gate in places else places[gate + half]
            combined[columns, start : start + step * hidden : step] = weights[rows].T
    return combined
