"""Networks in other precisions compared with float32: python -m benchmarks.precision squeezenet

Networks of the onnx package with random weights, and of PyTorch (models.py), compiled with precision="bfloat16",
"float16" and "int8". Each alternates with float32 and is compared with its results, on another input than those of
calibration. The last output is compared, or the logits if the network ends in a softmax, which would magnify the
differences.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tvm_tiling.errors import TilingError
from tvm_tiling.measure import Condition, Side, Status, StopRule, machine_record, paired
from tvm_tiling.model.precision.record import PRECISIONS
from tvm_tiling.runtime.threads import own_core

from .models import EVERY, subject
from .onnx_networks import NETWORKS
from .peers.openvino_network import PRECISIONS as IN_OPENVINO
from .peers.openvino_network import openvino_network
from .peers.tvm_operator import this_machine
from .result import write_whole
from .run import SETTLE
from .summary import geometric_mean

USUAL = (*NETWORKS, "bert_128", "bert_384")
OTHERS = PRECISIONS[1:-1]
CALIBRATION = 3  # number of random inputs
FORMAT, VERSION = "tvm-tiling-precision", 1


def compare(name: str, precisions: Sequence[str], rule: StopRule, openvino: bool) -> dict[str, Any]:
    """Return for each precision the pair of times, the pair with OpenVINO if requested and supported, and the norm of
    the difference relative to that of the float32 result."""
    import tvm_tiling as tt

    network = subject(name)
    plain = tt.compile(network.model)
    rng = np.random.default_rng(7)
    given = [tuple(map(np.asarray, (_like(rng, array) for array in network.inputs))) for _ in range(CALIBRATION)]
    right = _last(plain.run(*network.inputs))
    entry: dict[str, Any] = {"network": name}
    for precision in precisions:
        try:
            other = tt.compile(network.model, precision=precision, calibration=given)
        except TilingError as error:
            entry[precision] = str(error)
            continue
        difference = _last(other.run(*network.inputs)) - right
        ours, theirs = (Side(partial(e.run, *network.inputs), own_core) for e in (other, plain))
        entry[precision] = {
            "error": _norm(difference) / _norm(right),
            "left": list(other.precision.left),
            "pair": _pair(ours, theirs, rule),
        }
        if openvino and precision in IN_OPENVINO:
            run = openvino_network(network.onnx, network.inputs, precision)
            entry[precision]["openvino_error"] = _norm(_last(run()) - right) / _norm(right)
            entry[precision]["openvino"] = _pair(ours, Side(run), rule)
    return entry


def _pair(ours: Side, theirs: Side, rule: StopRule) -> dict[str, Any] | str:
    """Return the times of both sides, or the reason why they could not be measured."""
    pair = paired(ours, theirs, rule, Condition(settle=SETTLE))
    return pair.to_dict() if pair.status is Status.OK else pair.reason


def _norm(array: np.ndarray) -> float:
    return float(np.linalg.norm(array))


def _like(rng: np.random.Generator, array: np.ndarray) -> np.ndarray:
    """Return random numbers for an input of the network; integer inputs keep the network's own values."""
    return rng.standard_normal(array.shape).astype(array.dtype) if array.dtype.kind == "f" else array


def _last(outputs: Any) -> np.ndarray:
    last = outputs[-1] if isinstance(outputs, tuple | list) else outputs
    return np.asarray(last, np.float64)


def line(entry: dict[str, Any]) -> str:
    """Format an entry as text."""
    parts = []
    for name in OTHERS:
        found = entry.get(name)
        if isinstance(found, dict) and isinstance(found["pair"], dict):
            ours, theirs = (found["pair"][side]["seconds"] * 1e3 for side in ("ours", "peer"))
            left = f", {len(found['left'])} layers in float32" if found["left"] else ""
            parts.append(
                f"{name} {ours:.2f} ms, float32 {theirs:.2f}, {1 / found['pair']['ratio']:.2f}, "
                f"error {found['error']:.1e}{left}{_beside_openvino(found)}"
            )
        elif found is not None:
            parts.append(f"{name}: {found if isinstance(found, str) else found['pair']}")
    return f"{entry['network']:<14} " + "; ".join(parts)


def _beside_openvino(found: dict[str, Any]) -> str:
    if "openvino" not in found:
        return ""
    pair, error = found["openvino"], f"error {found['openvino_error']:.1e}"
    if isinstance(pair, str):
        return f", OpenVINO: {pair}, {error}"
    return f", OpenVINO {pair['peer']['seconds'] * 1e3:.2f} ms, {1 / pair['ratio']:.2f}, {error}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line for each network, and geometric means. Writes all figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", metavar="NETWORK", help=f"default: {', '.join(USUAL)}")
    parser.add_argument("--precision", action="append", choices=OTHERS, help="may be repeated; default: all")
    parser.add_argument("--openvino", action="store_true", help="compare with OpenVINO in the same precision, too")
    parser.add_argument("--json", type=Path, default=Path("results/precision.json"), help="default: %(default)s")
    parser.add_argument(
        "--seconds", type=float, default=3.0, help="time limit per pair in seconds; default: %(default)s"
    )
    chosen = parser.parse_args(arguments)
    if unknown := set(chosen.networks) - set(EVERY):
        parser.error(f"no network {min(unknown)!r}; expected {', '.join(EVERY)}")
    precisions, entries = chosen.precision or OTHERS, []
    for name in chosen.networks or USUAL:
        entries.append(compare(name, precisions, StopRule(most_seconds=chosen.seconds), chosen.openvino))
        print(line(entries[-1]), flush=True)
        result = {"format": FORMAT, "version": VERSION, "machine": machine_record(this_machine()), "networks": entries}
        write_whole(chosen.json, json.dumps(result, indent=1))
    for name in precisions:
        for side, peer in (("pair", "float32"), ("openvino", "OpenVINO")):
            pairs = [entry[name].get(side) for entry in entries if isinstance(entry[name], dict)]
            ratios = [1 / pair["ratio"] for pair in pairs if isinstance(pair, dict)]
            if ratios:
                print(
                    f"{name}: latency {geometric_mean(ratios):.2f} relative to {peer}, geometric mean of {len(ratios)}"
                )
    return 0


if __name__ == "__main__":
    sys.exit(main())
