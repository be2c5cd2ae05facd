"""Recurrent layers in exact integers, by NumPy: the 16-bit fixed point of the column engine, with 12 fraction bits
except for weights."""

from __future__ import annotations

import numpy as np

BITS = 12
ONE, LOW, HIGH = 1 << BITS, -(2**15), 2**15 - 1


def fixed(sums, bits=BITS):
    """Round sums of products with weights of this many fraction bits once, halves to even, and saturate."""
    return np.clip(np.rint(sums / 2.0**bits), LOW, HIGH).astype(np.int64)


def times(a, b):
    return np.clip((a * b + ONE // 2) >> BITS, LOW, HIGH)


def short(values):
    return np.clip(values, LOW, HIGH)


def table(function, values):
    return np.rint(function(values / ONE) * ONE).astype(np.int64)


def sigmoid(values):
    return 1 / (1 + np.exp(-values))


def by_numpy(workload, x, of_inputs, of_state, biases=None, states=None, bits=BITS):
    """Return h of every step, and the final states, of one layer and one sequence. Weights are in PyTorch's layout;
    `biases` of the inputs' side and of the state's, in 32 bits; `states` before the first step."""
    hidden, gates = workload.hidden_size, workload.gates
    wx, wh = (np.split(w.astype(np.int64), gates) for w in (of_inputs, of_state))
    none = np.zeros(gates * hidden, np.int64)
    bx, bh = (np.split(b.astype(np.int64), gates) for b in (biases or (none, none)))
    h, c = (s.astype(np.int64) for s in (*(states or ()), *[np.zeros(hidden, np.int64)] * 2)[:2])
    outputs = []
    for row in x.astype(np.int64):
        own = [w @ row + b for w, b in zip(wx, bx, strict=True)]
        back = [w @ h + b for w, b in zip(wh, bh, strict=True)]
        if workload.cell == "lstm":
            i, f, g, o = (fixed(a + b, bits) for a, b in zip(own, back, strict=True))
            i, f, o, g = table(sigmoid, i), table(sigmoid, f), table(sigmoid, o), table(np.tanh, g)
            c = short((f * c + i * g + ONE // 2) >> BITS)
            h = times(o, table(np.tanh, c))
        elif workload.cell == "rnn":
            sums = fixed(own[0] + back[0], bits)
            h = table(np.tanh, sums) if workload.activation == "tanh" else np.maximum(sums, 0)
        else:
            r, z = (table(sigmoid, fixed(own[gate] + back[gate], bits)) for gate in range(2))
            if workload.linear_before_reset:
                n = table(np.tanh, short(times(r, fixed(back[2], bits)) + fixed(own[2], bits)))
            else:
                n = table(np.tanh, fixed(own[2] + bh[2] + wh[2] @ times(r, h), bits))
            h = short(n + times(z, short(h - n)))
        outputs.append(h)
    return np.array(outputs).reshape(len(x), hidden), (h, c) if workload.cell == "lstm" else (h,)
