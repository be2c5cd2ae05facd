"""Quantised networks compared with float32, onnxruntime and OpenVINO: python -m benchmarks.quantised squeezenet

Networks of the onnx package with random weights, and of PyTorch (models.py), are quantised by onnxruntime's quantizer
(pairs of QuantizeLinear and DequantizeLinear, with a scale for each output channel of a weight). Prints the
milliseconds of both sides and the largest difference from the result of onnxruntime without graph optimisations,
compared with that of onnxruntime with them.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tvm_tiling.measure import Condition, Side, Status, StopRule, machine_record, paired
from tvm_tiling.runtime.threads import own_core

from .models import EVERY, subject
from .onnx_networks import NETWORKS, with_random_weights
from .peers.onnxruntime_peer import session_options
from .peers.openvino_network import openvino_network
from .peers.tvm_operator import this_machine
from .result import write_whole
from .run import SETTLE
from .summary import geometric_mean

USUAL = ("resnet50", "squeezenet", "shufflenet", "mobilenet_v2", "densenet121")
VERSION_13 = 13  # of the standard operators, the first with a scale for each channel
CALIBRATION = 3  # number of random inputs
SIDES = ("float32", "onnxruntime", "openvino")
FORMAT, VERSION = "tvm-tiling-quantised", 1


def float_model(name: str) -> Any:
    """Return a network of the onnx package with opset 13 whose weights are not inputs, or one of PyTorch as PyTorch
    exports it."""
    import onnx.version_converter

    if name not in NETWORKS:
        return onnx.load_from_string(subject(name).onnx)
    model = with_random_weights(name)
    weights = {tensor.name for tensor in model.graph.initializer}
    given = [value for value in model.graph.input if value.name not in weights]
    del model.graph.input[:]
    model.graph.input.extend(given)
    model.ir_version = 8
    return onnx.version_converter.convert_version(model, VERSION_13)


def quantised(model: Any, folder: Path, *, activations: str = "QUInt8") -> Path:
    """Return the file of the model quantised by onnxruntime: activations of the given type, int8 weights."""
    import onnx
    from onnxruntime import quantization as ort
    from onnxruntime.quantization.shape_inference import quant_pre_process

    source, ready, target = (folder / f"{name}.onnx" for name in ("float", "ready", "quantised"))
    onnx.save(model, str(source))
    quant_pre_process(str(source), str(ready), skip_symbolic_shape=True)

    class Data(ort.CalibrationDataReader):
        def __init__(self) -> None:
            rng = np.random.default_rng(0)
            self._left: Iterator[dict[str, np.ndarray]] = iter([_inputs(model, rng) for _ in range(CALIBRATION)])

        def get_next(self) -> dict[str, np.ndarray] | None:
            return next(self._left, None)

    ort.quantize_static(
        str(ready),
        str(target),
        Data(),
        quant_format=ort.QuantFormat.QDQ,
        per_channel=True,
        activation_type=getattr(ort.QuantType, activations),
        weight_type=ort.QuantType.QInt8,
        extra_options={"TensorQuantOverrides": _whole_vectors(onnx.load(str(ready)), ort.QuantType.QInt8)},
    )
    return target


def _whole_vectors(model: Any, weight_type: Any) -> dict[str, list[dict[str, Any]]]:
    """Return options that tell the quantizer not to quantise the factors of a normalisation by channel. It does so
    anyway, but warns about each."""
    vectors = {tensor.name for tensor in model.graph.initializer if len(tensor.dims) < 2}
    factors = {node.input[1] for node in model.graph.node if node.op_type.endswith("Normalization")}
    return {name: [{"quant_type": weight_type}] for name in sorted(vectors & factors)}


def _inputs(model: Any, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Return random numbers for a model's inputs; zeros for integers, such as masks."""
    import onnx

    found = {}
    for given in model.graph.input:
        tensor = given.type.tensor_type
        shape = [axis.dim_value for axis in tensor.shape.dim]
        kind = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        found[given.name] = (rng.standard_normal(shape) if kind.kind == "f" else np.zeros(shape)).astype(kind)
    return found


