"""Whole models beside onnxruntime: python -m benchmarks.models --json results/models.json

The nine networks that come with the onnx package, whose weights are constants there; here they get random ones, drawn
so that activations stay of one size. Outputs are compared before times are. Both sides use all cores and take turns.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tvm_tiling.lowering.threads import own_core, usable_core_count
from tvm_tiling.measure import Condition, Side, StopRule, first_line, machine_record, paired

from .peers.tvm_operator import this_machine
from .result import write_whole
from .run import SETTLE
from .summary import geometric_mean

FORMAT = "tvm-tiling-models"
VERSION = 1
NETWORKS = (
    "bvlc_alexnet",
    "densenet121",
    "inception_v1",
    "inception_v2",
    "resnet50",
    "shufflenet",
    "squeezenet",
    "vgg19",
    "zfnet512",
)
# Largest difference accepted, beside the largest output: room for Winograd's rounding through many layers.
TOLERANCE = 1e-3


def with_random_weights(name: str, seed: int = 0) -> Any:
    """One of NETWORKS as an onnx.ModelProto whose constant weights are random numbers instead."""
    import onnx
    import onnx.backend.test

    path = Path(onnx.backend.test.__file__).parent / "data" / "light" / f"light_{name}.onnx"
    model = onnx.load(str(path))
    rng = np.random.default_rng(seed)
    shapes = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
    kept = []
    for node in model.graph.node:
        if node.op_type == "ConstantOfShape" and node.input[0] in shapes:
            weights = _weights(rng, tuple(int(size) for size in shapes[node.input[0]]))
            model.graph.initializer.append(onnx.numpy_helper.from_array(weights, node.output[0]))
        else:
            kept.append(node)
    del model.graph.node[:]
    model.graph.node.extend(kept)
    return model


def _weights(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """Kernels that keep the variance of what passes them; vectors, such as variances, around 1."""
    if len(shape) < 2:
        return rng.uniform(0.5, 1.5, shape).astype(np.float32)
    inputs = int(np.prod(shape[1:]))
    return (rng.standard_normal(shape) * np.sqrt(2 / inputs)).astype(np.float32)


def compare(name: str, rule: StopRule) -> dict[str, Any]:
    """One network: seconds of either side, their ratio, ours' time to compile cold and from the cache."""
    import onnxruntime

    import tvm_tiling as tt

    entry: dict[str, Any] = {"network": name}
    try:
        model = with_random_weights(name)
        start = time.perf_counter()
        executable = tt.compile(model, cache=False)
        entry["compile_seconds"] = time.perf_counter() - start
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = usable_core_count()
        options.log_severity_level = 3
        session = onnxruntime.InferenceSession(model.SerializeToString(), options)
        signature = executable.signature
        x = np.random.default_rng(1).standard_normal(signature.input_shapes[0]).astype(np.float32)
        feed = {session.get_inputs()[0].name: x}
        want, got = session.run(None, feed)[0], executable.run(x)
        entry["difference"] = float(np.abs(want - got).max() / max(float(np.abs(want).max()), 1e-30))
        if not entry["difference"] <= TOLERANCE:
            return {**entry, "status": "wrong result"}
        pair = paired(
            Side(lambda: executable.run(x), own_core),
            Side(lambda: session.run(None, feed)),
            rule,
            Condition(settle=SETTLE),
        )
        return {**entry, **pair.to_dict()}
    except Exception as error:
        return {**entry, "status": "failed", "reason": first_line(error)}


def _line(entry: dict[str, Any]) -> str:
    if entry["status"] != "ok":
        return f"{entry['network']:<14} {entry['status']}: {entry.get('reason') or entry.get('difference')}"
    ours, theirs = (entry[side]["seconds"] * 1e3 for side in ("ours", "peer"))
    return (
        f"{entry['network']:<14} compiled in {entry['compile_seconds']:5.1f} s, differs by {entry['difference']:.0e}; "
        f"ours {ours:7.2f} ms, onnxruntime {theirs:7.2f} ms: {1 / entry['ratio']:.2f} of its time"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print one line for each network and the geometric mean; 1 if anything failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.models", description=__doc__)
    parser.add_argument("networks", nargs="*", metavar="NETWORK", help=f"left out: all of {', '.join(NETWORKS)}")
    parser.add_argument("--json", type=Path, default=Path("results/models.json"), help="default: %(default)s")
    parser.add_argument("--seconds", type=float, default=4.0, help="longest time for one pair; default: %(default)s")
    chosen = parser.parse_args(arguments)
    if unknown := set(chosen.networks) - set(NETWORKS):
        parser.error(f"no network {min(unknown)!r}; accepted: {', '.join(NETWORKS)}")
    entries = []
    for name in chosen.networks or NETWORKS:
        entries.append(compare(name, StopRule(most_seconds=chosen.seconds)))
        print(_line(entries[-1]), flush=True)
        result = {"format": FORMAT, "version": VERSION, "machine": machine_record(this_machine()), "networks": entries}
        write_whole(chosen.json, json.dumps(result, indent=1))
    ratios = [1 / entry["ratio"] for entry in entries if entry["status"] == "ok"]
    if ratios:
        print(f"geometric mean of {len(ratios)}: {geometric_mean(ratios):.2f} of onnxruntime's time")
    return 0 if len(ratios) == len(entries) else 1


if __name__ == "__main__":
    sys.exit(main())
