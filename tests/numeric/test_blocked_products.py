"""GEMMs with block-quantised weights of 4 and 8 bits, their rows, and embedding tables in that form: kernels and plain
loops against NumPy in float64."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import tvm

import tvm_tiling as tt
from tvm_tiling.decide.gemm.block_rows import BlockRows
from tvm_tiling.decide.gemm.blocked import BlockedProduct, decide_blocked
from tvm_tiling.decide.gemm.table_rows import TableRows
from tvm_tiling.lowering.described import described_function
from tvm_tiling.lowering.weight_panels import Blocks, blocks_of_records, record_memory, records
from tvm_tiling.match.described import description_of
from tvm_tiling.operand_types import Encoding
from tvm_tiling.schedules.block_rows import schedule_block_rows
from tvm_tiling.schedules.blocked_gemm import schedule_blocked
from tvm_tiling.schedules.table_rows import schedule_table_rows

CPU = tt.Hardware.detect().cpu
ENCODINGS = ("int4:32", "int4:16:float16:zero_points", "int8:32", "int8:128:float32:zero_points")
SIZES = ((1, 100, 256), (3, 33, 128), (20, 70, 160))


def weights(product, rng):
    """Return (records, the float64 weights that they represent)."""
    e, shape = product.encoding, (product.n, product.blocks)
    values = rng.integers(0, 1 << product.bits, (*shape, e.block)).astype(np.uint8)
    zeros = rng.integers(0, 1 << product.bits, shape).astype(np.uint8) if e.zero_points else None
    scales = (0.1 + rng.random(shape)).astype(e.scales)
    centres = product.centre if zeros is None else zeros[..., None].astype(np.float64)
    real = (values.astype(np.float64) - centres) * scales[..., None].astype(np.float64)
    stored = record_memory(product)
    records(Blocks(values, scales, zeros), product, stored)
    return stored, real.reshape(product.n, -1)[:, : product.k]


def run(kernel, shapes, *given):
    results = [tvm.runtime.empty(shape, dtype) for shape, dtype in shapes.values()]
    kernel(*(tvm.runtime.tensor(value) for value in given), *results)
    return [result.numpy() for result in results]


def compiled(functions):
    return tvm.compile(tvm.IRModule(functions), target=tt.llvm_target())


def checked(product, library, packed, stored, real, rng):
    """Run the GEMM of `library` with the rows in its format, and compare."""
    rows, k, block = product.rows, product.k, product.encoding.block
    x = rng.standard_normal((rows, k), np.float32)
    taken, seen = [x], x.astype(np.float64)
    if product.activations == "int8":
        ready = product.ready("int8")
        padded = np.zeros((rows, product.blocks * block))
        padded[:, :k] = x
        blocks = padded.reshape(rows, product.blocks, block)
        quantised, scales, sums = taken = run(library["rows"], ready.outputs, x)
        np.testing.assert_allclose(scales, np.abs(blocks).max(-1) / 127, rtol=1e-6)
        seen = quantised.reshape(blocks.shape) * scales[..., None].astype(np.float64)
        assert np.abs(seen - blocks).max() <= scales.max() * 0.501
        np.testing.assert_array_equal(sums, quantised.reshape(blocks.shape).astype(np.int64).sum(-1))
        seen = seen.reshape(rows, -1)[:, :k]
    (y,) = run(library["product"], product.outputs, *taken, packed if packed is not None else stored)
    wanted = seen @ real.T
    # Rounded to 16 bits: each element by half a unit of its block's largest / 32512, whatever the signs.
    rounded = 0.0 if product.activations != "int16" else 0.5 * np.abs(seen).max() / (127 << 8) * np.sqrt(k)
    most = rounded * 4 * np.abs(real).mean() + 3e-6 * np.abs(wanted).max()
    np.testing.assert_allclose(y, wanted, atol=most)


def of_rows(product):
    """The kernel that prepares rows, if the GEMM uses it."""
    return {"rows": schedule_block_rows(product.ready("int8"), "rows", CPU)} if product.activations == "int8" else {}


def packed_and_checked(product, scheduled, rng):
    """Compile a GEMM with its row preparation and its packing, pack random weights, and compare."""
    library = compiled({**of_rows(product), "product": scheduled.main})
    stored, real = weights(product, rng)
    checked(product, library, in_panels(scheduled, product, stored), stored, real, rng)


def in_panels(scheduled, product, stored):
    """Return records as a kernel packs them."""
    packed = np.zeros(scheduled.packed_shape, np.uint8)
    scheduled.panels.pack(blocks_of_records(stored, product), packed)
    return packed


@pytest.mark.values
@pytest.mark.parametrize("activations", ["float32", "int16", "int8"])
@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_kernels(size, encoding, activations):
    rows, n, k = size
    rng = np.random.default_rng(rows)
    product = BlockedProduct(rows=rows, n=n, k=k, encoding=Encoding.parse(encoding), activations=activations)
    scheduled = schedule_blocked(product, "product", CPU, prepacked=True)
    packed_and_checked(product, scheduled, rng)


@pytest.mark.values
@pytest.mark.parametrize("activations", ["float32", "int16", "int8"])
@pytest.mark.parametrize("encoding", ENCODINGS[:3])
def test_plain_loops_say_what_it_is(encoding, activations):
    rng = np.random.default_rng(1)
    product = BlockedProduct(rows=2, n=9, k=72, encoding=Encoding.parse(encoding), activations=activations)
    functions = {"product": described_function(product, "product")}
    assert description_of(functions["product"]) == product
    if activations == "int8":
        functions["rows"] = described_function(product.ready("int8"), "rows")
        assert description_of(functions["rows"]) == product.ready("int8")
    stored, real = weights(product, rng)
    checked(product, compiled(functions), None, stored, real, rng)


@pytest.mark.parametrize("encoding", ["int4:32", "int6:16:float16:zero_points"])
def test_weights_that_only_a_run_brings_are_packed_in_it(encoding):
    rng = np.random.default_rng(2)
    product = BlockedProduct(rows=2, n=40, k=64, encoding=Encoding.parse(encoding))
    scheduled = schedule_blocked(product, "product", CPU, prepacked=False)
    checked(product, compiled({"product": scheduled.main}), None, *weights(product, rng), rng)


def test_weights_are_decoded_once_for_many_rows_in_parts_of_k():
    rng = np.random.default_rng(3)
    encoding = Encoding.parse("int4:32:float32:zero_points")
    product = BlockedProduct(rows=11, n=45, k=200, encoding=encoding)
    chosen = decide_blocked(product.workload, CPU)
    tiling = dataclasses.replace(chosen, mr=3, nr=2 * chosen.lanes, unpacked_rows=7, partition_k=64)
    scheduled = schedule_blocked(product, "product", CPU, prepacked=True, tiling=tiling)
    packed_and_checked(product, scheduled, rng)


@pytest.mark.values
@pytest.mark.parametrize("activations", ["float32", "int16", "int8"])
@pytest.mark.parametrize("rows", [1, 7])
def test_kernels_of_narrower_vectors(rows, activations):
    cpu = tt.Hardware.load("skylake-desktop-8c").cpu
    rng = np.random.default_rng(rows)
    encoding = Encoding.parse("int4:32:float16:zero_points")
    product = BlockedProduct(rows=rows, n=45, k=96, encoding=encoding, activations=activations)
    scheduled = schedule_blocked(product, "product", cpu, prepacked=True)
    assert (scheduled.tiling.lanes, scheduled.tiling.form) == (8, "floats")
    packed_and_checked(product, scheduled, rng)


@pytest.mark.parametrize("unpacked", [None, 1])
def test_rows_in_8_bits_without_a_dot_instruction(unpacked):
    rng = np.random.default_rng(4)
    encoding = Encoding.parse("int4:32:float32:zero_points")
    product = BlockedProduct(rows=7, n=37, k=96, encoding=encoding, activations="int8")
    floats = {"form": "floats", "instruction": "fma.float32", "mr": 2, "unpacked_rows": unpacked, "partition_k": 64}
    tiling = dataclasses.replace(decide_blocked(product.workload, CPU), **floats)
    scheduled = schedule_blocked(product, "product", CPU, prepacked=True, tiling=tiling)
    packed_and_checked(product, scheduled, rng)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_row_that_is_not_finite_gives_nothing_finite(value):
    ready = BlockRows(rows=2, k=64, block=32)
    library = compiled({"rows": schedule_block_rows(ready, "rows", CPU)})
    x = np.ones((2, 64), np.float32)
    x[1, 40] = value
    _, scales, _ = run(library["rows"], ready.outputs, x)
    assert np.isfinite(scales).tolist() == [[True, True], [True, False]]


SMALL = (1e-29, 1e-34, 1e-36, 3e-37, 1e-37, 1.2e-38, 1e-38, 1e-40, 1e-43)
"""Largest magnitudes of rows, whose scales are normal or subnormal or have an infinite reciprocal."""


@pytest.mark.parametrize(("kernel", "to"), [("kernel", "int8"), ("kernel", "int16"), ("plain", "int8")])
def test_rows_of_zeros_and_of_small_numbers_are_within_half_a_step(kernel, to):
    ready = BlockRows(rows=len(SMALL) + 1, k=48, block=32, to=to)
    made = schedule_block_rows(ready, "rows", CPU) if kernel == "kernel" else described_function(ready, "rows")
    most = np.array([0.0, *SMALL], np.float32)
    x = np.random.default_rng(6).uniform(-1, 1, (len(most), 48)).astype(np.float32) * most[:, None]
    x[:, 0] = most
    quantised, scales, _ = run(compiled({"rows": made})["rows"], ready.outputs, x)
    assert not quantised[0].any()
    parts = quantised.reshape(len(most), 2, ready.parts, 32).astype(np.float64)
    whole = parts[:, :, 0] if to == "int8" else parts[:, :, 0] * 256 + parts[:, :, 1]
    seen = (whole * scales[..., None]).reshape(len(most), -1)[:, :48]
    steps = np.abs(most / (127 if to == "int8" else 127 << 8)) + 2.0**-149
    assert (np.abs(seen - x) <= 0.501 * steps[:, None]).all()


@pytest.mark.parametrize("encoding", ["int4:32", "int4:32:float16:zero_points", "int6:16:int8/8:offsets"])
@pytest.mark.parametrize("rows", [1, 7])
def test_small_rows_are_multiplied_as_others_are(rows, encoding):
    product = BlockedProduct(rows=rows, n=40, k=96, encoding=Encoding.parse(encoding), activations="int8")
    rng = np.random.default_rng(7)
    scheduled = schedule_blocked(product, "product", CPU, prepacked=True)
    library = compiled({**of_rows(product), "product": scheduled.main})
    stored = rng.integers(0, 60, record_memory(product).shape).astype(np.uint8)
    stored[..., product.value_bytes : product.value_bytes + 2] = (0, 8)  # a float16 scale of 2^-13
    given = in_panels(scheduled, product, stored)
    x = rng.standard_normal((rows, 96), np.float32)

    def multiplied(factor):
        taken = run(library["rows"], product.ready("int8").outputs, x * np.float32(factor))
        return run(library["product"], product.outputs, *taken, given)[0].astype(np.float64) / factor

    wanted = multiplied(1.0)
    assert np.isfinite(wanted).all() and np.abs(wanted).max() > 0
    for exponent in (-90, -120, -126):
        np.testing.assert_allclose(multiplied(2.0**exponent), wanted, atol=0.02 * np.abs(wanted).max())


@pytest.mark.values
@pytest.mark.parametrize("nr", [None, 48])
@pytest.mark.parametrize("encoding", [*ENCODINGS, "int6:16:float16:zero_points"])
def test_rows_of_a_table_are_read_from_the_panels_of_a_gemm(encoding, nr):
    told = TableRows(rows=5, n=100, k=72, encoding=Encoding.parse(encoding))
    stored, real = weights(told.product, np.random.default_rng(5))
    scheduled = schedule_table_rows(told, "kernel", nr, prepacked=True)
    plain = described_function(told, "plain")
    assert description_of(plain) == told
    library = compiled({"kernel": scheduled.main, "plain": plain})
    places = np.array([99, 0, 47, 48, 0])
    for name, given in (("kernel", in_panels(scheduled, told.product, stored)), ("plain", stored)):
        (found,) = run(library[name], told.outputs, places, given)
        np.testing.assert_allclose(found, real[places], atol=1e-6 * np.abs(real).max())
