"""Decisions from JSON: unmodified ones round-trip, modified ones are refused with the field's name."""

import dataclasses
import json

import pytest

import tvm_tiling as tt
from tvm_tiling.decide.known import tiling_for
from tvm_tiling.decide.options import Options
from tvm_tiling.decide.recorded import read_decision
from tvm_tiling.decide.surroundings import Surroundings

GEMM = tt.GemmWorkload(m=200, n=300, k=400, dtype="int8")
CONV = tt.ConvWorkload(n=1, h=14, w=14, ci=64, co=64, kh=3, kw=3, padding=(1, 1, 1, 1), dtype="int8")
RNN = tt.RnnWorkload(steps=3, input_size=64, hidden_size=64, dtype="int8")
PLAIN = json.loads(tt.decide(GEMM, "vta").to_json())
MACHINES = ("icelake-server-2c", "vta", "neartile", "dla3", "wfold16")


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("workload", [GEMM, CONV], ids=["gemm", "conv"])
def test_a_decision_comes_back_from_its_json(workload, machine):
    decision = tt.decide(workload, machine)
    read = read_decision(decision.to_json())
    assert read.to_json() == decision.to_json() and type(read) is type(decision)
    assert dataclasses.replace(read, reasons=()) == dataclasses.replace(decision, reasons=())


def test_recurrent_layers_and_columns_come_back():
    for decision in (tt.decide(RNN, "rnn16k"), tt.decide(tt.GemmWorkload(m=1, n=64, k=64, dtype="int8"), "rnn16k")):
        assert read_decision(decision.to_json()).to_json() == decision.to_json()


@pytest.mark.parametrize("machine", MACHINES)
def test_a_changed_decision_is_refused(machine):
    hardware = tt.Hardware.load(machine)
    plain = json.loads(tt.decide(GEMM, hardware).to_json())
    changed = {
        "icelake-server-2c": ("mr", 50),
        "vta": ("chunks", {**(plain.get("chunks") or {}), "versions_a": 999}),
        "neartile": ("outer_order", "nm" if plain.get("outer_order") == "mn" else "mn"),
        "dla3": ("tile_m", 7),
        "wfold16": ("ws", 3),
    }
    name, value = changed[machine]
    decision = read_decision(json.dumps({**plain, name: value}))
    with pytest.raises(tt.TilingError):
        tiling_for(GEMM, hardware, Options(decision=decision), Surroundings())


def test_the_decision_of_another_operator_is_refused():
    hardware = tt.Hardware.load("icelake-server-2c")
    other = tt.decide(tt.GemmWorkload(m=1, n=3000, k=400), hardware)
    with pytest.raises(tt.HardwareError, match=r"decision: .* does not match a gemm of this size on icelake"):
        tiling_for(tt.GemmWorkload(m=3, n=40, k=40), hardware, Options(decision=other), Surroundings())
    with pytest.raises(tt.HardwareError, match="a decision and a configuration are both given; expected one of them"):
        Options(decision=other, config=tt.config_of(other, tt.GemmWorkload(m=1, n=3000, k=400), hardware))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "decision: not JSON"),
        ("[1]", "expected a JSON object written by to_json"),
        ('{"op": "softmax"}', "decision: op = 'softmax'; expected 'gemm', 'gemm of open rows', 'conv'"),
        ('{"op": "gemm"}', "'acc_bytes' is missing"),
        (json.dumps({**PLAIN, "mrr": 3}), "'mrr' is not a field"),
        (
            json.dumps({**PLAIN, "load_a": "3"}),
            "decision.load_a = '3'; expected",
        ),
        (
            json.dumps({**PLAIN, "chunks": [3]}),
            "decision.chunks = [3]; expected",
        ),
    ],
)
def test_text_that_is_not_a_decision_is_refused_by_its_field(text, said):
    with pytest.raises(tt.DatabaseError) as caught:
        read_decision(text)
    assert said in str(caught.value)
