"""Recurrences in float64 by the textbook formulas, and inputs for them."""

from __future__ import annotations

import numpy as np


def numbers(recurrence, seed=0):
    """Return random inputs by name; weights shrink with the number of units, so that gates do not saturate."""
    rng, found = np.random.default_rng(seed), {}
    for name, shape in recurrence.inputs.items():
        if name == "lengths":
            found[name] = rng.integers(0, recurrence.steps + 1, shape).astype(np.int32)
        else:
            scale = recurrence.hidden**-0.5 if name == "weights" else 1.0
            found[name] = (scale * rng.normal(size=shape)).astype(np.float32)
    return found


def by_numpy(recurrence, values):
    """Return the outputs by name."""
    r, hidden = recurrence, recurrence.hidden
    bound = np.inf if r.clip is None else r.clip

    def sigmoid(x):
        return 1 / (1 + np.exp(-np.clip(x, -bound, bound)))

    def tanh(x):
        return np.tanh(np.clip(x, -bound, bound))

    v = {name: value.astype(np.float64) if name != "lengths" else value for name, value in values.items()}
    h, c = v["h0"], v.get("c0")
    y = np.zeros((r.steps, r.batch, hidden))

    def gate(sums, name):
        place = r.order.index(name) * hidden
        return sums[:, place : place + hidden]

    for step in reversed(range(r.steps)) if r.reverse else range(r.steps):
        own, back, new_c = v["projected"][step], h @ v["weights"].T, None
        if r.cell == "lstm":
            of_i, of_o, of_f = np.split(v.get("peepholes", np.zeros(3 * hidden)), 3)
            i, f = (sigmoid(gate(own + back, name) + weight * c) for name, weight in (("i", of_i), ("f", of_f)))
            new_c = f * c + i * tanh(gate(own + back, "g"))
            new = sigmoid(gate(own + back, "o") + of_o * new_c) * np.tanh(new_c)
        elif r.cell == "rnn":
            new = tanh(own + back) if r.activation == "tanh" else np.clip(own + back, 0, bound)
        else:
            reset, z = (sigmoid(gate(own + back, name)) for name in "rz")
            if r.reset_after:
                n = tanh(gate(own, "n") + reset * (gate(back, "n") + v["bias"]))
            else:
                n = tanh(gate(own, "n") + gate((reset * h) @ v["weights"].T, "n"))
            new = n + z * (h - n)
        live = (step < v["lengths"])[:, None] if r.lengths else np.True_
        y[step] = np.where(live, new, 0)
        h = np.where(live, new, h)
        c = c if new_c is None else np.where(live, new_c, c)
    return {"y": y, "h": h} if c is None else {"y": y, "h": h, "c": c}
