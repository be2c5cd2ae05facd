"""The language models' benchmark: steps are repeatable, and all peers read its models."""

from __future__ import annotations

import dataclasses

import numpy as np
import onnx
import pytest

import tvm_tiling as tt
from benchmarks.language_gguf import TYPES, sizes_of, write_decoder
from benchmarks.language_graph import Decoder, decoder
from benchmarks.language_models import PEERS, compare, step_of

SIZES = Decoder(layers=1, width=64, heads=2, groups=1, inner=64, words=40, most=64)
TOKENS = np.arange(9) * 4


@pytest.mark.parametrize("file", ["model.onnx", "model.gguf"])
def test_a_step_is_the_same_each_time_and_equals_one_long_prompt(tmp_path, file):
    if file.endswith("gguf"):
        write_decoder(tmp_path / file, sizes_of(SIZES), TYPES.Q4_0)
    else:
        onnx.save(decoder(SIZES), tmp_path / file)
    executable = tt.compile(tmp_path / file, cache=False)
    whole, step = step_of(executable, TOKENS[:0], TOKENS), step_of(executable, TOKENS[:6], TOKENS[6:])
    wanted = np.array(whole())
    for _ in range(3):
        np.testing.assert_allclose(step(), wanted, atol=1e-3 * np.abs(wanted).max())


def test_rows_beside_onnxruntime():
    rows, seconds = compare(SIZES, ["onnxruntime"], [(3, 1), (0, 5)], reading=4)
    assert [(row.peer, row.past, row.new) for row in rows] == [
        ("reading alone", 4, 1),
        ("onnxruntime", 3, 1),
        ("onnxruntime", 0, 5),
    ]
    assert all(row.ms > 0 and row.part > 0 and not row.far >= 1e-3 for row in rows)
    assert seconds > 0


def test_bytes_of_a_step_by_hand():
    weights = 64 * 64 * 2 + 64 * 32 * 2 + 3 * 64 * 64 + 64 * 40
    assert SIZES.bytes_of_a_step(0) == weights * (0.5 + 4 / 32)
    assert SIZES.bytes_of_a_step(10, 2) == weights * (0.5 + 2 / 32) + 2 * 4 * 32 * 10
    assert dataclasses.replace(SIZES, bits=32).bytes_of_a_step(0) == 4 * weights


def test_peers_read_what_is_made():
    assert {name: peer.file for name, peer in PEERS.items()} == {
        "onnxruntime": "model.onnx",
        "genai": "model.onnx",
        "openvino": "model.onnx",
        "llama.cpp": "model.gguf",
    }
