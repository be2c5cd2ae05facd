"""Dot instructions are rows of a table: those of this CPU against NumPy, and toys added as documented."""

from __future__ import annotations

import re
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm.script import from_source

import tvm_tiling as tt
from tvm_tiling.accel.plain_operator import plain_operator
from tvm_tiling.decide.gemm.dot_engine import INTERLEAVED_ROWS, dot_engine
from tvm_tiling.decide.options import Options
from tvm_tiling.hardware.dot_instructions import DOT_INSTRUCTIONS, DotInstruction, Form, fastest
from tvm_tiling.peak import instruction_module
from tvm_tiling.schedule import packed_operator, schedule_operator
from tvm_tiling.tuning.measuring.operands import Operands
from tvm_tiling.workload import ConvWorkload, GemmWorkload

HOST = tt.Hardware.detect()
TOY = {bits: Form(needs=(("toydot",),)) for bits in (128, 256, 512)}
"""With a feature that no CPU has, in plain arithmetic that every CPU computes."""
TOYS = [
    DotInstruction(name="toy.int8", a="int8", b="int8", acc="int32", group=4, forms=TOY, rate=8.0),
    DotInstruction(name="toy.pairs", a="int16", b="int16", acc="int32", group=2, forms=TOY, rate=8.0, takes=("int8",)),
    DotInstruction(name="toy.float16", a="float16", b="float16", acc="float32", group=2, forms=TOY, rate=8.0),
]
PRODUCTS = [(37, 50, 61, False), (24, 64, 64, True), (8, 16, 1, False)]
CONV = {"n": 1, "h": 9, "w": 11, "ci": 6, "co": 20, "kh": 3, "kw": 3, "padding": (1, 1, 1, 1)}
DEPTHWISE = {**CONV, "ci": 24, "co": 24, "groups": 24}


@pytest.fixture
def with_toy(monkeypatch):
    """The machine with a toy instruction, whose row is in the table during the test."""

    def machine(toy: DotInstruction) -> tt.Hardware:
        monkeypatch.setattr("tvm_tiling.hardware.dot_instructions.DOT_INSTRUCTIONS", [*DOT_INSTRUCTIONS, toy])
        return replace(HOST, cpu=replace(HOST.cpu, features=(*HOST.cpu.features, "toydot")))

    return machine


def check(workload, hardware=HOST, *, prepacked=False):
    """Run the operator's kernel on random operands and compare with float64, which is exact for integers."""
    func, operands = plain_operator(workload), _operands(workload)
    left, right = (tvm.runtime.tensor(array) for array in operands.arrays)
    out = tvm.runtime.tensor(np.zeros(operands.result_shape, workload.acc_dtype))
    if prepacked:
        packed = packed_operator(func, target=hardware)
        packed(left, packed.pack(right), out)
    else:
        scheduled = tt.tiling_schedule(func, target=hardware)
        tvm.compile(scheduled.mod, target=tt.llvm_target())["main"](left, right, out)
    error = np.abs(out.numpy() - operands.expected).max()
    assert error <= (0 if "int" in workload.dtype else 4e-6 * np.abs(operands.expected).max())


def _operands(workload):
    if workload.dtype != "bfloat16":
        return Operands.random(workload)
    found = Operands.random(replace(workload, dtype="float32"))
    rounded = (array.astype(ml_dtypes.bfloat16) for array in found.arrays)
    return Operands(workload, *rounded)


def product(shape, dtype):
    m, n, k, trans_b = shape
    return GemmWorkload(m=m, n=n, k=k, trans_b=trans_b, dtype=dtype)


@pytest.mark.values
@pytest.mark.parametrize("toy", TOYS, ids=lambda toy: toy.name)
@pytest.mark.parametrize("shape", PRODUCTS)
def test_a_toy_instruction_multiplies_matrices(with_toy, toy, shape):
    hardware, workload = with_toy(toy), product(shape, toy.takes[0] if toy.takes else toy.a)
    assert dot_engine(workload, hardware.cpu) is toy and toy.name in tt.decide(workload, hardware).explain()
    assert tt.decide(workload, hardware) != tt.decide(workload, HOST)
    check(workload, hardware)


@pytest.mark.parametrize("toy", TOYS, ids=lambda toy: toy.name)
def test_a_toy_instruction_takes_prepacked_weights_and_convolutions(with_toy, toy):
    hardware, dtype = with_toy(toy), toy.takes[0] if toy.takes else toy.a
    check(product((19, 40, 30, False), dtype), hardware, prepacked=True)
    for layout in ("NHWC", "NCHW"):
        check(ConvWorkload(**CONV, dtype=dtype, layout=layout), hardware)
    check(ConvWorkload(**DEPTHWISE, dtype=dtype), hardware)


