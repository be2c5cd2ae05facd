"""Memory of models compared with onnxruntime: python -m benchmarks.memory --json results/memory.json

Measures separate processes, in MiB beyond the imported modules: the peak of a compilation without the cache (in
onnxruntime: of creating a session), and the memory after runs of a model loaded from its file, by one process and by
two at once. Resident memory (RSS) counts shared pages in every process, proportional memory (PSS) divides them; private
memory is not backed by a file.

A model is a network of benchmarks.models, or matmuls-N: a chain of square matrix multiplications with about N million
parameters, stored in a file beside the model. Requires Linux, which reports these figures in /proc.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tvm_tiling.measure import machine_record

from .onnx_networks import NETWORKS, with_random_weights
from .peers.tvm_operator import this_machine
from .result import write_whole

FORMAT, VERSION = "tvm-tiling-memory", 1
DEFAULT = ("resnet50", "squeezenet", "matmuls-128")
MATMULS = "matmuls-"
SIDE = 2048  # rows and columns of a matrix
ROWS = 16
RUNS = 3
ROOT = Path(__file__).parent.parent


@dataclass(frozen=True, kw_only=True)
class Use:
    """Bytes of a process: resident, resident without a backing file, proportional, and peak resident."""

    resident: int
    own: int
    proportional: int
    most: int

    def beyond(self, base: Use) -> Use:
        """Return the increase over `base`."""
        values = {name: value - getattr(base, name) for name, value in asdict(self).items()}
        return Use(**{**values, "most": self.most - base.resident})


def used() -> Use:
    """Read the memory of this process."""
    found = {}
    for file in ("smaps_rollup", "status"):
        for line in Path("/proc/self", file).read_text().splitlines():
            name, _, value = line.partition(":")
            if value.endswith(" kB"):
                found[name] = int(value.split()[0]) << 10
    # VmHWM and not ru_maxrss, which a process inherits from its parent.
    return Use(resident=found["Rss"], own=found["Anonymous"], proportional=found["Pss"], most=found["VmHWM"])


def write_matmuls(path: Path, parameters: int) -> None:
    """Return a chain of matrix multiplications with this many parameters in all; the weights are in a separate file."""
    import onnx
    from onnx import TensorProto, helper

    rng = np.random.default_rng(0)
    nodes, weights = [], []
    beside = path.with_suffix(".weights")
    with beside.open("wb") as file:
        for number in range(max(1, round(parameters / SIDE**2))):
            matrix = rng.standard_normal((SIDE, SIDE), np.float32) / np.float32(SIDE**0.5)
            held = TensorProto(name=f"w{number}", dims=matrix.shape, data_type=TensorProto.FLOAT)
            held.data_location = TensorProto.EXTERNAL
            for key, value in (("location", beside.name), ("offset", file.tell()), ("length", matrix.nbytes)):
                held.external_data.add(key=key, value=str(value))
            file.write(matrix.data)
            weights.append(held)
            nodes.append(helper.make_node("MatMul", [f"x{number}", held.name], [f"m{number}"]))
            nodes.append(helper.make_node("Relu", [f"m{number}"], [f"x{number + 1}"]))
    ends = [helper.make_tensor_value_info(name, 1, [ROWS, SIDE]) for name in ("x0", nodes[-1].output[0])]
    graph = helper.make_graph(nodes, "matmuls", ends[:1], ends[1:], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))


def write_model(name: str, path: Path) -> None:
    """Return a model by its name, as an ONNX file."""
    if name.startswith(MATMULS):
        write_matmuls(path, int(name.removeprefix(MATMULS)) * 10**6)
    else:
        path.write_bytes(with_random_weights(name).SerializeToString())


# ---- in a separate process -------------------------------------------------------------------------------------------


def compiled(path: str, target: str) -> None:
    """Compile a model, save it, and print the memory used."""
    import tvm_tiling as tt
    import tvm_tiling.frontend.onnx.import_onnx
    import tvm_tiling.model.compilation

    base = used()
    executable = tt.compile(path, cache=False)
    use = used().beyond(base)
    executable.save(target)
    print(json.dumps({**asdict(use), "base": base.resident, "planned": executable.report().memory.to_dict()}))


def ran(path: str) -> None:
    """Load a saved model, run it, and print the memory used."""
    import tvm_tiling as tt
    import tvm_tiling.model.load

    base = used()
    executable = tt.load(path)
    _repeat(lambda feed: executable.run(*feed), executable.signature.input_shapes)
    _tell(base)


def ran_in_onnxruntime(path: str) -> None:
    """Create a session of a model, run it, and print the memory used."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    base = used()
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [given.name for given in session.get_inputs()]
    shapes = [given.shape for given in session.get_inputs()]
    _repeat(lambda feed: session.run(None, dict(zip(names, feed, strict=True))), shapes)
    _tell(base)


