"""Recurrent layers in one kernel: every cell, direction, batch and division among cores, against NumPy."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
import tvm
from recurrent_reference import by_numpy, numbers
from tvm import tirx

import tvm_tiling as tt
from tvm_tiling.decide.rnn.recurrence import Recurrence, decide_recurrence
from tvm_tiling.lowering.prim_func import DECISION
from tvm_tiling.lowering.recurrent_loops import recurrent_function
from tvm_tiling.lowering.samples import samples
from tvm_tiling.match.recurrent import recurrence_of
from tvm_tiling.runtime.arrays import numpy_type
from tvm_tiling.schedules.rnn import schedule_recurrence

CPU = tt.Hardware.detect().cpu
CASES = (
    Recurrence(cell="lstm", steps=5, batch=1, hidden=70, order="iofg"),
    Recurrence(
        cell="lstm", steps=4, batch=9, hidden=37, order="ifgo", reverse=True, lengths=True, peepholes=True, clip=0.5
    ),
    Recurrence(cell="gru", steps=4, batch=3, hidden=50, order="rzn", reverse=True),
    Recurrence(cell="gru", steps=5, batch=2, hidden=40, order="zrn", reset_after=False, lengths=True, clip=0.25),
    Recurrence(cell="rnn", steps=4, batch=2, hidden=33, order="h", activation="relu", lengths=True, clip=0.5),
    Recurrence(cell="rnn", steps=3, batch=1, hidden=1, order="h"),
    Recurrence(cell="gru", steps=3, batch=2, hidden=20, order="zrn", clip=0.25),
    Recurrence(cell="rnn", steps=3, batch=2, hidden=17, order="h", clip=0.25),
)


def name_of(recurrence):
    return f"{recurrence.cell} {recurrence.batch} x {recurrence.hidden}"


def compiled(functions):
    return tvm.compile(tvm.IRModule(functions), target=tt.llvm_target())


def outputs(kernel, recurrence, values):
    results = [tvm.runtime.empty(shape, "float32") for shape in recurrence.outputs.values()]
    given = (v if isinstance(v, tvm.runtime.Tensor) else tvm.runtime.tensor(v) for v in values.values())
    kernel(*given, *results)
    return {name: result.numpy() for name, result in zip(recurrence.outputs, results, strict=True)}


def assert_right(kernel, recurrence, values, given=None):
    found, wanted = outputs(kernel, recurrence, given or values), by_numpy(recurrence, values)
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name], value, atol=2e-6, err_msg=name)


@pytest.mark.parametrize("recurrence", CASES, ids=name_of)
def test_plain_loops_say_what_a_recurrence_is(recurrence):
    func = recurrent_function(recurrence)
    assert recurrence_of(func) == recurrence
    assert_right(compiled({"recurrence": func})["recurrence"], recurrence, numbers(recurrence))


@pytest.mark.parametrize("recurrence", CASES, ids=name_of)
def test_the_kernel_with_weights_packed_prepacked(recurrence):
    scheduled = schedule_recurrence(recurrence, "layer", CPU, prepacked=True)
    library = compiled({"layer": scheduled.main, "layer_pack": scheduled.pack})
    values = numbers(recurrence)
    packed = tvm.runtime.empty(scheduled.packed_shape, scheduled.packed_dtype)
    library["layer_pack"](tvm.runtime.tensor(values["weights"]), packed)
    given = {name: packed.numpy() if name == "weights" else value for name, value in values.items()}
    assert_right(library["layer"], recurrence, values, given)


@pytest.mark.values
@pytest.mark.parametrize("stored", ["bfloat16", "float16"])
@pytest.mark.parametrize("prepacked", [False, True])
@pytest.mark.parametrize("recurrence", CASES, ids=name_of)
def test_weights_stored_in_16_bits_are_widened_as_they_are_read(recurrence, stored, prepacked):
    narrow = dataclasses.replace(recurrence, stored=stored)
    values = numbers(narrow)
    halves = values["weights"].astype(numpy_type(stored))
    values["weights"] = halves.astype(np.float32)
    weights = tvm.runtime.tensor(halves.view(np.int16))._create_view(halves.shape, stored)
    scheduled = schedule_recurrence(narrow, "layer", CPU, prepacked=prepacked)
    functions = {"layer": scheduled.main, "plain": recurrent_function(narrow, "plain")}
    library = compiled(functions | ({"layer_pack": scheduled.pack} if prepacked else {}))
    packed = weights
    if prepacked:
        packed = tvm.runtime.empty(scheduled.packed_shape, scheduled.packed_dtype)
        library["layer_pack"](weights, packed)
        assert str(packed.dtype) == ("int16" if stored == "bfloat16" else stored)
    assert_right(library["layer"], narrow, values, values | {"weights": packed})
    assert_right(library["plain"], narrow, values, values | {"weights": weights})


@pytest.mark.parametrize(
    ("recurrence", "prepacked"),
    [
        pytest.param(each, prepacked, id=f"{name_of(each)}-{prepacked}", marks=() if usual else pytest.mark.slow)
        for number, each in enumerate(CASES)
        for prepacked in (False, True)
        for usual in (prepacked == bool(number % 2),)
    ],
)
def test_one_kernel_for_any_steps_and_sequences(recurrence, prepacked):
    opened = dataclasses.replace(recurrence, steps=tirx.Var("steps", "int64"), batch=tirx.Var("batch", "int64"))
    func = recurrent_function(opened)
    with samples({"steps": 6, "batch": 5}):
        scheduled = schedule_recurrence(recurrence_of(func), "layer", CPU, prepacked=prepacked)
    library = compiled({"layer": scheduled.main} | ({"layer_pack": scheduled.pack} if prepacked else {}))
    packed = tvm.runtime.empty(scheduled.packed_shape or (1,), "float32")
    for steps, batch in ((1, 1), (5, 3), (2, 11), (9, 2)):
        one = dataclasses.replace(recurrence, steps=steps, batch=batch)
        values = numbers(one)
        if prepacked:
            library["layer_pack"](tvm.runtime.tensor(values["weights"]), packed)
        assert_right(library["layer"], one, values, values | ({"weights": packed} if prepacked else {}))


@pytest.mark.values
@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("further", [{"turning": True}, {"ep": 4}, {"blocks": 1, "rows": 2}], ids=str)
def test_configs_of_every_kind(threads, further):
    recurrence = CASES[1]
    tiling = dataclasses.replace(decide_recurrence(recurrence, CPU, threads), **further)
    scheduled = schedule_recurrence(recurrence, "layer", CPU, prepacked=False, tiling=tiling)
    assert_right(compiled({"layer": scheduled.main})["layer"], recurrence, numbers(recurrence))


@pytest.mark.parametrize("recurrence", [case for case in CASES if case.batch > 1], ids=name_of)
def test_cores_with_sequences_of_their_own(recurrence):
    """Tiles of one and of two sequences: the last core has one fewer, or nothing at all."""
    tiling = dataclasses.replace(decide_recurrence(recurrence, CPU, 1), rows=2, ep=1, threads=4, split="sequences")
    scheduled = schedule_recurrence(recurrence, "layer", CPU, prepacked=False, tiling=tiling)
    assert_right(compiled({"layer": scheduled.main})["layer"], recurrence, numbers(recurrence))


def test_the_decision_stands_in_the_function_and_explains_itself():
    scheduled = schedule_recurrence(CASES[0], "layer", CPU, prepacked=True)
    decision = json.loads(str(scheduled.main.attrs[DECISION]))
    assert decision["op"] == "recurrence" and decision["vp"] == decision["blocks"] * 4 * decision["lanes"]
    text = scheduled.tiling.explain()
    for name in ("columns at once (EP)", "sequences per tile", "cores", "alternating direction", "predicted time"):
        assert f"    {name} " in text
