"""Parameters of 100 MB are held once, whether they are beside a Relay model, in an archive with it or inside its JSON.

A separate process has a limit on its data that the system enforces.
"""

from __future__ import annotations

import base64
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "frontend"))

from relay_files import JsonWriter, array_bytes, params_bytes, tar_bytes

pytestmark = pytest.mark.slow

LAYERS, WIDTH = 25, 1024
MEGABYTES = LAYERS * WIDTH * WIDTH * 4 / 1e6  # size of the parameters
TENSOR = f"Tensor[({WIDTH}, {WIDTH}), float32]"
# Limit of a process beyond its memory after imports, relative to the size of the parameters.
COPIES = {"beside": 1.1, "archive": 1.1, "JSON": 3.6}

LOAD = """
import resource, sys, time
from tvm_tiling.frontend import load_model
load_model(b"def @main(%x: Tensor[(2), float32]) {{ nn.relu(%x) }}")
held = int(next(line for line in open("/proc/self/status") if line.startswith("VmData")).split()[1]) * 1024
most = held + int({allowed})
resource.setrlimit(resource.RLIMIT_DATA, (most, most))
start = time.perf_counter()
model = load_model({model!r}, params={params!r})
print(time.perf_counter() - start)
assert model.input_names == ("x",)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A model of 25 layers with its parameters in a separate file, in an archive, and inside JSON."""
    path = tmp_path_factory.mktemp("large")
    rng = np.random.default_rng(0)
    weights = {f"w{n}": rng.random((WIDTH, WIDTH), "float32") for n in range(LAYERS)}
    inputs = ", ".join(["%x: Tensor[(4, 1024), float32]", *(f"%{name}: {TENSOR}" for name in weights)])
    layers = [f"  %{n} = nn.dense(%{'x' if n == 0 else n - 1}, %w{n}, units={WIDTH});" for n in range(LAYERS)]
    text = "\n".join([f"def @main({inputs}) {{", *layers, f"  nn.relu(%{LAYERS - 1})", "}"]).encode()
    params = params_bytes(weights)
    (path / "model.relay").write_bytes(text)
    (path / "model.params").write_bytes(params)
    (path / "model.tar").write_bytes(tar_bytes({"model.relay": text, "model.params": params}))
    writer = JsonWriter()
    body = x = writer.var("x", writer.tensor((4, WIDTH)))
    for weight in weights.values():
        writer.arrays.append(base64.b64encode(array_bytes(weight)).decode())
        constant = writer.add("relay.Constant", _checked_type_=0, data=len(writer.arrays) - 1, span=0)
        body = writer.call(writer.op("nn.dense"), [body, constant])
    (path / "model.json").write_bytes(writer.module({"main": writer.function([x], body)}))
    return path


def loaded(model: Path, params: Path | None, allowed: float) -> subprocess.CompletedProcess:
    script = LOAD.format(model=str(model), params=None if params is None else str(params), allowed=allowed * 1e6)
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("form", COPIES)
def test_parameters_of_100_megabytes_are_held_once(folder, form):
    model = {"beside": "model.relay", "archive": "model.tar", "JSON": "model.json"}[form]
    params = folder / "model.params" if form == "beside" else None
    done = loaded(folder / model, params, COPIES[form] * MEGABYTES)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 10
    # Less than one copy is impossible, so that the limit was effective.
    assert loaded(folder / model, params, 0.9 * MEGABYTES).returncode != 0
