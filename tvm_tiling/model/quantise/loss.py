"""The loss of accuracy of a layer by 8 bits: the signal-to-noise ratio of its sums, in decibels.

A sum over channels k of x w has the error of x times w, and of w times x. Errors of different channels are assumed to
be uncorrelated, so that their powers add; and so are those of the products themselves. A tensor with a few large values
in one channel loses the others, which its own power would not reveal: weights determine which matter.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from tvm import relax

from ..passes.dataflow import array, is_op
from .scale import Scale, quantised_weights

MOST_ROWS = 1 << 16  # of an input that are evaluated


def decibels(call: relax.Call, inputs: Sequence[np.ndarray], scale: Scale) -> float:
    """The ratio for a convolution or matrix multiplication by constant weights, with its input quantised by `scale`;
    infinite without errors or values."""
    power, error = _powers(call, inputs, scale)
    weight, lost = _weights(call)
    signal = float(weight @ power)
    noise = float(weight @ error + lost @ power)
    return 10 * math.log10(signal / noise) if signal > 0 and noise > 0 else math.inf


def _powers(call: relax.Call, inputs: Sequence[np.ndarray], scale: Scale) -> tuple[np.ndarray, np.ndarray]:
    """Mean squares of the values and of their errors, per channel."""
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
    """Sums of squares of the weights and of their errors, per input channel."""
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
