"""Errors of users about a matrix multiplication: one sentence each, with the fault, its place and what is expected."""

from __future__ import annotations

import pytest

from tvm_tiling.decide.decide import decide
from tvm_tiling.decide.gemm.partition import decide_partition
from tvm_tiling.errors import HardwareError, TilingError, WorkloadError
from tvm_tiling.hardware.description import Cache, Cpu, Hardware, NearTile
from tvm_tiling.workload import ConvWorkload, GemmWorkload

UNIT = {"buf_a": 4096, "buf_b": 4096, "acc_max": 4096, "bw_a": 8, "bw_b": 8, "macs_per_cycle": 64}
CONV = {"n": 1, "h": 8, "w": 8, "ci": 4, "co": 4, "kh": 3, "kw": 3}


def message(error, make) -> str:
    with pytest.raises(error) as caught:
        make()
    assert isinstance(caught.value, TilingError)
    text = str(caught.value)
    assert "\n" not in text and len(text) < 300
    return text


@pytest.mark.parametrize("field", ["m", "n", "k", "batch"])
@pytest.mark.parametrize("value", [0, -1, 2.5, True, "64", None])
def test_a_size_that_is_none(field, value):
    sizes = {"m": 8, "n": 8, "k": 8, field: value}
    text = message(WorkloadError, lambda: GemmWorkload(**sizes))
    assert text == f"gemm: {field} = {value!r}; expected a whole number of at least 1"


@pytest.mark.parametrize(("field", "rest"), [("dtype", {}), ("acc_dtype", {"dtype": "float32"})])
def test_an_unknown_element_type_names_the_nearest(field, rest):
    text = message(WorkloadError, lambda: GemmWorkload(m=8, n=8, k=8, **{**rest, field: "flot32"}))
    assert "'flot32'" in text and "did you mean 'float32'?" in text and "expected " in text


def test_sums_of_another_kind():
    text = message(WorkloadError, lambda: GemmWorkload(m=8, n=8, k=8, dtype="int8", acc_dtype="float32"))
    assert "acc_dtype = 'float32'" in text and "expected int32" in text


@pytest.mark.parametrize(
    ("transposed", "field", "row"),
    [({}, "lda", 16), ({}, "ldb", 32), ({}, "ldc", 32), ({"trans_a": True}, "lda", 8), ({"trans_b": True}, "ldb", 16)],
)
def test_a_leading_dimension_shorter_than_a_row(transposed, field, row):
    text = message(WorkloadError, lambda: GemmWorkload(m=8, n=32, k=16, **transposed, **{field: row - 1}))
    assert text == f"gemm: {field} = {row - 1}; expected at least {row}, the length of a row"
    assert getattr(GemmWorkload(m=8, n=32, k=16, **transposed, **{field: row}), field) == row


def test_a_leading_dimension_that_is_none():
    assert "lda = 0" in message(WorkloadError, lambda: GemmWorkload(m=8, n=8, k=8, lda=0))


@pytest.mark.parametrize("hardware", [5, 2.5, ["vta"], {"name": "vta"}])
def test_hardware_that_is_neither_a_name_nor_a_description(hardware):
    text = message(HardwareError, lambda: decide(GemmWorkload(m=8, n=8, k=8), hardware))
    assert text.startswith("hardware is not a name or a path: ") and "expected a preset, a TOML file" in text


def test_hardware_is_a_description_a_name_or_this_cpu():
    product = GemmWorkload(m=64, n=64, k=64, dtype="int8")
    assert decide(product, "vta") == decide(product, Hardware.load("vta"))
    assert decide(product) == decide(product, None) == decide(product, Hardware.detect())


@pytest.mark.parametrize("padding", [1, (1,), [1], (1, 1, 1, 1)])
def test_one_number_pads_all_sides(padding):
    assert ConvWorkload(**CONV, padding=padding).padding == (1, 1, 1, 1)


def test_an_unknown_memory():
    text = message(WorkloadError, lambda: GemmWorkload(m=8, n=8, k=8, memory_a="cache"))
    assert "memory_a = 'cache'" in text and "external, internal" in text


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"co": 0}, "co = 0"),
        ({"stride": (0, 1)}, "stride = (0, 1)"),
        ({"padding": (1, 1)}, "padding = (1, 1)"),
        ({"groups": 3}, "groups = 3; expected a divisor"),
        ({"kh": 9}, "larger than the padded"),
        ({"output_padding": (1, 0)}, "output_padding = (1, 0); expected 0, or transposed=True"),
        ({"output_padding_d": 1}, "output_padding_d = 1; expected 0, or transposed=True"),
        ({"output_padding_d": -1}, "output_padding_d = -1; expected a whole number of at least 0"),
        (
            {"transposed": True, "stride": (2, 2), "output_padding": (1, 2)},
            "output_padding = (1, 2); expected less than stride = (2, 2)",
        ),
        (
            {"transposed": True, "stride_d": 2, "output_padding_d": 2},
            "output_padding_d = 2; expected less than stride_d = 2",
        ),
        ({"dtype": "float8"}, "'float8'"),
    ],
)
def test_a_convolution_that_is_none(change, part):
    assert part in message(WorkloadError, lambda: ConvWorkload(**{**CONV, **change}))