def _repeat(run: Any, shapes: Sequence[Sequence[int]]) -> None:
    rng = np.random.default_rng(1)
    feed = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    for _ in range(RUNS):
        run(feed)


def _tell(base: Use) -> None:
    """Print the memory used when a line arrives, and end when the other processes have done so, too."""
    print("ready", flush=True)
    sys.stdin.readline()
    print(json.dumps({"base": asdict(base), "total": asdict(used())}), flush=True)
    sys.stdin.read()


STEPS = {"compile": compiled, "run": ran, "onnxruntime": ran_in_onnxruntime}


# ---- the whole measurement -------------------------------------------------------------------------------------------


def compile_use(model: Path, target: Path) -> dict[str, Any]:
    """Return the memory of a process that compiles a model into `target`, with "base", the resident memory before, and
    "planned", what the executable reports."""
    with _started("compile", model, target) as process:
        out, errors = process.communicate()
    if process.returncode:
        raise RuntimeError(errors[-2000:])
    found: dict[str, Any] = json.loads(out)
    return found


def run_use(step: str, path: Path, processes: int = 1) -> list[tuple[Use, Use]]:
    """Return the memory of each of several processes that run the same model at once: after the imports, and in
    total."""
    started = [_started(step, path) for _ in range(processes)]
    try:
        for process in started:
            process.stdout.readline()  # type: ignore[union-attr]
        answers = []
        for process in started:
            print(file=process.stdin, flush=True)
            answers.append(process.stdout.readline())  # type: ignore[union-attr]
        plain = [json.loads(answer) for answer in answers]
    finally:
        errors = [process.communicate()[1] for process in started]
        if any(process.returncode for process in started):
            raise RuntimeError(max(errors)[-2000:])
    return [(Use(**known["base"]), Use(**known["total"])) for known in plain]


def _started(step: str, *paths: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "benchmarks.memory", "--step", step, *map(str, paths)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def measured(name: str, folder: Path) -> dict[str, Any]:
    """Return all figures of a model by its name, in bytes."""
    model, saved = folder / "model.onnx", folder / "model.tar"
    write_model(name, model)
    entry: dict[str, Any] = {"model": name, "compile": compile_use(model, saved)}
    for step, path in (("run", saved), ("onnxruntime", model)):
        try:
            [(base, total)] = run_use(step, path)
            both = run_use(step, path, 2)
        except (RuntimeError, ValueError) as error:
            entry[step] = {"failed": str(error).strip().splitlines()[-1]}
            continue
        entry[step] = {
            "alone": asdict(total.beyond(base)),
            "base": base.resident,
            "two": asdict(replace(both[0][1], most=0)),
        }
    return entry


def lines(entry: dict[str, Any]) -> list[str]:
    """Format the figures of a model."""
    planned, made = entry["compile"]["planned"], entry["compile"]
    packed = planned["weights"] + planned["constants"]
    told = [
        f"{entry['model']}: {_mib(packed)} of packed weights, activations {_mib(planned['activations'])}",
        f"  compile: peak {_mib(made['most'])} ({made['most'] / packed:.2f} x the weights), "
        f"afterwards {_mib(made['resident'])}; imports {_mib(made['base'])}",
    ]
    for step, title in (("run", "load and run"), ("onnxruntime", "onnxruntime")):
        found = entry[step]
        if "failed" in found:
            told.append(f"  {title}: {found['failed']}")
            continue
        alone, two = found["alone"], found["two"]
        told.append(
            f"  {title}: {_mib(alone['resident'])} ({alone['resident'] / planned['total']:.2f} x weights and "
            f"activations), {_mib(alone['own'])} private, peak {_mib(alone['most'])}; imports "
            f"{_mib(found['base'])}; each of two processes, imports included: resident {_mib(two['resident'])}, "
            f"proportional {_mib(two['proportional'])}"
        )
    return told


def _mib(size: int) -> str:
    return f"{size / (1 << 20):.0f} MiB"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print every model."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory", description=__doc__)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"default: {', '.join(DEFAULT)}")
    parser.add_argument("--json", type=Path, default=Path("results/memory.json"), help="default: %(default)s")
    parser.add_argument("--step", choices=STEPS, help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    if chosen.step is not None:
        STEPS[chosen.step](*chosen.models)
        return 0
    names = chosen.models or DEFAULT
    for name in names:
        if name not in NETWORKS and not (name.startswith(MATMULS) and name.removeprefix(MATMULS).isdigit()):
            parser.error(f"no model {name!r}; expected {', '.join(NETWORKS)}, {MATMULS}N")
    entries = []
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            entries.append(measured(name, Path(folder)))
        print(*lines(entries[-1]), sep="\n", flush=True)
        result = {"format": FORMAT, "version": VERSION, "machine": machine_record(this_machine()), "models": entries}
        write_whole(chosen.json, json.dumps(result, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
