"""Random recurrent layers: every cell and variant, batch, share of the cores, with prepacked weights or without."""

from __future__ import annotations

import random

import numpy as np
import tvm
from case import Case
from products import native
from recurrent_reference import by_numpy, numbers

import tvm_tiling as tt
from tvm_tiling.decide.rnn.recurrence import GATES, Recurrence
from tvm_tiling.schedules.rnn import schedule_recurrence

ROUNDING = 5e-6  # of states, which are below 1; a plain RNN with ReLU grows, and is compared relative to its size


def random_layer(rng: random.Random) -> Recurrence:
    cell = rng.choice(("lstm", "lstm", "gru", "gru", "rnn"))
    order = list(GATES[cell])
    rng.shuffle(order)
    return Recurrence(
        cell=cell,
        steps=rng.randint(1, 6),
        batch=rng.choice((1, 1, 2, 3, 8, 9, 16)),
        hidden=rng.choice((1, 7, 16, 17, 31, 33, 64, 100, rng.randint(1, 130))),
        order="".join(order),
        reverse=rng.random() < 0.4,
        reset_after=cell != "gru" or rng.random() < 0.5,
        activation=rng.choice(("tanh", "relu")) if cell == "rnn" else "tanh",
        lengths=rng.random() < 0.4,
        peepholes=cell == "lstm" and rng.random() < 0.3,
        clip=rng.choice((0.25, 1.0)) if rng.random() < 0.2 else None,
    )


def random_recurrence(rng: random.Random) -> Case:
    """A layer with its numbers, the storage of weights and the number of cores."""
    r, prepacked = random_layer(rng), rng.random() < 0.5
    hardware, seed = native(cores=rng.choice((1, 1, 2, 3))), rng.randrange(1000)
    name = f"{r} ahead {prepacked} {hardware.cpu.cores} cores of {hardware.cpu.vector_bits} bits"
    return Case(name, lambda: check(r, hardware, seed=seed, prepacked=prepacked))


def check(r: Recurrence, hardware: tt.Hardware, *, seed: int, prepacked: bool) -> None:
    """Compare a layer with float64."""
    values = numbers(r, seed=seed)
    scheduled = schedule_recurrence(r, "layer", hardware.cpu, prepacked=prepacked)
    functions = {"layer": scheduled.main}
    if prepacked:
        functions["layer_pack"] = scheduled.pack
    library = tvm.compile(tvm.IRModule(functions), target=tt.llvm_target(hardware))
    tensors = {name: tvm.runtime.tensor(value) for name, value in values.items()}
    if prepacked:
        packed = tvm.runtime.empty(scheduled.packed_shape, scheduled.packed_dtype)
        library["layer_pack"](tensors["weights"], packed)
        tensors["weights"] = packed
    results = {name: tvm.runtime.empty(shape, "float32") for name, shape in r.outputs.items()}
    library["layer"](*tensors.values(), *results.values())
    for name, want in by_numpy(r, values).items():
        atol = ROUNDING * max(1.0, float(np.abs(want).max()))
        np.testing.assert_allclose(results[name].numpy(), want, rtol=0, atol=atol, err_msg=name)
