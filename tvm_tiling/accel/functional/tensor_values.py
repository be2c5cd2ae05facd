"""Transfer of arrays to and from the memories of a simulated machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...errors import SimulationError, nearest
from ..checks.access import Footprint
from ..checks.written import WrittenBytes
from ..program.elements import from_bfloat16, to_bfloat16
from ..program.program import Program
from ..program.tables import STORAGE, Tensor


def place_tensors(
    program: Program, inputs: Mapping[str, Any], data: list[np.ndarray], written: WrittenBytes | None
) -> None:
    """Write the constants and the inputs to the memories. SimulationError names an input that is missing, unknown, or
    of the wrong shape or type."""
    wanted = {tensor.name: tensor for tensor in program.of_role("input")}
    for name in inputs:
        if name not in wanted:
            raise SimulationError(f"input {name!r} is unknown; {nearest(str(name), wanted)}")
    for name in wanted:
        if name not in inputs:
            raise SimulationError(f"input {name!r} is missing, given: {', '.join(map(str, inputs)) or 'none'}")
    constants = [(tensor, program.constants[tensor.name]) for tensor in program.of_role("constant")]
    for tensor, values in constants + [(wanted[name], _stored(wanted[name], inputs[name])) for name in wanted]:
        number = program.memory_number(tensor.memory)
        _tensor_view(tensor, data[number])[...] = values
        if written is not None:
            written.write(number, tensor.address, Footprint(tensor.bytes, ()))


def read_outputs(program: Program, data: list[np.ndarray], written: WrittenBytes | None) -> dict[str, np.ndarray]:
    """Return copies of the output tensors by name. SimulationError for one that is not completely written."""
    outputs = {}
    for tensor in program.of_role("output"):
        number = program.memory_number(tensor.memory)
        whole = Footprint(tensor.bytes, ())
        if written is not None and not written.all_written(
            number, tensor.address, tensor.address + tensor.bytes, whole
        ):
            missing = written.first_missing(number, tensor.address, whole) - tensor.address
            place = np.unravel_index(missing // STORAGE[tensor.dtype].itemsize, tensor.shape)
            raise SimulationError(f"output {tensor.name!r}: element {[int(i) for i in place]} was never written")
        stored = _tensor_view(tensor, data[number])
        outputs[tensor.name] = from_bfloat16(stored) if tensor.dtype == "bfloat16" else stored.copy()
    return outputs


def _tensor_view(tensor: Tensor, data: np.ndarray) -> np.ndarray:
    return np.ndarray(tensor.shape, STORAGE[tensor.dtype], data, tensor.address)


def _stored(tensor: Tensor, given: Any) -> np.ndarray:
    """Return an input as elements of its tensor's type. A bfloat16 tensor accepts float32, raw bits, or the bfloat16
    type of another package."""
    values = np.asarray(given)
    kind = tensor.dtype
    if kind == "bfloat16" and values.dtype == np.float32:
        values = to_bfloat16(values)
    elif kind == "bfloat16" and values.dtype.name == kind:
        values = values.view(np.uint16)
    if values.shape != tensor.shape or values.dtype != STORAGE[kind]:
        raise SimulationError(
            f"input {tensor.name!r}: {values.dtype}{list(values.shape)}; expected {kind}{list(tensor.shape)}"
        )
    return values
