"""A network on disk, as every peer's process finds it: an ONNX model, inputs, the outputs that are expected."""

from __future__ import annotations

import io
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from . import zoo
from .onnx_networks import with_random_weights

MODEL, INPUTS, OUTPUTS = "model.onnx", "inputs.npz", "outputs.npz"


@dataclass(frozen=True)
class Network:
    """One of zoo.EVERY with its batch; `folder` holds its files and what peers converted it to."""

    name: str
    batch: int
    folder: Path

    @property
    def onnx(self) -> Path:
        """The model in ONNX."""
        return self.folder / MODEL

    @property
    def from_torch(self) -> bool:
        """Whether it is a module of PyTorch, and not one of the onnx package."""
        return self.name not in zoo.OF_ONNX

    def inputs(self) -> tuple[np.ndarray, ...]:
        """What it is run with, in the order of its inputs."""
        return _arrays(self.folder / INPUTS)

    def outputs(self) -> tuple[np.ndarray, ...]:
        """What it gives for its inputs, by PyTorch or, of the onnx package, by onnxruntime."""
        return _arrays(self.folder / OUTPUTS)

    def build(self) -> zoo.Built:
        """The module of PyTorch; its inputs are those of the files."""
        return zoo.build(self.name, self.batch)

    def write(self) -> None:
        """Make the files, unless they are there."""
        if (self.folder / OUTPUTS).is_file():
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        content, inputs, outputs = self._from_torch() if self.from_torch else self._of_onnx()
        self.onnx.write_bytes(content)
        _save(self.folder / INPUTS, inputs)
        _save(self.folder / OUTPUTS, outputs)  # last: it says that all are there

    def _from_torch(self) -> tuple[bytes, list[np.ndarray], list[np.ndarray]]:
        import torch

        built = self.build()
        with torch.inference_mode():
            outputs = as_arrays(built.module(*built.inputs))
        file = io.BytesIO()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(built.module, built.inputs, file, dynamo=False, opset_version=17)
        return file.getvalue(), [tensor.numpy() for tensor in built.inputs], outputs

    def _of_onnx(self) -> tuple[bytes, list[np.ndarray], list[np.ndarray]]:
        import onnxruntime

        content = with_random_weights(self.name).SerializeToString()
        session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
        (given,) = session.get_inputs()
        data = np.random.default_rng(1).standard_normal(given.shape).astype(np.float32)
        return content, [data], session.run(None, {given.name: data})


def as_arrays(result: Any) -> list[np.ndarray]:
    """Outputs of a module of PyTorch as arrays."""
    return [tensor.detach().numpy() for tensor in (result if isinstance(result, tuple | list) else (result,))]


def _save(path: Path, arrays: list[np.ndarray]) -> None:
    np.savez(path, **{f"{number:02}": array for number, array in enumerate(arrays)})


def _arrays(path: Path) -> tuple[np.ndarray, ...]:
    with np.load(path, allow_pickle=False) as kept:
        return tuple(np.ascontiguousarray(kept[name]) for name in sorted(kept.files))