def test_a_toy_is_not_taken_without_its_feature_or_before_kernels_emit_it(with_toy):
    (toy, *_), workload = TOYS, product(PRODUCTS[0], "int8")
    with_toy(toy)
    assert dot_engine(workload, HOST.cpu) is not toy
    later = with_toy(replace(toy, emitted=False))
    assert dot_engine(workload, later.cpu) == dot_engine(workload, HOST.cpu)
    assert fastest(later.cpu, "int8", "int8", "int32", emitted=False).name == toy.name


@pytest.mark.parametrize(("left", "right"), [("uint8", "int8"), ("int8", "uint8")])
def test_unsigned_by_signed_bytes_are_decided_as_they_are_scheduled(left, right):
    types = {"dtype": left, "b_dtype": right}
    for workload in (GemmWorkload(m=37, n=50, k=61, **types), ConvWorkload(**CONV, **types)):
        scheduled = schedule_operator(plain_operator(workload), "main", HOST, Options())
        assert scheduled.tiling == tt.decide(workload, HOST)
        check(workload)
    supported = {
        name: dot_engine(workload, tt.Hardware.load(name).cpu) for name in ("zen4-server-8c", "neoverse-v1-16c")
    }
    names = {"zen4-server-8c": "vpdpbusd", "neoverse-v1-16c": "usmmla"} if left == "uint8" else {}
    assert all(supported[machine].name == name and not supported[machine].offset for machine, name in names.items())


@pytest.mark.values
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("shape", [(1, 64, 96, False), (5, 77, 50, False), (4, 50, 64, True), (4, 67, 33, True)])
def test_weights_that_few_rows_use_stay_in_16_bits(monkeypatch, dtype, shape):
    """Packed for multiply-adds: float16, and bfloat16 where no dot instruction multiplies it. This pays off for such
    small weights only on a machine with slow memory."""
    rows = [row for row in DOT_INSTRUCTIONS if row.a != "bfloat16"]
    monkeypatch.setattr("tvm_tiling.hardware.dot_instructions.DOT_INSTRUCTIONS", rows)
    slow = {f"{level}_bytes_per_cycle": 1.0 for level in ("l2", "l3", "memory")}
    hardware = replace(HOST, cpu=replace(HOST.cpu, **slow))
    workload = product(shape, dtype)
    engine = dot_engine(workload, hardware.cpu, prepacked=True)
    assert (engine.stored, engine.panel) == (dtype, "int16" if dtype == "bfloat16" else dtype)
    scheduled = schedule_operator(plain_operator(workload), "main", hardware, Options(prepacked=True))
    assert scheduled.packed_dtype == engine.panel
    assert f"in {dtype}" in scheduled.tiling.why("pack_b")
    check(workload, hardware, prepacked=True)
    for other in (replace(workload, m=512), replace(workload, dtype="float32", acc_dtype=None)):
        assert not dot_engine(other, hardware.cpu, prepacked=True).stored


@pytest.mark.skipif(fastest(HOST.cpu, "bfloat16", "bfloat16", "float32").in_place, reason="no dot product of bfloat16")
@pytest.mark.parametrize("shape", [*PRODUCTS, (INTERLEAVED_ROWS - 1, 64, 64, True), (64, 33, 129, False)])
def test_products_of_bfloat16_are_summed_in_float32(shape):
    check(product(shape, "bfloat16"))
    check(product(shape, "bfloat16"), prepacked=True)


@pytest.mark.skipif(fastest(HOST.cpu, "bfloat16", "bfloat16", "float32").in_place, reason="no dot product of bfloat16")
@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize("size", [CONV, DEPTHWISE, {**CONV, "ci": 3}, {**CONV, "stride": (2, 2)}])
def test_convolutions_of_bfloat16_are_summed_in_float32(layout, size):
    check(ConvWorkload(**size, dtype="bfloat16", layout=layout))


