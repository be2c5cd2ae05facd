"""A network on disk, as every peer's process reads it: an ONNX model, inputs and expected outputs."""

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
    """One of zoo.EVERY with its batch size; `folder` contains its files and what peers converted it to."""

    name: str
    batch: int
    folder: Path

    @property
    def onnx(self) -> Path:
        """Path of the ONNX model."""
        return self.folder / MODEL

    @property
    def from_torch(self) -> bool:
        """Whether it is a PyTorch module and not one of the onnx package's networks."""
        return self.name not in zoo.OF_ONNX

    def inputs(self) -> tuple[np.ndarray, ...]:
        """Arrays of its inputs, in the model's order."""
        return _arrays(self.folder / INPUTS)

    def outputs(self) -> tuple[np.ndarray, ...]:
        """Expected outputs for its inputs, computed by PyTorch or, for the onnx package's networks, by onnxruntime."""
        return _arrays(self.folder / OUTPUTS)

    def build(self) -> zoo.Built:
        """Return the PyTorch module; its inputs are those in the files. ValueError: the model exists in ONNX only."""
        if self.name in zoo.OF_ONNX:  # torchvision has networks of the same names, but not these models
            raise ValueError(f"{self.name} is an ONNX model of the onnx package; expected a network of PyTorch")
        return zoo.build(self.name, self.batch)

    def write(self) -> None:
        """Create the files unless they exist."""
        if (self.folder / OUTPUTS).is_file():
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        content, inputs, outputs = self._from_torch() if self.from_torch else self._of_onnx()
        self.onnx.write_bytes(content)
        save(self.folder / INPUTS, inputs)
        save(self.folder / OUTPUTS, outputs)  # last: its presence shows that all files are complete

    def _from_torch(self) -> tuple[bytes, list[np.ndarray], list[np.ndarray]]:
        import torch

        built = self.build()
        with torch.no_grad():  # some networks keep tensors of a run, which must not be those of inference mode
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
    """Convert the outputs of a PyTorch module to arrays."""
    return [tensor.detach().numpy() for tensor in (result if isinstance(result, tuple | list) else (result,))]


def save(path: Path, arrays: list[np.ndarray]) -> None:
    """Write inputs or outputs."""
    np.savez(path, **{f"{number:02}": array for number, array in enumerate(arrays)})


def _arrays(path: Path) -> tuple[np.ndarray, ...]:
    with np.load(path, allow_pickle=False) as kept:
        return tuple(np.ascontiguousarray(kept[name]) for name in sorted(kept.files))
