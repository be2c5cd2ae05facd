"""W-fold on a CPU: the band's geometry against a scalar definition, admissible cases, and when it pays off."""

from __future__ import annotations

import time

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tvm_tiling import ConvWorkload, Hardware, UnsupportedOperator
from tvm_tiling.decide.conv.conv_tiling import ConvTiling
from tvm_tiling.decide.conv.cpu_conv import decide_conv_on_cpu
from tvm_tiling.decide.fold.cpu_wfold import decide_wfold_cpu
from tvm_tiling.decide.fold.folded_rows import FoldedRows
from tvm_tiling.errors import WorkloadError
from tvm_tiling.hardware.description import Cache, Cpu

CPU = Cpu(
    arch="x86_64",
    features=("avx2", "fma", "avx512f", "avx512bw", "avx512vl", "avx512vnni"),
    vector_bits=512,
    vector_registers=32,
    fma_units=1,
    fma_latency=4,
    cores=2,
    threads=2,
    clock_mhz=3000,
    caches=(
        Cache(level=1, size=32 << 10, ways=8, line=64),
        Cache(level=2, size=1 << 20, ways=8, line=64),
        Cache(level=3, size=32 << 20, ways=16, line=64, cores=8),
    ),
)
RESNET = ConvWorkload(n=1, h=224, w=224, ci=3, co=64, kh=7, kw=7, stride=(2, 2), padding=(3, 3, 3, 3))
MOBILENET = ConvWorkload(n=1, h=224, w=224, ci=3, co=32, kh=3, kw=3, stride=(2, 2), padding=(1, 1, 1, 1))


def decide(workload: ConvWorkload) -> ConvTiling:
    return decide_wfold_cpu(workload, CPU, input_run=workload.ci, output_run=workload.co, prepacked=True)


@st.composite
def workloads(draw) -> ConvWorkload:
    try:
        return ConvWorkload(
            n=1,
            h=draw(st.integers(1, 6)),
            w=draw(st.integers(1, 20)),
            ci=draw(st.integers(1, 20)),
            co=draw(st.integers(1, 9)),
            kh=draw(st.integers(1, 3)),
            kw=draw(st.integers(1, 7)),
            stride=(1, draw(st.integers(1, 4))),
            padding=(0, draw(st.integers(0, 7)), 0, draw(st.integers(0, 7))),
            dilation=(1, draw(st.integers(1, 3))),
        )
    except WorkloadError:
        assume(False)
        raise


@given(workload=workloads(), group=st.sampled_from([1, 2, 4]), ws=st.sampled_from([1, 2, 4, 8, 16]))
@settings(max_examples=300, deadline=None)
def test_band_holds_what_is_read(workload, group, ws):
    try:
        rows = FoldedRows.of(workload, group, 16, ws)
    except UnsupportedOperator as error:
        assert f"ws = {ws}" in str(error)
        return
    left = workload.padding[1]
    filled = [
        (x + i, c) for x, count, start, end in rows.filled(workload.w) for i in range(count) for c in range(start, end)
    ]
    places = [divmod(x + left, rows.fold) for x in range(workload.w)]
    wanted = {(x, part * workload.ci + c) for x, part in places for c in range(workload.ci) if x < rows.columns}
    assert len(filled) == len(set(filled)) and set(filled) == wanted
    # Every output point's kernel positions are in the band, at a distance of whole folded columns from the point's own.
    for point in range(workload.wo):
        for tap in range(workload.kw):
            position = point * workload.stride[1] + tap * workload.dilation[1]
            folded, part = divmod(position, rows.fold)
            own = folded - point
            assert 0 <= folded < rows.columns and own % rows.w.dilation == 0
            assert 0 <= own // rows.w.dilation < rows.w.taps and part < rows.fold
    assert rows.pci * ws == 16 * group and rows.bci * rows.pci >= rows.channels > (rows.bci - 1) * rows.pci


def test_sizes_of_a_stem():
    rows = FoldedRows.of(RESNET, group=4, lanes=16, ws=8)
    # 3 channels and 2 columns are 6 of the 8 bytes of a block; 7 kernel columns are 4; 112 points are 14 rows of 8.
    assert (rows.channels, rows.pci, rows.bci, rows.w.taps, rows.steps) == (6, 8, 1, 4, 28)
    tiling = decide(RESNET)
    assert tiling.form == "wfold" and tiling.stride_fold == 2
    assert tiling.pci * tiling.ws == 64
    assert {reason.field for reason in tiling.reasons} >= {"form", "stride_fold", "pci", "ws", "bci", "columns"}


@pytest.mark.parametrize(
    ("ci", "co", "kernel", "dtype"),
    [(32, 3, 9, "float32"), (32, 3, 9, "int8"), (64, 1, 3, "float32"), (3, 1, 3, "float32"), (16, 4, 3, "int8")],
)
def test_pays_for_few_output_channels(ci, co, kernel, dtype):
    border = (kernel // 2,) * 4
    layer = ConvWorkload(n=1, h=112, w=112, ci=ci, co=co, kh=kernel, kw=kernel, padding=border, dtype=dtype)
    hardware = Hardware(name="test", cpu=CPU)
    taken = decide_conv_on_cpu(layer, hardware, packing="ahead", winograd=False)
    direct = decide_conv_on_cpu(layer, hardware, packing="ahead", form="direct")
    assert taken.form == "wfold" and taken.predicted_seconds < direct.predicted_seconds / 1.3


@pytest.mark.parametrize("dtype", ["float32", "int8"])
@pytest.mark.parametrize("layer", [RESNET, MOBILENET], ids=["resnet", "mobilenet"])
def test_does_not_pay_where_channels_fill_vectors(layer, dtype):
    layer = ConvWorkload(
        **{k: v for k, v in {**layer.to_dict(), "dtype": dtype, "acc_dtype": None}.items() if k != "op"}
    )
    taken = decide_conv_on_cpu(layer, Hardware(name="test", cpu=CPU), packing="ahead")
    assert taken.form == "direct"
    assert {c.form for c in taken.candidates if c.predicted_seconds is not None} >= {"direct", "stride_fold", "wfold"}


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        (dict(ci=4, co=4, groups=2), "2 groups"),
        (dict(transposed=True, stride=(2, 2)), "a transposed one"),
        (dict(d=3, kd=2), "depth 3 with 2 taps"),
    ],
)
def test_refusals(fields, reason):
    plain = dict(n=1, h=8, w=8, ci=3, co=4, kh=3, kw=3)
    with pytest.raises(UnsupportedOperator, match=reason):
        decide(ConvWorkload(**{**plain, **fields}))


def test_no_more_neighbours_than_the_row_has():
    narrow = ConvWorkload(n=1, h=8, w=3, ci=1, co=2, kh=1, kw=1)
    assert decide(narrow).ws <= 2
    with pytest.raises(UnsupportedOperator, match="ws = 4 columns: a row has 3"):
        FoldedRows.of(narrow, 1, 16, 4)


def test_tiles_fit_the_registers():
    for workload in (RESNET, MOBILENET):
        tiling = decide(workload)
        vectors = tiling.tile_columns // tiling.ws
        assert vectors * tiling.columns + vectors + tiling.columns <= CPU.vector_registers


def test_is_decided_in_milliseconds():
    decide(RESNET)
    times = []
    for _ in range(5):
        start = time.perf_counter()
        decide(RESNET)
        times.append(time.perf_counter() - start)
    assert min(times) < 0.03
