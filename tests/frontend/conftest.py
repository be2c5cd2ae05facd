"""Tests of a frontend whose package is not installed are left out."""

from __future__ import annotations

from importlib.util import find_spec

NEEDS = {
    "test_torch.py": "torch",
    "test_onnx.py": "onnx",
    "test_onnx_empty.py": "onnxruntime",
    "test_onnx_files.py": "onnx",
    "test_onnx_forms.py": "onnxruntime",
    "test_onnx_nodes.py": "onnx",
    "test_onnx_recurrent_lengths.py": "onnxruntime",
}

collect_ignore = [name for name, package in NEEDS.items() if find_spec(package) is None]
