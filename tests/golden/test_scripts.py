"""TIR generated for small matrix multiplications on fixed machines, as a whole and in detail.

After an intended change: pytest tests/golden --update-golden, and review the difference before committing it.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from tvm import te, tirx

import tvm_tiling as tt

TEXTS = Path(__file__).parent / "scripts"
ICE_LAKE = tt.Hardware.load("icelake-server-2c")
SKYLAKE = tt.Hardware.load("skylake-desktop-8c")


def slower(machine: tt.Hardware) -> tt.Hardware:
    """Use a clock at which starting the thread pool takes so few cycles that little work is shared."""
    return replace(machine, cpu=replace(machine.cpu, clock_mhz=2600.0))


def one_core(hardware: tt.Hardware, **changes: object) -> tt.Hardware:
    return replace(hardware, cpu=replace(hardware.cpu, cores=1, threads=1, **changes))


def product(m, n, k, dtype="float32", *, trans_b=False, bias=False, batch=0):
    total = {"int8": "int32", "uint8": "int32"}.get(dtype, "float32")
    lead = (batch,) if batch else ()
    a = te.placeholder((*lead, m, k), dtype, "A")
    b = te.placeholder((*lead, *((n, k) if trans_b else (k, n))), dtype, "B")
    x = te.reduce_axis((0, k), "x")

    def element(*at):
        *of, i, j = at
        right = b(*of, j, x) if trans_b else b(*of, x, j)
        return te.sum(a(*of, i, x).astype(total) * right.astype(total), x)

    c = te.compute((*lead, m, n), element, "C")
    if not bias:
        return c
    d = te.placeholder((n,), total, "D")
    return te.compute((m, n), lambda i, j: te.max(c[i, j] + d[j], tirx.const(0, total)), "relu")


# Three rows of four fit the share of the 12 ways that this machine reserves for rows in place.
THREE_IN_PLACE = one_core(ICE_LAKE, priority_ratio=0.25)

# name: (operator, machine, options)
GOLDEN = {
    "normal": (product(5, 20, 7), one_core(ICE_LAKE), {"microkernel": (2, 1)}),
    "inline": (product(4, 16, 1024), THREE_IN_PLACE, {"form": "inline", "microkernel": (4, 1)}),
    "pack_both": (product(4, 24, 12), one_core(SKYLAKE), {"form": "pack", "microkernel": (2, 1)}),
    "ahead": (product(3, 10, 6, bias=True), one_core(SKYLAKE), {"microkernel": (3, 1), "weights": "packed"}),
    "k_blocks_bias": (product(2, 8, 9000, bias=True), one_core(SKYLAKE), {"microkernel": (2, 1)}),
    "vnni": (product(2, 16, 9, "int8"), one_core(ICE_LAKE), {"microkernel": (2, 1)}),
    "stream_n": (product(1, 40, 6), one_core(SKYLAKE), {"form": "stream"}),
    "stream_k": (product(2, 3, 20, trans_b=True), one_core(SKYLAKE), {"form": "stream"}),
    "split_k": (product(2, 8, 4096), slower(SKYLAKE), {"microkernel": (2, 1)}),
    "batch": (product(2, 8, 4, batch=3), SKYLAKE, {"microkernel": (2, 1)}),
}


def script(name: str) -> str:
    """Return the TVMScript without the decision's predictions, which depend on the cost model."""
    operator, machine, options = GOLDEN[name]
    text = tt.tiling_schedule(operator, machine, **options).mod.script()
    return re.sub(r', "tvm_tiling.decision": "(?:[^"\\]|\\.)*"', "", text).strip() + "\n"


@pytest.mark.parametrize("name", GOLDEN)
def test_script(name, request):
    path = TEXTS / f"{name}.txt"
    if request.config.getoption("--update-golden"):
        TEXTS.mkdir(exist_ok=True)
        path.write_text(script(name))
    assert script(name) == path.read_text(), f"{path.name}: if the change is wanted, --update-golden writes it"


def test_no_text_is_left_over():
    assert {path.stem for path in TEXTS.glob("*")} == set(GOLDEN)


@pytest.mark.parametrize("name", GOLDEN)
def test_the_same_input_gives_the_same_script(name):
    operator, machine, options = GOLDEN[name]
    first, second = (tt.tiling_schedule(operator, machine, **options).mod.script() for _ in range(2))
    assert first == second


# ---- details -----------------------------------------------------------------------------------------------------


def scheduled(operator, machine=ICE_LAKE, **options):
    return tt.tiling_schedule(operator, machine, **options).mod


def decision(mod) -> dict[str, object]:
    return json.loads(str(mod["main"].attrs["tvm_tiling.decision"]))


def allocations(text: str) -> list[int]:
    """Return the number of elements of every buffer that the text allocates."""
    return [int(size) for size in re.findall(r"T\.alloc_buffer\(\((\d+),\)", text)]


