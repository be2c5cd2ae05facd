"""What a layer loses by 8 bits: the power of its sums beside that of their error, in decibels.

A sum over channels k of x w has the error of x times w, and of w times x. Errors of different channels are taken to
have nothing to do with each other, so that their powers add up; so are those of the products themselves. A tensor with
a few large numbers in one channel loses the others, which its own power would not show: weights say which matter.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from tvm import relax

from ..passes.dataflow import array, is_op
from .scale import Scale, quantised_weights

MOST_ROWS = 1 << 16  # of an input that are looked at


def decibels(call: relax.Call, inputs: Sequence[np.ndarray], scale: Scale) -> float:
    """Of a convolution or product by constant weights, for what it takes, quantised by `scale`; infinite where there is
    no error, or nothing."""
    power, error = _powers(call, inputs, scale)
    weight, lost = _weights(call)
    signal = float(weight @ power)
    noise = float(weight @ error + lost @ power)
    return 10 * math.log10(signal / noise) if signal > 0 and noise > 0 else math.inf


def _powers(call: relax.Call, inputs: Sequence[np.ndarray], scale: Scale) -> tuple[np.ndarray, np.ndarray]:
    """By channel, mean squares of the numbers and of their errors."""
    channel = -1 if is_op(call, "matmul") else str(call.attrs.data_layout).index("C")
    powers, errors = [], []
    for each in inputs:
        rows = np.moveaxis(each, channel, -1).reshape(-1, each.shape[channel])
        rows = rows[:: max(1, len(rows) // MOST_ROWS)].astype(np.float64)
        kept = scale.scale * (scale.quantised(rows) - scale.zero)
        powers.append(np.square(rows).mean(axis=0))
        errors.append(np.square(rows - kept).mean(axis=0))
    return np.mean(powers, axis=0), np.mean(errors, axis=0)


def _weights(call: relax.Call) -> tuple[np.ndarray, np.ndarray]:
    """By channel of the input, the sums of squares of its weights and of their errors."""
    weights = array(call.args[1])
    assert weights is not None
    stored = "IO" if is_op(call, "matmul") else str(call.attrs.kernel_layout)
    groups = 1 if is_op(call, "matmul") else int(call.attrs.groups)
    out = stored.index("O")
    numbers, scales = quantised_weights(weights, out)
    kept = numbers * scales.reshape([-1 if letter == "O" else 1 for letter in stored])
    order = [stored.index("I"), out, *(a for a, letter in enumerate(stored) if letter not in "OI")]
    whole, lost = (_of_channels(np.transpose(part, order), groups) for part in (weights, weights - kept))
    return whole, lost


def _of_channels(weights: np.ndarray, groups: int) -> np.ndarray:
    """Sums of squares of weights [channel of a group, output channel, ...] for every channel."""
    channels, outputs = weights.shape[:2]
    squares = np.square(weights.astype(np.float64)).reshape(channels, groups, outputs // groups, -1)
    return squares.sum(axis=(2, 3)).T.reshape(-1)
