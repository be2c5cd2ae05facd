"""Types of the operands: engines that support some only, bytes of each operand, storage of weights."""

from __future__ import annotations

import dataclasses

import pytest

import tvm_tiling as tt
from tvm_tiling.decide.gemm.blocked import decide_blocked
from tvm_tiling.decide.gemm.partition import decide_partition
from tvm_tiling.decide.gemm.traffic import product_on
from tvm_tiling.hardware.machine import Machine
from tvm_tiling.operand_types import PLAIN, WEIGHT_FORMATS, Encoding, OperandTypes, WeightFormat
from tvm_tiling.sizes import Range
from tvm_tiling.tuning.shapes.key import key_of, workload_from_dict

INT8_FOLD = dataclasses.replace(tt.Hardware.load("wfold16"), w_fold=tt.WFold(dtypes=["int8", "uint8"]))
CONV = {"n": 1, "h": 8, "w": 8, "ci": 16, "co": 16, "kh": 3, "kw": 3}


def test_page_01s_engine_refuses_other_types():
    vta = tt.Hardware.load("vta")
    assert tt.decide(tt.GemmWorkload(m=64, n=64, k=64, dtype="int8"), vta).utilisation > 0
    with pytest.raises(tt.HardwareError, match="vta does not support operands of float32; expected int8"):
        tt.decide(tt.GemmWorkload(m=64, n=64, k=64, dtype="float32"), vta)
    with pytest.raises(tt.HardwareError, match="operands of float16; expected int8"):
        tt.decide(tt.ConvWorkload(**CONV, dtype="float16"), vta)


def test_page_05s_engine_refuses_other_types():
    assert tt.decide(tt.ConvWorkload(**CONV, dtype="uint8"), INT8_FOLD).form == "wfold"
    with pytest.raises(tt.HardwareError, match="wfold16 does not support operands of float32; expected int8, uint8"):
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
        decide_partition(tt.GemmWorkload(m=64, n=64, k=64, dtype=dtype), array).utilisation
        for dtype in ("bfloat16", "int8")
    )
    # By the formulas: twice the bytes and twice the cycles of the multipliers, so what waits for transfers keeps its
    # share.
    assert slow == pytest.approx(fast)


SIZES = {"m": 64, "n": 256, "k": 512}
ZEN4 = tt.Hardware.load("zen4-server-8c")


def test_types_of_a_workload_are_those_of_its_operand_where_nothing_else_is_said():
    w = tt.GemmWorkload(**SIZES, dtype="float16")
    assert w.types == OperandTypes("float16", "float16", "float32", "float32") and w.encoding == PLAIN
    assert w == tt.GemmWorkload(**SIZES, dtype="float16", b_dtype="float16", out_dtype="float32", encoding="plain")
    assert set(w.to_dict()) == set(tt.GemmWorkload(**SIZES).to_dict()) and "b_dtype" not in w.to_dict()
    mixed = tt.ConvWorkload(**CONV, dtype="uint8", b_dtype="int8", out_dtype="uint8")
    assert mixed.types == OperandTypes("uint8", "int8", "int32", "uint8")
    assert workload_from_dict(mixed.to_dict()) == mixed
    assert tt.GemmWorkload(**SIZES, dtype="float32", b_dtype="float64").types.acc == "float64"
    assert tt.RnnWorkload(steps=1, input_size=1, hidden_size=1, dtype="int16").types.out == "int16"


def test_every_operand_has_its_own_bytes():
    w = tt.GemmWorkload(**SIZES, dtype="float32", b_dtype="bfloat16", out_dtype="float16")
    assert (w.a_bytes, w.b_bytes, w.acc_bytes, w.out_bytes) == (4, 2, 4, 2)
    assert w.bytes == 64 * 512 * 4 + 512 * 256 * 2 + 64 * 256 * 2
    four = tt.GemmWorkload(**SIZES, encoding=Encoding(format="int4", block=32, scales="float16", zero_points=True))
    assert four.b_bytes == 0.5 + (2 + 0.5) / 32
    turned = w.exchanged()
    assert (turned.types.a, turned.types.b, turned.types.out) == ("bfloat16", "float32", "float16")
    assert turned.exchanged().types == w.types


