"""Every peer is correct on small awkward matrix multiplications; those not installed are skipped by name."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.operands import GemmOperands, aligned, random_operands
from benchmarks.peers import Ours, get_peer, peer_names
from tvm_tiling.workload import GemmWorkload

WORKLOADS = [
    GemmWorkload(m=7, k=33, n=17),
    GemmWorkload(m=1, k=129, n=31),
    GemmWorkload(m=33, k=8, n=1),
    GemmWorkload(m=31, k=40, n=9, lda=48, ldb=48, ldc=48),
    GemmWorkload(m=7, k=33, n=17, dtype="int8"),
    GemmWorkload(m=1, k=64, n=31, dtype="int8"),
]
PEERS = [name for name in peer_names() if name != "metaschedule"]


def _name(workload):
    return f"{workload.m}x{workload.k}x{workload.n} ld {workload.ldb} {workload.dtype}"


def _peer(name):
    return Ours() if name == "ours" else get_peer(name)


# What each peer supports; peers that are not installed are skipped.
CASES = [
    pytest.param(name, workload, packed, id=f"{name}-{_name(workload)}-{'packed' if packed else 'plain'}")
    for name in ["ours", *PEERS]
    for workload in WORKLOADS
    for packed in (False, True)
    if _peer(name).available() or not _peer(name).cannot(workload, packed)
]


@pytest.mark.pairs
@pytest.mark.parametrize(("name", "workload", "packed"), CASES)
def test_peer_is_right(name, workload, packed):
    peer = _peer(name)
    if reason := peer.available():
        pytest.skip(f"{name}: {reason}")
    operands = random_operands(workload, seed=3)
    prepared = peer.prepare(operands, packed)
    prepared.run()
    prepared.run()  # a second run must not add to the first
    assert operands.difference(prepared.output(), prepared.rounding) == ""


def test_a_peer_that_is_not_installed_says_so(monkeypatch):
    peer = get_peer("onnxruntime")
    monkeypatch.setattr(type(peer), "needs", ("numpy", "no_such_package"))
    assert peer.available() == "not installed: no_such_package"


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_a_wrong_answer_is_found(dtype):
    operands = GemmOperands.random(GemmWorkload(m=9, k=65, n=11, dtype=dtype))
    right = operands.expected.astype(operands.workload.acc_dtype)
    assert operands.difference(right) == ""
    left_out = right - np.outer(operands.a[:, 64].astype(right.dtype), operands.b[64].astype(right.dtype))
    assert "expected at most" in operands.difference(left_out)
    assert "shape" in operands.difference(right[:-1])
    off_by_one = right.copy()
    off_by_one[3, 4] += 1
    assert operands.difference(off_by_one) != ""


def test_a_result_that_is_not_a_number_is_wrong():
    operands = GemmOperands.random(GemmWorkload(m=3, k=5, n=4))
    assert operands.difference(np.full((3, 4), np.nan, np.float32)) != ""


def test_arrays_are_aligned_and_strided():
    array = aligned(5, 7, 12, "float32")
    assert array.shape == (5, 7)
    assert array.strides == (48, 4)
    assert array.ctypes.data % 64 == 0


def test_longer_rows_hold_the_same_values():
    operands = GemmOperands.random(GemmWorkload(m=5, k=7, n=3))
    longer = operands.with_longer_rows(16)
    assert (longer.workload.lda, longer.workload.ldb, longer.workload.ldc) == (23, 19, 19)
    assert np.array_equal(longer.a, operands.a)
    assert np.array_equal(longer.b, operands.b)
    assert longer.output().strides == (19 * 4, 4)
