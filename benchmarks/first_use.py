"""Cost of first use compared with onnxruntime: imports, compilation, loading and memory: python -m benchmarks.first_use

Every step runs in its own process. Prints wall time, processor time (children included) and peak resident memory of
each step. The memory includes the imports. Models come from benchmarks/models.py, with random weights. torchvision.NAME
is a network of torchvision, exported by PyTorch: the table has its compilation only, without imports and export, and
onnxruntime's session of the same network as an ONNX file. Linux only.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tvm_tiling.cli.table import print_table

from .onnx_networks import NETWORKS, with_random_weights

USUAL = ("squeezenet", "resnet50")
MEASURE = """
import json, resource, time
{setup}
wall, start = time.perf_counter(), time.process_time()
{step}
# The largest memory since the interpreter began; getrusage tells that of the process it was forked from, too.
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
children = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps({{
    "seconds": time.perf_counter() - wall,
    "processor": time.process_time() - start + children.ru_utime + children.ru_stime,
    "bytes": int(status["VmHWM"].split()[0]) << 10,
}}))
"""
COMPILE = "import tvm_tiling as tt; tt.compile({model!r})"
TORCHVISION = "torchvision."
EXPORT = """
import warnings; warnings.simplefilter("ignore")
import torch, torchvision
torch.manual_seed(0)
module, image = torchvision.models.{name}(weights=None).eval(), torch.randn(1, 3, 224, 224)
"""
PROGRAM = """
import tvm_tiling as tt, tvm_tiling.model.compilation, tvm_tiling.frontend.torch.import_torch
program = torch.export.export(module, (image,))
"""
RUN = "import numpy as np; x = np.load({inputs!r}); "


@dataclass(frozen=True)
class Step:
    """A row of the table: what one process did, and its cost."""

    name: str
    seconds: float
    processor: float
    bytes: int


def measured(name: str, step: str, environment: dict[str, str], setup: str = "") -> Step:
    """Run the statements of `setup`, then measure those of `step`, in a fresh interpreter."""
    statements = MEASURE.format(setup=setup, step=step)
    done = subprocess.run(
        [sys.executable, "-c", statements], capture_output=True, text=True, env=os.environ | environment
    )
    if done.returncode:
        raise SystemExit(f"{name}: {done.stderr.strip().splitlines()[-1]}")
    return Step(name=name, **json.loads(done.stdout.splitlines()[-1]))


def steps_of(network: str, folder: Path) -> list[Step]:
    """Run all steps of one network, whose files are in `folder`."""
    import numpy as np

    model, saved, inputs = folder / f"{network}.onnx", folder / f"{network}.tar", folder / "x.npy"
    content = with_random_weights(network)
    model.write_bytes(content.SerializeToString())
    weights = {tensor.name for tensor in content.graph.initializer}
    (given,) = [value for value in content.graph.input if value.name not in weights]
    shape = [extent.dim_value for extent in given.type.tensor_type.shape.dim]
    np.save(inputs, np.random.default_rng(1).standard_normal(shape).astype(np.float32))
    cache = {"TVM_TILING_CACHE": str(folder / "cache")}
    compile_, x = COMPILE.format(model=str(model)), RUN.format(inputs=str(inputs))
    feed = "s.run(None, {s.get_inputs()[0].name: x})"
    session = f"import onnxruntime as ort; s = ort.InferenceSession({str(model)!r}, providers=['CPUExecutionProvider'])"
    return [
        measured(f"{network}: compile", compile_, cache),
        measured(f"{network}: compile, from the cache", compile_, cache),
        measured(f"{network}: compile and save", f"{compile_}.save({str(saved)!r})", cache),
        measured(f"{network}: load and run once", f"{x}import tvm_tiling as tt; tt.load({str(saved)!r}).run(x)", cache),
        measured(f"{network}: onnxruntime's session", session, {}),
        measured(
            f"{network}: onnxruntime's session, run once",
            f"{x}{session}; {feed}",
            {},
        ),
    ]


def steps_of_torchvision(network: str, folder: Path) -> list[Step]:
    """Run the steps of one network of torchvision."""
    module = EXPORT.format(name=network.removeprefix(TORCHVISION))
    model, cache = folder / f"{network}.onnx", {"TVM_TILING_CACHE": str(folder / "cache")}
    written = f"torch.onnx.export(module, (image,), {str(model)!r}, dynamo=False)"
    subprocess.run([sys.executable, "-c", module + written], check=True, capture_output=True)
    program, compile_ = module + PROGRAM, "tt.compile(program)"
    session = f"s = ort.InferenceSession({str(model)!r}, providers=['CPUExecutionProvider'])"
    return [
        measured(f"{network}: compile", compile_, cache, program),
        measured(f"{network}: compile, from the cache", compile_, cache, program),
        measured(f"{network}: onnxruntime's session", session, {}, "import onnxruntime as ort"),
    ]


def _network(name: str) -> str:
    if name in NETWORKS or (name.startswith(TORCHVISION) and name.removeprefix(TORCHVISION).isidentifier()):
        return name
    raise argparse.ArgumentTypeError(f"{name!r}; expected {', '.join(NETWORKS)}, or {TORCHVISION}NAME")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.first_use", description=__doc__)
    parser.add_argument("networks", nargs="*", type=_network, default=USUAL)
    given = parser.parse_args(arguments)
    steps = [
        measured("import tvm_tiling", "import tvm_tiling", {}),
        measured("imports of a first compilation", "import tvm_tiling as tt; tt.compile", {}),
        measured("import onnxruntime", "import onnxruntime", {}),
    ]
    with tempfile.TemporaryDirectory() as folder:
        for network in given.networks:
            steps += (steps_of_torchvision if network.startswith(TORCHVISION) else steps_of)(network, Path(folder))
    rows = [(s.name, f"{s.seconds:.2f}", f"{s.processor:.2f}", f"{s.bytes / 1e6:.0f}") for s in steps]
    print_table(("step", "seconds", "processor s", "MB"), rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