@pytest.mark.parametrize("text", ["plain", "prepacked", "int8:64:float32", "int4:32:float16:zero_points"])
def test_an_encoding_is_a_text(text):
    assert str(Encoding.parse(text)) == text
    w = tt.GemmWorkload(**SIZES, encoding=text)
    assert workload_from_dict(w.to_dict()) == w


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"b_dtype": "int8"}, "b_dtype = 'int8' with dtype = 'float32'; expected integers or floats for both"),
        ({"b_dtype": "int3"}, "unknown element type 'int3'"),
        ({"out_dtype": "int3"}, "unknown element type 'int3'"),
        ({"acc_dtype": "int32"}, "acc_dtype = 'int32' cannot accumulate products of float32; expected float32"),
        ({"encoding": "int3"}, "encoding: unknown format 'int3'; did you mean 'int8'?"),
        ({"encoding": "int4:x"}, "encoding: 'int4:x'; expected as in"),
        ({"encoding": "int4:32:int8"}, "encoding: scales of int8; expected a floating-point type"),
        ({"encoding": "plain:32"}, "encoding: format 'plain' has no blocks"),
        ({"encoding": 4}, "encoding = 4; expected an Encoding or its text"),
    ],
)
def test_types_that_do_not_go_together_are_refused(given, message):
    with pytest.raises(tt.WorkloadError, match=message):
        tt.GemmWorkload(**SIZES, **given)


def test_what_no_kernel_reads_is_refused_in_one_sentence():
    mixed = tt.GemmWorkload(**SIZES, dtype="float32", b_dtype="bfloat16")
    with pytest.raises(tt.UnsupportedOperator, match="operands of float32 by bfloat16 on a CPU; expected"):
        tt.decide(mixed, ZEN4)
    with pytest.raises(tt.UnsupportedOperator, match="hardware 'neartile': operands of float32 by bfloat16; expected"):
        tt.decide(mixed, "neartile")
    with pytest.raises(tt.HardwareError, match="hardware 'neartile': out_dtype = 'float16'; expected float32"):
        tt.decide(tt.GemmWorkload(**SIZES, out_dtype="float16"), "neartile")
    for coded in (
        tt.ConvWorkload(**CONV, encoding="int4"),
        tt.ConvWorkload(**{**CONV, "kh": 1, "kw": 1}, layout="NCHW", encoding="int4"),
    ):
        with pytest.raises(
            tt.UnsupportedOperator, match="encoding = 'int4:32:float32': no kernel reads B in this format"
        ):
            tt.decide(coded, ZEN4)
        with pytest.raises(tt.TilingError, match="encoding = 'int4:32:float32'"):
            tt.decide(coded, "neartile")
    with pytest.raises(tt.UnsupportedOperator, match="encoding = 'int4:24:float32': no kernel reads B in this format"):
        tt.decide(tt.GemmWorkload(**SIZES, encoding="int4:24"), ZEN4)
    with pytest.raises(tt.UnsupportedOperator, match="block-quantised weights with float16 activations, batch 1 and"):
        tt.decide(tt.GemmWorkload(**SIZES, dtype="float16", encoding="int4"), ZEN4)
    with pytest.raises(tt.HardwareError, match="algorithm and microkernel do not apply to block-quantised weights"):
        tt.decide(tt.GemmWorkload(**SIZES, encoding="int4"), ZEN4, algorithm="stream")


def test_prepacked_weights_are_said_by_the_workload_or_by_the_caller():
    plain, packed = tt.GemmWorkload(**SIZES), tt.GemmWorkload(**SIZES, encoding="prepacked")
    assert tt.decide(packed, ZEN4) == tt.decide(plain, ZEN4, weights="packed") != tt.decide(plain, ZEN4)
    column = {"m": 64, "n": 1, "k": 512}
    assert tt.decide(tt.GemmWorkload(**column, encoding="prepacked"), ZEN4) == tt.decide(
        tt.GemmWorkload(**column), ZEN4, weights="packed"
    )
    assert key_of(packed) == key_of(plain, prepacked=True) != key_of(plain)
    with pytest.raises(tt.HardwareError, match="encoding = 'prepacked'; expected 'plain'"):
        tt.decide(packed, "neartile")


