"""PyTorch's own samples of all its operators (OpInfo), of all types: none wrong, none that ends in another error
than a TilingError, none that ends the process.

TVM_TILING_OPINFO_SEED sets another seed, TVM_TILING_OPINFO_LIMIT another number of samples of an operator and type.
What fails is repeated by `python tests/nets/torch_opinfo.py --names NAME --dtypes TYPE --seed SEED --limit LIMIT`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("expecttest", reason="PyTorch's test suite imports it: pip install expecttest")

pytestmark = pytest.mark.slow
PROGRAM = Path(__file__).parents[1] / "nets" / "torch_opinfo.py"
SEED = os.environ.get("TVM_TILING_OPINFO_SEED", "0")
LIMIT = os.environ.get("TVM_TILING_OPINFO_LIMIT", "8")


sys.path.insert(0, str(PROGRAM.parent))
from opinfo_operators import OPERATORS, every_kind  # noqa: E402


def test_every_listed_operator_is_known():
    from opinfo_samples import operators

    assert {name for names in OPERATORS.values() for name in names} <= set(operators())


@pytest.mark.parametrize("kind", [*OPERATORS, "others"])
def test_samples_are_right_or_refused(kind):
    done = subprocess.run(
        [sys.executable, str(PROGRAM), "--names", ",".join(every_kind()[kind]), "--seed", SEED, "--limit", LIMIT],
        capture_output=True,
        text=True,
    )
    print(done.stdout)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
