"""The nine networks of the onnx package, with random weights that keep the magnitude of activations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

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


def with_random_weights(name: str, seed: int = 0) -> Any:
    """Return one of NETWORKS as an onnx.ModelProto whose constant weights are random."""
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
    taken = {name for node in kept for name in node.input}
    for entries in (model.graph.initializer, model.graph.input):  # without the shapes of weights
        held = [entry for entry in entries if entry.name in taken]
        del entries[:]
        entries.extend(held)
    if kept[-1].op_type == "Softmax":
        # After random weights softmax yields zeros and a single one, which is useless for comparison: its input becomes
        # an output, too.
        logits = onnx.helper.make_tensor_value_info(kept[-1].input[0], onnx.TensorProto.FLOAT, None)
        model.graph.output.append(logits)
    return model


def _weights(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """Return weights that preserve the variance of activations; vectors, such as variances, are around 1."""
    if len(shape) < 2:
        return rng.uniform(0.5, 1.5, shape).astype(np.float32)
    inputs = int(np.prod(shape[1:]))
    return (rng.standard_normal(shape) * np.sqrt(2 / inputs)).astype(np.float32)
