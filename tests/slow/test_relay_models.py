"""Relay models with recorded results, if TVM_TILING_RELAY_MODELS names a folder of them.

The folder has a folder for each model: model.relay, model.json, model.params if there are weights, and expected.npz
with the arrays in:<name> and out:<index>.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "frontend"))

from relay_files import tar_bytes

import tvm_tiling as tt

FOLDER = os.environ.get("TVM_TILING_RELAY_MODELS", "")
MODELS = sorted(path.parent for path in Path(FOLDER).glob("*/expected.npz")) if FOLDER else []

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not MODELS, reason="TVM_TILING_RELAY_MODELS names no folder of Relay models"),
]


def forms(folder: Path) -> dict[str, tuple[bytes, bytes | None]]:
    params = (folder / "model.params").read_bytes() if (folder / "model.params").exists() else None
    text, held = (folder / "model.relay").read_bytes(), (folder / "model.json").read_bytes()
    beside = {} if params is None else {"model.params": params}
    within = {} if params is None else {"parameters/default.params": params}
    return {
        "text": (text, params),
        "JSON": (held, params),
        "tar": (tar_bytes({"model.json": held, **beside}), None),
        "library format": (tar_bytes({"src/relay.txt": text, **within}), None),
    }


@pytest.mark.parametrize("form", ["text", "JSON", "tar", "library format"])
@pytest.mark.parametrize("folder", MODELS, ids=lambda folder: folder.name)
def test_results_are_the_recorded_ones(folder, form):
    model, params = forms(folder)[form]
    expected = np.load(folder / "expected.npz")
    executable = tt.compile(model, params=params)
    inputs = {}
    for name in executable.signature.input_names:
        # Several inputs with the same name are numbered in the text, and share a value here.
        known = [name, name.rstrip("0123456789")]
        inputs[name] = next(expected[f"in:{each}"] for each in known if f"in:{each}" in expected.files)
    found = executable.run(**inputs)
    found = found if isinstance(found, tuple) else (found,)
    assert len(found) == len([name for name in expected.files if name.startswith("out:")])
    for place, has in enumerate(found):
        wanted = expected[f"out:{place}"]
        assert (has.shape, has.dtype) == (wanted.shape, wanted.dtype)
        if wanted.dtype.kind in "iub":
            np.testing.assert_array_equal(has, wanted)
        else:
            np.testing.assert_allclose(has, wanted, rtol=0, atol=1e-4 * np.abs(wanted).max())
