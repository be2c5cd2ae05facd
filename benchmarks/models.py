"""Whole models compared with onnxruntime and PyTorch: python -m benchmarks.models --json results/models.json

Measures the nine networks of the onnx package, whose constant weights are replaced by random ones that keep the
magnitude of activations, and networks of PyTorch (torch_networks.py), compiled from torch.export and compared with the
same network in onnxruntime and in PyTorch. Outputs are compared before timing. Both sides use all cores and run
alternately.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tvm_tiling.measure import Condition, Side, Status, StopRule, first_line, machine_record, paired
from tvm_tiling.runtime.threads import default_thread_count, own_core

from .onnx_networks import NETWORKS, with_random_weights
from .peers.onnxruntime_peer import session_options
from .peers.openvino_network import openvino_network
from .peers.tvm_operator import this_machine
from .result import write_whole
from .run import SETTLE
from .summary import geometric_mean

FORMAT = "tvm-tiling-models"
VERSION = 2
TORCH_NETWORKS = ("bert_128", "bert_384", "vit_small", "unet", "unet_bilinear", "mobilenet_v2", "detector")
EVERY = (*NETWORKS, *TORCH_NETWORKS)
# Largest accepted difference relative to the largest output: leaves room for Winograd's rounding through many layers.
TOLERANCE = 1e-3


Outputs = Sequence[np.ndarray]


@dataclass(frozen=True)
class Subject:
    """A network as it is compiled here, its inputs, functions that run it in each peer, by name, and the network as an
    ONNX file."""

    model: Any
    inputs: tuple[np.ndarray, ...]
    peers: dict[str, Callable[[], Outputs]]
    onnx: bytes = b""


def subject(name: str) -> Subject:
    """Prepare one of NETWORKS or of TORCH_NETWORKS to be compiled and compared."""
    if name in TORCH_NETWORKS:
        return _from_torch(name)
    model = with_random_weights(name)
    content = model.SerializeToString()
    session = _session(content)
    shape = session.get_inputs()[0].shape
    inputs = (np.random.default_rng(1).standard_normal(shape).astype(np.float32),)
    return Subject(model, inputs, {"onnxruntime": _in_onnxruntime(session, inputs)}, content)


def _from_torch(name: str) -> Subject:
    from .torch_networks import NETWORKS as BUILDERS
    from .torch_networks import seeded

    network = seeded(BUILDERS[name])
    return torch_subject(network.module, network.inputs)


def torch_subject(module: Any, given: Sequence[Any]) -> Subject:
    """Prepare a module with its inputs for onnxruntime and PyTorch; its outputs are a tensor or a tuple of tensors."""
    import torch

    torch.set_num_threads(default_thread_count())
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(module, tuple(given))
        torch.onnx.export(module, tuple(given), file, dynamo=False)
    inputs = tuple(tensor.numpy() for tensor in given)

    def eager() -> Outputs:
        with torch.inference_mode():
            result = module(*given)
        return [tensor.numpy() for tensor in (result if isinstance(result, tuple) else (result,))]

    peers = {"onnxruntime": _in_onnxruntime(_session(file.getvalue()), inputs), "torch": eager}
    return Subject(program, inputs, peers, file.getvalue())


def beside_openvino(name: str) -> Subject:
    """Add OpenVINO in float32 to the peers."""
    known = subject(name)
    in_openvino = openvino_network(known.onnx, known.inputs, "float32")
    return replace(known, peers={**known.peers, "openvino": in_openvino})


def _session(content: bytes) -> Any:
    import onnxruntime

    options = session_options()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(content, options)


def _in_onnxruntime(session: Any, inputs: Sequence[np.ndarray]) -> Callable[[], Outputs]:
    feed = {given.name: value for given, value in zip(session.get_inputs(), inputs, strict=True)}
    return lambda: session.run(None, feed)


def compare(name: str, rule: StopRule, make: Callable[[str], Subject] = subject) -> dict[str, Any]:
    """Measure the network made by `make`: seconds of both sides and their ratio for each peer, and the compile time."""
    import tvm_tiling as tt

    entry: dict[str, Any] = {"network": name}
    try:
        known = make(name)
        start = time.perf_counter()
        executable = tt.compile(known.model, cache=False)
        entry["compile_seconds"] = time.perf_counter() - start
        result = executable.run(*known.inputs)
        outputs = result if isinstance(result, tuple) else (result,)
        entry["difference"] = max(_difference(outputs, run()) for run in known.peers.values())
        if not entry["difference"] <= TOLERANCE:
            return {**entry, "status": "wrong result"}
        entry["peers"] = {}
        for peer, run in known.peers.items():
            pair = paired(
                Side(lambda: executable.run(*known.inputs), own_core), Side(run), rule, Condition(settle=SETTLE)
            )
            if pair.status is not Status.OK:
                return {**entry, "status": pair.status.value, "reason": f"{peer}: {pair.reason}"}
            entry["peers"][peer] = pair.to_dict()
        return {**entry, "status": "ok"}
    except Exception as error:
        return {**entry, "status": "failed", "reason": first_line(error)}


def _difference(ours: Outputs, theirs: Outputs) -> float:
    """Return the largest difference of any output, relative to its largest element."""
    scales = [max(float(np.abs(value).max()), 1e-30) for value in theirs]
    pairs = zip(ours, theirs, scales, strict=True)
    return max(float(np.abs(own - value).max() / scale) for own, value, scale in pairs)


def line(entry: dict[str, Any]) -> str:
    if entry["status"] != "ok":
        return f"{entry['network']:<14} {entry['status']}: {entry.get('reason') or entry.get('difference')}"
    beside = "; ".join(
        f"{pair['ours']['seconds'] * 1e3:.2f} ms, {peer} {pair['peer']['seconds'] * 1e3:.2f} ms, "
        f"relative latency {1 / pair['ratio']:.2f}"
        for peer, pair in entry["peers"].items()
    )
    return (
        f"{entry['network']:<14} compiled in {entry['compile_seconds']:5.1f} s, differs by {entry['difference']:.0e}; "
        f"{beside}"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print one line for each network and the geometric mean. Returns 1 if anything failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.models", description=__doc__)
    parser.add_argument("networks", nargs="*", metavar="NETWORK", help=f"default: all of {', '.join(EVERY)}")
    parser.add_argument("--openvino", action="store_true", help="compare with OpenVINO in float32, too")
    parser.add_argument("--json", type=Path, default=Path("results/models.json"), help="default: %(default)s")
    parser.add_argument(
        "--seconds", type=float, default=4.0, help="time limit per pair in seconds; default: %(default)s"
    )
    chosen = parser.parse_args(arguments)
    if unknown := set(chosen.networks) - set(EVERY):
        parser.error(f"no network {min(unknown)!r}; expected {', '.join(EVERY)}")
    entries = []
    for name in chosen.networks or EVERY:
        made = beside_openvino if chosen.openvino else subject
        entries.append(compare(name, StopRule(most_seconds=chosen.seconds), made))
        print(line(entries[-1]), flush=True)
        result = {"format": FORMAT, "version": VERSION, "machine": machine_record(this_machine()), "networks": entries}
        write_whole(chosen.json, json.dumps(result, indent=1))
    compared = [entry for entry in entries if entry["status"] == "ok"]
    for peer in dict.fromkeys(peer for entry in compared for peer in entry["peers"]):
        ratios = [1 / entry["peers"][peer]["ratio"] for entry in compared if peer in entry["peers"]]
        print(f"geometric mean of {len(ratios)}: latency {geometric_mean(ratios):.2f} relative to {peer}")
    return 0 if len(compared) == len(entries) else 1


if __name__ == "__main__":
    sys.exit(main())
