"""PyTorch's own samples of all its operators (OpInfo), of all types: none wrong, no error other than TilingError, none
that ends the process; 95 percent of float32 are supported by torch.export, and supported or left to PyTorch by
torch.compile.

TVM_TILING_OPINFO_SEED sets another seed, TVM_TILING_OPINFO_LIMIT another number of samples per operator and type.
Failures are repeated by `python tests/nets/torch_opinfo.py --names NAME --dtypes TYPE --seed SEED --limit LIMIT`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("expecttest", reason="PyTorch's test suite imports it: pip install expecttest")

pytestmark = pytest.mark.slow
PROGRAM = Path(__file__).parents[1] / "nets" / "torch_opinfo.py"
SEED = os.environ.get("TVM_TILING_OPINFO_SEED", "0")
LIMIT = os.environ.get("TVM_TILING_OPINFO_LIMIT", "8")
LEAST = 0.95  # of the float32 samples, by each way

sys.path.insert(0, str(PROGRAM.parent))
from opinfo_operators import OPERATORS, every_kind  # noqa: E402
from torch_sample_net import WAYS, known_tallies, served  # noqa: E402


def test_every_listed_operator_is_known():
    from opinfo_samples import operators

    assert {name for names in OPERATORS.values() for name in names} <= set(operators())


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """The file that gets the outcomes of all kinds."""
    return tmp_path_factory.mktemp("opinfo") / "outcomes.jsonl"


@pytest.mark.parametrize("kind", [*OPERATORS, "others"])
def test_samples_are_right_or_refused(kind, outcomes):
    options = ["--names", ",".join(every_kind()[kind]), "--seed", SEED, "--limit", LIMIT, "--out", str(outcomes)]
    done = subprocess.run([sys.executable, str(PROGRAM), *options], capture_output=True, text=True)
    print(done.stdout)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]


@pytest.mark.parametrize("way", WAYS)
def test_samples_of_float32_are_supported(way, outcomes):
    """All kinds together: run with the tests above."""
    tallies = known_tallies(outcomes.read_text().splitlines()) if outcomes.exists() else []
    found = [tally for tally in tallies if (tally.dtype, tally.way) == ("float32", way)]
    if {tally.name for tally in found} != {name for names in every_kind().values() for name in names}:
        pytest.skip("only a part of the operators was judged")
    assert served(sum((tally.counts for tally in found), Counter())) >= LEAST