# --- nothing fits ---


@pytest.mark.parametrize(
    ("change", "buffer", "size"),
    [
        ({"buf_a": 255, "block_m": 64}, "buf_a", 64 * 4),
        ({"buf_b": 127, "block_n": 32}, "buf_b", 32 * 4),
        ({"buf_a": 256, "block_m": 64, "block_n": 64, "acc_max": 64 * 64 * 4 - 1}, "acc_max", 64 * 64 * 4),
    ],
)
def test_no_config_fits_says_which_buffer_and_what_would_do(change, buffer, size):
    w = GemmWorkload(m=1000, n=1000, k=1000)
    machine = Hardware.neartile(**{**UNIT, **change})
    text = message(HardwareError, lambda: decide_partition(w, machine))
    assert text.startswith("gemm of m = 1000, n = 1000, k = 1000 in float32 on hardware 'neartile': nothing fits")
    assert f"near_tile.{buffer} = {change[buffer]} bytes; expected at least {size}" in text
    enough = Hardware.neartile(**{**UNIT, **change, buffer: size})
    assert decide_partition(w, enough).feasible  # what the sentence expects is accepted


def test_no_config_of_a_convolution_fits():
    conv = ConvWorkload(**CONV)
    text = message(HardwareError, lambda: decide_partition(conv, Hardware.neartile(**{**UNIT, "buf_b": 35})))
    assert text.startswith("conv of m = 4, n = 36, k = 36") and "buf_b = 35 bytes; expected at least 36" in text
    assert decide_partition(conv, Hardware.neartile(**{**UNIT, "buf_b": 36})).feasible


def test_seed_mode_reports_instead_of_refusing():
    machine = Hardware.neartile(**{**UNIT, "buf_a": 255, "block_m": 64})
    assert not decide_partition(GemmWorkload(m=1000, n=1000, k=1000), machine, mode="seed").feasible


# --- the wrong machine, the wrong option ---


def test_a_memory_without_bandwidth():
    unit = NearTile(buf_a=64, buf_b=64, acc_max=0, macs_per_cycle=1, bandwidth={"external": 8})
    w = GemmWorkload(m=8, n=8, k=8, memory_b="internal")
    text = message(HardwareError, lambda: decide_partition(w, Hardware(name="one memory", near_tile=unit)))
    assert "operand B is in memory 'internal'" in text and "expected near_tile.bw_b" in text and "external" in text


def test_a_machine_without_the_unit():
    cpu = Cpu(
        arch="x86_64",
        features=(),
        vector_bits=256,
        vector_registers=16,
        fma_units=2,
        fma_latency=4,
        cores=1,
        threads=1,
        caches=(Cache(level=1, size=32768, ways=8, line=64),),
    )
    text = message(HardwareError, lambda: decide_partition(GemmWorkload(m=8, n=8, k=8), Hardware(name="x", cpu=cpu)))
    assert text == "hardware 'x': has no near_tile unit, which matrix multiplications need"


@pytest.mark.parametrize(
    ("option", "value", "accepted"),
    [
        ("mode", "fast", "'best', 'seed'"),
        ("prefer", "bytes", "'utilisation', 'traffic'"),
        ("acc_factor", 1.0, "above 0 and below 1"),
        ("acc_factor", 0, "above 0 and below 1"),
        ("outer_preset", "row", "'mn' or 1"),
        ("inner_preset", 2, "'nm' or 0"),
    ],
)
def test_an_option_that_is_none(option, value, accepted):
    w, machine = GemmWorkload(m=8, n=8, k=8), Hardware.neartile(**UNIT)
    text = message(TilingError, lambda: decide_partition(w, machine, **{option: value}))
    assert text.startswith(f"decide: {option} = {value!r}; expected ") and accepted in text


@pytest.mark.parametrize(
    ("name", "value"),
    [("mode", "seed"), ("prefer", "traffic"), ("acc_factor", 0.25), ("outer_preset", "mn"), ("inner_preset", 0)],
)
def test_a_cpu_refuses_what_only_buffers_take(name, value):
    with pytest.raises(HardwareError, match=f"{name} = .* does not apply to a gemm on") as caught:
        decide(GemmWorkload(m=8, n=8, k=8), Hardware.load("icelake-server-2c"), **{name: value})
    assert len(str(caught.value).splitlines()) == 1
