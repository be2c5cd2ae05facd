"""Configurations of convolutions on a CPU as data: every algorithm's, for its own shape and for others."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tvm_tiling.decide.configs.config import Config, config_of, rules_for, tiling_of
from tvm_tiling.decide.conv.cpu_conv import FORMS, Source, decide_conv_on_cpu
from tvm_tiling.decide.surroundings import Surroundings
from tvm_tiling.errors import DatabaseError, HardwareError, TilingError, UnsupportedOperator
from tvm_tiling.hardware.description import Hardware
from tvm_tiling.workload import ConvWorkload, WorkloadError

CPU = Hardware.load("icelake-server-2c")
SHAPE = {"form", "candidates", "reasons", "utilisation", "predicted_seconds", "product", "winograd"}


@st.composite
def convolutions(draw) -> ConvWorkload:
    kernel = draw(st.sampled_from((1, 1, 3, 3, 5, 7)))
    depthwise = draw(st.integers(0, 3)) == 0
    ci = draw(st.sampled_from((1, 3, 8, 17, 32, 64, 192)))
    try:
        return ConvWorkload(
            n=draw(st.sampled_from((1, 1, 2))),
            h=draw(st.integers(1, 40)),
            w=draw(st.integers(1, 60)),
            ci=ci,
            co=ci if depthwise else draw(st.sampled_from((1, 4, 16, 30, 64, 256))),
            kh=kernel,
            kw=kernel,
            stride=draw(st.sampled_from(((1, 1), (1, 1), (2, 2)))),
            padding=(kernel // 2,) * 4 if draw(st.booleans()) else (0, 0, 0, 0),
            dilation=draw(st.sampled_from(((1, 1), (1, 1), (2, 2)))),
            groups=ci if depthwise else 1,
            dtype=draw(st.sampled_from(("float32", "float32", "int8"))),
            layout=draw(st.sampled_from(("NHWC", "NHWC", "NCHW"))),
        )
    except WorkloadError:
        assume(False)
        raise


def forms_of(w: ConvWorkload, around: Surroundings):
    """Return the decision for every algorithm that applies to the workload."""
    for form in FORMS:
        try:
            yield decide_conv_on_cpu(w, CPU, form=form, packing=around.packing, source=around.source)
        except TilingError:
            continue


@given(convolutions(), st.booleans())
@settings(max_examples=60, deadline=None)
def test_every_algorithm_is_restored_from_its_config(w, prepacked):
    around = Surroundings(prepacked=prepacked)
    found = list(forms_of(w, around))
    assert found
    for tiling in found:
        config = config_of(tiling, w, CPU, around)
        assert Config.from_dict(config.to_dict()) == config
        assert "_" not in config.description.removeprefix(config.form)
        again = tiling_of(config, w, CPU, around)
        unlike = {name for name in vars(tiling) if getattr(again, name) != getattr(tiling, name)}
        assert unlike <= {"candidates", "reasons", "product"}, (tiling.form, unlike)
        assert again.predicted_seconds == pytest.approx(tiling.predicted_seconds)
        if tiling.product:
            assert replace(again.product, reasons=()) == replace(tiling.product, reasons=())


@given(convolutions(), st.data())
@settings(max_examples=60, deadline=None)
def test_a_config_serves_other_sizes_of_the_same_kernel(w, data):
    sizes = {
        "n": data.draw(st.sampled_from((1, 3))),
        "h": data.draw(st.integers(max(1, w.kh * w.dilation[0]), 60)),
        "w": data.draw(st.integers(max(1, w.kw * w.dilation[1]), 60)),
    }
    other = replace(w, **sizes)
    for tiling in forms_of(w, Surroundings()):
        config = config_of(tiling, w, CPU)
        try:
            here = tiling_of(config, other, CPU)
        except (HardwareError, UnsupportedOperator) as error:
            # A row shorter than ws, or more taps than are unrolled.
            assert tiling.form in ("wfold", "depthwise", "gemm", "planes") and "expected" in str(error)
            continue
        clipped = config_of(here, other, CPU)
        assert clipped.form == config.form
        assert config_of(tiling_of(clipped, other, CPU), other, CPU) == clipped


def test_a_config_keeps_its_blocks_for_more_rows_and_channels():
    w = ConvWorkload(n=1, h=28, w=28, ci=128, co=128, kh=3, kw=3, padding=(1, 1, 1, 1))
    large = replace(w, h=112, ci=256, co=512)
    config = config_of(decide_conv_on_cpu(w, CPU, form="direct"), w, CPU)
    kept = ("microkernel", "threads", "band", "columns", "inner_order", "copy_input")
    here = config_of(tiling_of(config, large, CPU), large, CPU)
    assert {name: here.choice(name) for name in kept} == {name: config.choice(name) for name in kept}


def test_a_config_made_for_channels_last_serves_computed_inputs():
    w = ConvWorkload(n=1, h=28, w=28, ci=64, co=64, kh=3, kw=3)
    config = config_of(decide_conv_on_cpu(w, CPU, form="direct"), w, CPU)
    assert not config.choice("copy_input")
    computed = Surroundings(source=Source(channel_run=1, output_run=64, pitch=None, dense=False, accumulates=False))
    tiling = tiling_of(config, w, CPU, computed)
    assert tiling.copy_input and (tiling.block_taps, tiling.block_run) == (9, 64)


def test_rules_are_those_of_the_admissible_algorithms():
    plain = ConvWorkload(n=1, h=28, w=28, ci=64, co=64, kh=3, kw=3)
    assert {rule.name for rule in rules_for(plain, CPU)} == {"direct", "winograd", "wfold"}
    pointwise = replace(plain, kh=1, kw=1)
    assert {rule.name for rule in rules_for(pointwise, CPU)} == {"direct", "gemm", "gemm_stream", "wfold"}
    depthwise = replace(plain, groups=64)
    assert {rule.name for rule in rules_for(depthwise, CPU)} == {"direct", "depthwise"}


PLAIN = ConvWorkload(n=1, h=28, w=28, ci=64, co=64, kh=3, kw=3)


@pytest.mark.parametrize(
    ("form", "choices", "kind", "words"),
    [
        ("direct", {"microkernel": (4, 7, 4)}, HardwareError, "4 x 7 x 4 needs 117 vector registers, this CPU has 32"),
        ("direct", {"threads": (2, 2)}, HardwareError, "need 4 cores, this CPU has 2"),
        ("direct", {"copy_input": 1}, DatabaseError, "copy_input = 1; expected True, False"),
        ("winograd", {"m": 8}, UnsupportedOperator, "m = 8 is not a Winograd tile size"),
        ("wfold", {"microkernel": (2, 3)}, DatabaseError, "3 output channels; expected 1, 2, 4, 8, 16"),
        ("wfold", {"ws": 5}, UnsupportedOperator, "ws = 5 columns do not suit"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(form, choices, kind, words):
    config = config_of(decide_conv_on_cpu(PLAIN, CPU, form=form), PLAIN, CPU)
    with pytest.raises(kind) as caught:
        tiling_of(Config.of("conv", form, {**dict(config.choices), **choices}), PLAIN, CPU)
    assert words in str(caught.value)


def test_forms_that_a_shape_does_not_admit_are_refused():
    config = Config.of("conv", "depthwise", {})
    with pytest.raises(UnsupportedOperator, match="requires one group per input channel"):
        tiling_of(config, PLAIN, CPU)
    with pytest.raises(DatabaseError, match="expected direct, stride_fold, gemm"):
        tiling_of(Config.of("conv", "matrix", {}), PLAIN, CPU)
    deep = replace(PLAIN, ci=1 << 20)
    tile = config_of(decide_conv_on_cpu(PLAIN, CPU, form="winograd"), PLAIN, CPU)
    with pytest.raises(UnsupportedOperator, match="not accurate enough"):
        tiling_of(tile, deep, CPU)
