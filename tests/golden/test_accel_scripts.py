"""TIR of a matrix multiplication for the accelerator: loops in the decision's order, blocks assigned to engines."""

from __future__ import annotations

import re

import pytest
from tvm import te

import tvm_tiling as tt


def script(m, n, k, **machine) -> tuple[str, tt.GemmTiling]:
    hardware = tt.Hardware.neartile(bw_a=8, bw_b=8, macs_per_cycle=64, **machine)
    a, b = te.placeholder((m, k), name="A", dtype="int8"), te.placeholder((k, n), name="B", dtype="int8")
    r = te.reduce_axis((0, k), name="k")
    op = te.compute((m, n), lambda i, j: te.sum(a[i, r].astype("int32") * b[r, j].astype("int32"), axis=r), name="C")
    decision = tt.decide(tt.GemmWorkload(m=m, n=n, k=k, dtype="int8"), hardware)
    return tt.tiling_schedule(op, target=hardware).mod.script(), decision


def blocks(text: str) -> list[tuple[str, str]]:
    """Return names and engines of the blocks, in order."""
    return re.findall(
        r'with T\.sblock\("(\w+(?:\.\w+)?)"\):(?:(?!with T\.sblock).)*?"vsim\.engine": "(\w+)"', text, re.S
    )


@pytest.mark.parametrize(
    ("size", "order", "first"),
    [((60, 200, 64), "mn", "A_global.a"), ((200, 60, 64), "nm", "B_global.b")],
    ids=["m outside n", "n outside m"],
)
def test_the_operand_that_stays_is_loaded_in_the_outer_loop(size, order, first):
    text, decision = script(*size, buf_a=4096, buf_b=4096, acc_max=8192)
    assert decision.outer_order == order
    assert not decision.split_k
    names = [name for name, _ in blocks(text)]
    assert names[0] == first
    assert names[2:] == ["C", "C_global.acc"]
    assert [engine for _, engine in blocks(text)] == ["load", "load", "matrix", "store"]


def test_a_split_k_keeps_its_sums_over_the_loop_over_k():
    text, decision = script(200, 200, 800, buf_a=4096, buf_b=4096, acc_max=1 << 16)
    assert decision.split_k
    indent = {name: len(spaces) for spaces, name in re.findall(r'^( *)with T\.sblock\("([\w.]+)"\)', text, re.M)}
    over_k = re.search(r"^( *)for (?:\w+, )*k_0 in", text, re.M) or re.search(r"^( *)for .*k_0", text, re.M)
    assert over_k is not None
    assert indent["C"] == indent["A_global.a"] > len(over_k[1])
    # The store is next to the loop over k, not inside it.
    after = text[text.index('T.sblock("C")') :]
    store_loop = re.search(r"^( *)for [^\n]*\n(?:\s+for [^\n]*\n)*\s+with T\.sblock\(\"C_global\.acc\"\)", after, re.M)
    assert store_loop is not None
    assert len(store_loop[1]) <= len(over_k[1])