@pytest.mark.filterwarnings("ignore:invalid value encountered")
@pytest.mark.parametrize("workload", [{**CONV, "ci": 3, "padding": (0, 0, 1, 1)}, {**CONV, "ci": 5, "stride": (2, 2)}])
@pytest.mark.parametrize("prepacked", [False, True])
def test_numbers_after_the_last_channels_are_not_multiplied(workload, prepacked):
    """Infinities and NaN reach the points whose windows contain them, and no others."""
    workload = ConvWorkload(**workload, dtype="bfloat16")
    operands = _operands(workload)
    x, weights = operands.arrays
    x[0, 4, 5, 0], x[0, 7, 2, 1], x[0, 2, 9, 0] = np.inf, np.nan, -np.inf
    expected = Operands(workload, x.astype(np.float64), weights.astype(np.float64)).expected
    image, kernels = (
        tvm.runtime.tensor(array.view(np.int16))._create_view(array.shape, "bfloat16") for array in (x, weights)
    )
    out = tvm.runtime.tensor(np.zeros(operands.result_shape, np.float32))
    func = plain_operator(workload)
    if prepacked:
        packed = packed_operator(func, algorithm="direct")
        packed(image, packed.pack(kernels), out)
    else:
        mod = tt.tiling_schedule(func, algorithm="direct").mod
        tvm.compile(mod, target=tt.llvm_target())["main"](image, kernels, out)
    finite = np.isfinite(expected)
    assert np.array_equal(finite, np.isfinite(out.numpy())) and not finite.all()
    np.testing.assert_allclose(out.numpy()[finite], expected[finite], rtol=1e-4, atol=1e-4)


@pytest.mark.skipif(fastest(HOST.cpu, "bfloat16", "bfloat16", "float32").in_place, reason="no dot product of bfloat16")
def test_a_kernel_that_links_a_function_is_saved_and_read_as_script(tmp_path):
    mod = tt.ApplyTiling("llvm")(
        tvm.IRModule({f"f{n}": plain_operator(product(PRODUCTS[n], "bfloat16")) for n in (0, 1)})
    )
    assert tvm_ffi.structural_equal(from_source(mod.script()), mod)
    tvm.compile(mod, target=tt.llvm_target()).export_library(str(tmp_path / "both.so"))
    module = tvm.runtime.load_module(str(tmp_path / "both.so"))
    for n in (0, 1):
        operands = _operands(product(PRODUCTS[n], "bfloat16"))
        out = tvm.runtime.tensor(np.zeros(operands.result_shape, "float32"))
        module[f"f{n}"](*(tvm.runtime.tensor(array) for array in operands.arrays), out)
        np.testing.assert_allclose(out.numpy(), operands.expected, atol=1e-5)


@pytest.mark.values
@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize("channels", [3, 5, 6])
def test_what_lies_after_the_channels_of_a_tap_does_not_count(layout, channels):
    """Memory after an input, or that a kernel allocates, may contain NaN."""
    workload = ConvWorkload(**{**CONV, "ci": channels}, dtype="bfloat16", layout=layout)
    for _ in range(5):
        poison = [np.full(size, np.nan, np.float32) for size in (1 << 10, 1 << 12, 1 << 14, 1 << 16) for _ in range(40)]
        del poison
        check(workload)


# Each row's instruction in assembly; multiplying 32-bit words takes several on x86.
ASSEMBLY = {
    "aarch64": {"fma": "fmla", "imul": "mla"},
    "x86_64": {"fma": "vfmadd", "imul": "vpmulld"},
}
MACHINES = {"aarch64": ("neoverse-v1-16c", "neoverse-v1"), "x86_64": ("icelake-server-2c", "sapphirerapids")}


@pytest.mark.parametrize("arch", MACHINES)
def test_every_row_compiles_to_its_instruction(arch):
    preset, mcpu = MACHINES[arch]
    cpu = tt.Hardware.load(preset).cpu
    if arch == "x86_64":
        cpu = replace(cpu, features=(*cpu.features, "avx512bf16", "avx512fp16"))
    target = tvm.target.Target({"kind": "llvm", "mtriple": f"{arch}-linux-gnu", "mcpu": mcpu, "num-cores": 2})
    rows = [row for row in DOT_INSTRUCTIONS if row.form(cpu) is not None]
    assert {row.arch for row in rows} == {"", arch}
    for row in rows:
        # A constant pair of words is not multiplied again.
        least = 1 if not row.adds else 8
        module = tvm.compile(tvm.IRModule({"main": instruction_module(row, cpu.vector_bits, 8, 1)}), target=target)
        name = ASSEMBLY[arch].get(row.name.partition(".")[0], row.name)
        found = re.findall(rf"\t{name}|\tv{name}|\tvp{name.removeprefix('p')}", module.mod.inspect_source("asm"))
        assert len(found) >= least, row.name
