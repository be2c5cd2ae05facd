"""Third-party models through torch.export and torch.compile: none wrong, no error other than TilingError, none that
ends its process.

Requires the packages in tests/nets/requirements-models.txt. TVM_TILING_MODELS_EVERY=10 takes every tenth model. One
model is repeated by `python tests/nets/torch_models.py --models "timm resnet18" --ways export`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytestmark = pytest.mark.slow
PROGRAM = Path(__file__).parents[1] / "nets" / "torch_models.py"
EVERY = os.environ.get("TVM_TILING_MODELS_EVERY", "1")


@pytest.mark.parametrize("source", ["torchvision", "transformers", "timm"])
def test_models_are_right_or_refused(source, tmp_path):
    if find_spec(source) is None:
        pytest.skip(f"not installed: {source}")
    done = subprocess.run(
        [sys.executable, str(PROGRAM), "--lists", source, "--every", EVERY, "--out", str(tmp_path / "models.jsonl")],
        capture_output=True,
        text=True,
    )
    print(done.stdout)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
