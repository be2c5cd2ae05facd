"""Operands of convolutions against a scalar loop nest, and every convolution peer on small awkward ones."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import tvm_tiling
from benchmarks import shape
from benchmarks.operands import ConvOperands, random_operands
from benchmarks.peers import DEFAULT_PEERS, get_peer
from benchmarks.peers.ours import Ours
from tvm_tiling.hardware.description import Hardware
from tvm_tiling.hardware.dot_instructions import fastest
from tvm_tiling.workload import ConvWorkload, GemmWorkload

SHAPES = [
    {"h": 9, "w": 11, "ci": 5, "co": 7, "k": 3, "p": 1},
    {"h": 9, "ci": 3, "co": 17, "k": 3, "s": 2, "p": 1},
    {"h": 8, "ci": 6, "co": 9, "k": 1, "n": 2},
    {"h": 7, "w": 12, "ci": 4, "co": 6, "k": [1, 5], "p": [0, 2], "s": [1, 2], "d": [1, 2]},
    {"h": 9, "ci": 8, "co": 8, "k": 3, "p": 1, "g": 8},
    {"h": 9, "ci": 8, "co": 12, "k": 3, "p": 1, "g": 4},
    {"h": 9, "ci": 3, "co": 4, "k": 3, "p": [0, 1, 2, 1]},
]
WORKLOADS = [shape.workload(s, dtype) for s in SHAPES for dtype in ("float32", "int8")]


PEERS = [name for name in DEFAULT_PEERS if ConvWorkload in get_peer(name).supports]


def name_of(workload):
    return f"{shape.text(workload)} {workload.dtype}"


@pytest.mark.parametrize("workload", WORKLOADS, ids=name_of)
def test_the_expected_answer_is_the_definitions(workload):
    w, operands = workload, random_operands(workload, seed=1)
    assert isinstance(operands, ConvOperands)
    answer = np.zeros((w.n, w.ho, w.wo, w.co))
    inside, outside = w.ci // w.groups, w.co // w.groups
    for n, y, x, co, ky, kx in itertools.product(*map(range, (*answer.shape, w.kh, w.kw))):
        row = y * w.stride[0] - w.padding[0] + ky * w.dilation[0]
        column = x * w.stride[1] - w.padding[1] + kx * w.dilation[1]
        if 0 <= row < w.h and 0 <= column < w.w:
            group = co // outside
            read = operands.x[n, row, column, group * inside : (group + 1) * inside].astype(np.float64)
            answer[n, y, x, co] += read @ operands.kernels[ky, kx, :, co].astype(np.float64)
    np.testing.assert_allclose(operands.expected, answer, rtol=0, atol=1e-12)
    assert operands.output().shape == answer.shape
    assert operands.output().dtype == w.acc_dtype
    assert all(array.ctypes.data % 64 == 0 for array in (*operands.inputs, operands.output()))


# What each peer supports; peers that are not installed are skipped.
CASES = [
    pytest.param(name, workload, packed, id=f"{name}-{name_of(workload)}-{'packed' if packed else 'plain'}")
    for name in PEERS
    for workload in WORKLOADS
    for packed in (False, True)
    if get_peer(name).available() or not get_peer(name).cannot(workload, packed)
]


def _sums_bytes_in_pairs() -> bool:
    cpu = Hardware.detect().cpu
    return cpu is None or fastest(cpu, "int8", "int8", "int32").group < 4


@pytest.mark.pairs
@pytest.mark.parametrize(("name", "workload", "packed"), CASES)
def test_peer_is_right(name, workload, packed):
    peer = get_peer(name)
    if reason := peer.available():
        pytest.skip(f"{name}: {reason}")
    if name == "onnxruntime" and workload.dtype == "int8" and packed and _sums_bytes_in_pairs():
        pytest.skip("onnxruntime saturates sums of two products on a CPU without an int8 dot product")
    operands = random_operands(workload, seed=3)
    prepared = peer.prepare(operands, packed)
    prepared.run()
    prepared.run()
    assert operands.difference(prepared.output(), prepared.rounding) == ""


def test_peers_of_gemms_say_so():
    assert PEERS == ["torch", "onnxruntime", "tvm"]
    assert get_peer("numpy").cannot(WORKLOADS[0], True) == "supports matrix multiplications only"
    assert "asymmetric" in get_peer("torch").refuses(shape.workload(SHAPES[-1], "float32"), True)
    assert get_peer("torch").refuses(GemmWorkload(m=1, n=1, k=1), True) is None


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_a_wrong_border_or_a_missing_term_is_found(dtype):
    operands = random_operands(shape.workload({"h": 14, "ci": 64, "co": 16, "k": 3, "p": 1}, dtype))
    right = operands.expected.astype(operands.workload.acc_dtype)
    assert operands.difference(right) == ""
    term = right.copy()
    term[0, 5, 6, 7] -= operands.x[0, 5, 6, 63].astype(right.dtype) * operands.kernels[1, 1, 63, 7].astype(right.dtype)
    assert "expected at most" in operands.difference(term)
    shifted = right.copy()
    shifted[:, 0] = right[:, 1]
    assert "expected at most" in operands.difference(shifted)
    assert "shape" in operands.difference(right[:, 1:])
    assert operands.difference(right + 3, rounding=4) == ""
    assert operands.difference(np.full(right.shape, np.nan)) != ""


def test_rounding_of_a_requantised_result_is_half_a_step():
    if reason := get_peer("onnxruntime").available():
        pytest.skip(reason)
    operands = random_operands(shape.workload(SHAPES[0], "int8"))
    prepared = get_peer("onnxruntime").prepare(operands, True)
    prepared.run()
    step = np.max(np.abs(operands.expected)) / 127
    assert prepared.rounding == pytest.approx(step / 2, rel=0.01)
    assert operands.difference(prepared.output()) != ""
    assert operands.difference(prepared.output() + step, prepared.rounding) != ""


class Kernel:
    """Stands in for a compiled operator with its prepacked weights."""

    def __init__(self, log):
        self.log = log

    def pack(self, weights):
        self.log.append(("pack", weights.shape))
        return "packed"

    def __call__(self, x, packed, out):
        self.log.append((x.shape, packed, out.shape))


def test_our_convolution_is_packed_once_and_called_with_what_was_packed(monkeypatch):
    log = []

    def packed_operator(function, target, algorithm=None, microkernel=None, weights_within=None):
        log.append((len(function.params), target, algorithm))
        return Kernel(log)

    monkeypatch.setattr(tvm_tiling, "packed_operator", packed_operator)
    operands = random_operands(shape.workload(SHAPES[0], "float32"))
    prepared = Ours("direct", form="direct").prepare(operands, packed=True)
    prepared.run()
    assert log == [(3, "llvm", "direct"), ("pack", (3, 3, 5, 7)), ((1, 9, 11, 5), "packed", (1, 9, 11, 7))]
    assert prepared.note == "direct"
    assert "register tile" in Ours("A", (28, 1), "normal").refuses(operands.workload, True)
