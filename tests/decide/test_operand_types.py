"""Engines that take some element types only."""

from __future__ import annotations

import dataclasses

import pytest

import tvm_tiling as tt
from tvm_tiling.hardware.machine import Machine

INT8_FOLD = dataclasses.replace(tt.Hardware.load("wfold16"), w_fold=tt.WFold(dtypes=["int8", "uint8"]))
CONV = {"n": 1, "h": 8, "w": 8, "ci": 16, "co": 16, "kh": 3, "kw": 3}


def test_page_01s_engine_refuses_other_types():
    vta = tt.Hardware.load("vta")
    assert tt.decide(tt.GemmWorkload(m=64, n=64, k=64, dtype="int8"), vta).utilisation > 0
    with pytest.raises(tt.HardwareError, match="hardware 'vta': operands of float32, accepted: int8"):
        tt.decide(tt.GemmWorkload(m=64, n=64, k=64, dtype="float32"), vta)
    with pytest.raises(tt.HardwareError, match="operands of float16, accepted: int8"):
        tt.decide(tt.ConvWorkload(**CONV, dtype="float16"), vta)


def test_page_05s_engine_refuses_other_types():
    assert tt.decide(tt.ConvWorkload(**CONV, dtype="uint8"), INT8_FOLD).form == "wfold"
    with pytest.raises(tt.HardwareError, match="hardware 'wfold16': operands of float32, accepted: int8, uint8"):
        tt.decide(tt.ConvWorkload(**CONV, dtype="float32"), INT8_FOLD)


def test_a_machine_takes_what_one_of_its_engines_takes():
    assert not Machine(tt.Hardware.load("vta")).takes("float32") and Machine(tt.Hardware.load("vta")).takes("int8")
    assert Machine(tt.Hardware.load("neartile")).takes("float32")
    assert Machine(INT8_FOLD).takes("uint8") and not Machine(INT8_FOLD).takes("float16")
    assert Machine(tt.Hardware.rnn(multipliers=8)).takes("int16")
    both = dataclasses.replace(INT8_FOLD, near_tile=tt.Hardware.load("neartile").near_tile)
    assert Machine(both).takes("float16")


def test_peak_is_that_of_the_element_size():
    array = dataclasses.replace(tt.Hardware.load("dla3"), levels=())
    slow, fast = (
        tt.decide(tt.GemmWorkload(m=64, n=64, k=64, dtype=dtype), array).utilisation for dtype in ("bfloat16", "int8")
    )
    # Twice the bytes and twice the cycles of the multipliers: what waits for transfers keeps its share.
    assert slow == pytest.approx(fast)