def test_the_inline_copy_is_small_and_the_first_rows_are_read_from_a():
    machine = one_core(ICE_LAKE)
    mod = scheduled(product(24, 64, 1024), machine, form="inline", microkernel=(12, 2))
    taken = decision(mod)
    keep = int(0.8 * 12)
    assert (taken["keep"], taken["pack_a"], taken["mr"]) == (keep, "inline", 12)
    text = mod.script()
    row = taken["partition_k"] + 16  # whole vectors and one more, so that rows start in different sets
    assert (12 - keep) * row in allocations(text)
    body = text[text.index("T.alloc_buffer((16,)") :]  # from the accumulators on
    products = re.findall(r"= buffer\w*\[[^\]]*\] \+ (\w+)\[([^\]]*)\] \*", body)
    assert len(products) == 12 * 2
    sources = [products[i * 2][0] for i in range(12)]
    assert sources[:keep] == ["A"] * keep and len(set(sources[keep:])) == 1 and sources[keep] != "A"


def test_without_a_copy_every_row_is_read_from_a():
    for form in ("normal", "nocopy"):
        text = scheduled(product(24, 64, 1024), one_core(ICE_LAKE), form=form, microkernel=(12, 2)).script()
        sources = set(re.findall(r"= buffer\w*\[[^\]]*\] \+ (\w+)\[[^\]]*\] \*", text))
        assert sources == {"A"}


def test_weights_packed_prepacked_change_the_arguments_shape():
    operator = product(33, 40, 50)
    plain, packed = (scheduled(operator, one_core(SKYLAKE), weights=weights) for weights in ("plain", "packed"))
    assert [tuple(map(int, p.shape)) for p in plain["main"].params] == [(33, 50), (50, 40), (33, 40)]
    taken = decision(packed)
    panels = -(-40 // taken["nr"])
    expected = (1, panels, 1, 50, taken["nr"])
    assert [tuple(map(int, p.shape)) for p in packed["main"].params] == [(33, 50), expected, (33, 40)]
    assert [tuple(map(int, p.shape)) for p in packed["main_pack"].params] == [(50, 40), expected]
    assert taken["pack_b"] == "ahead" and "tvm_tiling.decision" not in packed["main_pack"].attrs
    assert {g.name_hint for g in plain.functions} == {"main"}


@pytest.mark.parametrize(("m", "n"), [(17, 37), (16, 37), (17, 32), (3, 5)])
def test_edges_are_kernels_of_their_own_size(m, n):
    """Tiles of 4 by 2 vectors of 8: each (rows, columns) that occurs has its own registers, and there are no others."""
    text = scheduled(product(m, n, 19), one_core(SKYLAKE), form="normal", microkernel=(4, 2)).script()
    heights = ([4] if m >= 4 else []) + ([m % 4] if m % 4 else [])
    widths = ([16] if n >= 16 else []) + ([n % 16] if n % 16 else [])
    expected = sum(rows * -(-columns // 8) for rows in heights for columns in widths)
    assert allocations(text).count(8) == expected
    assert f"T.vectorized({n % 8 or 8})" in text


@pytest.mark.parametrize("form", ["normal", "nocopy"])
def test_nothing_is_padded_in_memory(form):
    """In place, no buffer is as large as an operand; what is packed is a block of it."""
    mod = scheduled(product(130, 130, 130), one_core(SKYLAKE), form=form)
    taken = decision(mod)
    large = [size for size in allocations(mod.script()) if size >= 130 * 130]
    assert large == ([] if taken["pack_b"] == "none" else [-(-130 // taken["nr"]) * taken["nr"] * 130])


def test_panels_of_a_packed_block_start_in_different_sets_of_l1():
    """A row of B is written to all of them; panels of 16 columns and 256 rows are 16 KB."""
    mod = scheduled(product(256, 512, 256), one_core(SKYLAKE), microkernel=(4, 2))
    taken = decision(mod)
    assert (taken["pack_b"], taken["nr"], taken["partition_k"]) == ("pack", 16, 256)
    panels, line = taken["partition_n"] // 16, 64 // 4
    assert panels > 8 and panels * (16 * 256 + line) in allocations(mod.script())


def test_the_decision_stands_in_the_function():
    w = tt.GemmWorkload(m=64, n=48, k=96)
    mod = scheduled(product(64, 48, 96))
    plain = decision(mod)
    assert plain == json.loads(tt.decide(w, ICE_LAKE).to_json())
    plain.pop("op")
    plain["reasons"] = tuple(tt.Reason(*reason) for reason in plain["reasons"])
    assert tt.GemmTiling(**plain) == tt.decide(w, ICE_LAKE)


def test_bytes_are_multiplied_by_the_dot_product_of_the_machine():
    arm = tt.Hardware.load("neoverse-v1-16c")
    for machine, dtype, name in (
        (ICE_LAKE, "int8", "llvm.x86.avx512.vpdpbusd.512"),
        (ICE_LAKE, "uint8", "llvm.x86.avx512.pmaddw.d.512"),
        (SKYLAKE, "int8", "llvm.x86.avx2.pmadd.wd"),
        (arm, "int8", "llvm.aarch64.neon.smmla"),
    ):
        assert name in scheduled(product(8, 32, 16, dtype), machine).script()


def test_cores_share_a_parallel_loop():
    sixteen = replace(ICE_LAKE, cpu=replace(ICE_LAKE.cpu, cores=16, threads=16))
    text = scheduled(product(1024, 1024, 1024), sixteen).script()
    assert "T.parallel(16)" in text
    assert "T.parallel" not in scheduled(product(8, 8, 8), sixteen).script()