def compare(name: str, rule: StopRule, openvino: bool) -> dict[str, Any]:
    """Return the seconds of both sides of each pair, and differences of results relative to their largest element."""
    import onnxruntime

    import tvm_tiling as tt

    with tempfile.TemporaryDirectory() as folder:
        model = float_model(name)
        path = quantised(model, Path(folder))
        plain = session_options()
        plain.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        exact, session = (onnxruntime.InferenceSession(str(path), options) for options in (plain, session_options()))
        feed = _inputs(model, np.random.default_rng(1))
        given = tuple(feed.values())
        by_integers, by_floats = tt.compile(str(path), cache=False), tt.compile(model, cache=False)
        in_openvino = openvino_network(path.read_bytes(), given) if openvino else None
    want = exact.run(None, feed)
    entry: dict[str, Any] = {
        "network": name,
        "differs": _difference(by_integers.run(*given), want),
        "onnxruntime_differs": _difference(session.run(None, feed), want),
    }
    sides = {
        "float32": Side(lambda: by_floats.run(*given), own_core),
        "onnxruntime": Side(lambda: session.run(None, feed)),
    }
    if in_openvino is not None:
        entry["openvino_differs"] = _difference(in_openvino(), want)
        sides["openvino"] = Side(in_openvino)
    for peer, side in sides.items():
        pair = paired(Side(lambda: by_integers.run(*given), own_core), side, rule, Condition(settle=SETTLE))
        entry[peer] = pair.to_dict() if pair.status is Status.OK else pair.reason
    return entry


def _difference(ours: Any, theirs: Sequence[np.ndarray]) -> float:
    outputs = ours if isinstance(ours, tuple | list) else (ours,)
    return max(
        float(np.abs(own - other).max() / max(np.abs(other).max(), 1e-30))
        for own, other in zip(outputs, theirs, strict=True)
    )


def line(entry: dict[str, Any]) -> str:
    """Format an entry as text."""
    beside = "; ".join(
        f"{entry[peer]['ours']['seconds'] * 1e3:.2f} ms, {entry[peer]['peer']['seconds'] * 1e3:.2f} ms, "
        f"{1 / entry[peer]['ratio']:.2f}"
        if isinstance(entry[peer], dict)
        else f"{peer}: {entry[peer]}"
        for peer in SIDES
        if peer in entry
    )
    return (
        f"{entry['network']:<14} {beside}; difference {entry['differs']:.0e}, of onnxruntime with optimisations "
        f"{entry['onnxruntime_differs']:.0e}"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", metavar="NETWORK", help=f"default: {', '.join(USUAL)}")
    parser.add_argument(
        "--openvino", action="store_true", help="compare with OpenVINO, too; 2026.4 crashes on densenet121"
    )
    parser.add_argument("--json", type=Path, default=Path("results/quantised.json"), help="default: %(default)s")
    parser.add_argument(
        "--seconds", type=float, default=4.0, help="time limit per pair in seconds; default: %(default)s"
    )
    chosen = parser.parse_args(arguments)
    if unknown := set(chosen.networks) - set(EVERY):
        parser.error(f"no network {min(unknown)!r}; expected {', '.join(EVERY)}")
    entries = []
    for name in chosen.networks or USUAL:
        entries.append(compare(name, StopRule(most_seconds=chosen.seconds), chosen.openvino))
        print(line(entries[-1]), flush=True)
        result = {"format": FORMAT, "version": VERSION, "machine": machine_record(this_machine()), "networks": entries}
        write_whole(chosen.json, json.dumps(result, indent=1))
    for peer in SIDES:
        ratios = [1 / entry[peer]["ratio"] for entry in entries if isinstance(entry.get(peer), dict)]
        if ratios:
            print(f"geometric mean of {len(ratios)}: latency {geometric_mean(ratios):.2f} relative to {peer}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