def test_keys_of_types_that_were_there_before_are_as_they_were():
    assert key_of(tt.GemmWorkload(**SIZES)).digest == "2fdaa572a1f3ac2f6221928a453717d8"
    assert key_of(tt.ConvWorkload(**CONV, dtype="int8")).digest == "731420bf77b12b801c22d8f70a570ff9"
    keys = [key_of(tt.GemmWorkload(**SIZES, **given)) for given in ({}, {"b_dtype": "bfloat16"}, {"encoding": "int4"})]
    assert len(set(keys)) == 3
    for key in keys:
        assert key.from_dict(key.to_dict()) == key and key_of(key.workload((256, 512, 64, 1))) == key


def test_page_01s_left_operand_of_a_convolution_are_the_kernels():
    any_type = dataclasses.replace(ZEN4, cpu=None, near_tile=tt.Hardware.load("neartile").near_tile)
    p = product_on(tt.ConvWorkload(**CONV), any_type)
    assert (p.bytes_a, p.bytes_b) == (16 * 16 * 9 * 4, 8 * 8 * 16 * 4)


def test_a_toy_weight_format_is_priced_by_its_row(monkeypatch):
    """A format is a table row: bytes of B, cost of decoding, and whether a kernel supports it."""
    one = tt.GemmWorkload(m=1, n=8192, k=8192)

    def seconds(encoding: str) -> float:
        return tt.decide(dataclasses.replace(one, encoding=encoding), ZEN4).predicted_seconds

    with pytest.raises(tt.WorkloadError, match="unknown format 'toy2'"):
        Encoding(format="toy2")
    monkeypatch.setitem(WEIGHT_FORMATS, "toy2", WeightFormat(bits=2, decode=3.0, emitted=True))
    assert dataclasses.replace(one, encoding="toy2:64:float16").b_bytes == (2 + 16 / 64) / 8
    assert seconds("toy2:64:float16") < seconds("int4") < seconds("int8") < tt.decide(one, ZEN4).predicted_seconds
    monkeypatch.setitem(WEIGHT_FORMATS, "toy2", WeightFormat(bits=2, decode=500.0, emitted=True))
    assert seconds("toy2:64:float16") > seconds("int8")
    monkeypatch.setitem(WEIGHT_FORMATS, "toy2", WeightFormat(bits=2, decode=3.0))
    with pytest.raises(tt.UnsupportedOperator, match="encoding = 'toy2:64:float16': no kernel reads B"):
        seconds("toy2:64:float16")


@pytest.mark.parametrize("rows", [1, 4, 64])
@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_weights_in_blocks_are_decided(dtype, rows):
    out = {"out_dtype": "float32"} if dtype == "int8" else {}
    w = tt.GemmWorkload(m=rows, n=2048, k=2048, dtype=dtype, encoding="int4:32", **out)
    tiling = tt.decide(w, ZEN4)
    assert tiling.form == ("dot" if dtype == "int8" else "floats")
    assert tiling.mr <= rows
    assert 2 * tiling.mr * tiling.nr // tiling.lanes < ZEN4.cpu.vector_registers
    assert "MB of weights and scales are read once" in tiling.explain()


@pytest.mark.parametrize("first, last, tallest", [(1, None, 8), (1, 2, 2), (1, 1, 1), (300, 512, 8)])
def test_one_configuration_of_open_rows_serves_few_and_many(first, last, tallest):
    """The sampled size does not matter. A tile of one row would read and decode the weights again for every row."""
    for sample in (1, 512):
        w = tt.GemmWorkload(m=sample, n=2048, k=2048, encoding="int4:32")
        tiling = decide_blocked(w, ZEN4.cpu, Range(first, last))
        assert tiling.mr == tallest
        assert tiling.threads_m == 1 or first > 1


@pytest.mark.parametrize(
    "written",
    [
        "GemmWorkload(m=4, n=5, k=6)",
        "GemmWorkload(m=4, n=5, k=32, dtype='int8', trans_b=True, lda=40)",
        "GemmWorkload(m=4, n=5, k=32, dtype='float16', acc_dtype='float16', out_dtype='float32')",
        "ConvWorkload(n=1, h=5, w=5, ci=3, co=4, kh=3, kw=3, padding=(1, 1, 1, 1))",
    ],
)
def test_a_workload_is_printed_as_it_is_written(written):
    assert repr(eval(written, vars(tt))) == written
