"""All of PyTorch's own samples of its modules (ModuleInfo), through torch.export and torch.compile: none wrong, no
error other than TilingError, none that ends the process; 95 percent of float32 are supported, or left to PyTorch by
torch.compile.

TVM_TILING_MODULEINFO_SEED sets another seed, TVM_TILING_MODULEINFO_LIMIT a number of samples per module and type.
Failures are repeated by `python tests/nets/torch_moduleinfo.py --names NAME --dtypes TYPE --ways WAY --seed SEED --only
SAMPLE`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("expecttest", reason="PyTorch's test suite imports it: pip install expecttest")

pytestmark = pytest.mark.slow
PROGRAM = Path(__file__).parents[1] / "nets" / "torch_moduleinfo.py"
SEED = os.environ.get("TVM_TILING_MODULEINFO_SEED", "0")
LIMIT = os.environ.get("TVM_TILING_MODULEINFO_LIMIT")
LEAST = {"float32": 0.95}

sys.path.insert(0, str(PROGRAM.parent))
from torch_sample_net import served  # noqa: E402


@pytest.mark.parametrize("way", ["export", "compile"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_samples_are_right_or_refused(dtype, way, tmp_path):
    out = tmp_path / "outcomes.jsonl"
    options = ["--dtypes", dtype, "--ways", way, "--seed", SEED, "--out", str(out)]
    options += ["--limit", LIMIT] if LIMIT else []
    done = subprocess.run([sys.executable, str(PROGRAM), *options], capture_output=True, text=True)
    print(done.stdout)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    found = Counter(kind for line in lines for kind, _, _ in line["outcomes"])
    assert found["right"]
    assert served(found) >= LEAST.get(dtype, 0)
