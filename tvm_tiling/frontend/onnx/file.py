"""Reading of ONNX models from untrusted files and bytes.

A file can declare any size and name any path. Therefore nothing is allocated unless the file (or the external file that
holds a weight) has bytes for it, and no path may leave the model's directory.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import TensorProto, numpy_helper

from ...errors import ModelFormatError
from ...runtime.pages import Contents, FileContents
from .graph import SMALL_BYTES, OnnxGraph, all_graphs, nodes_in, tensors_in
from .raw_weights import outline

# Size limit of a protobuf message.
MAX_MESSAGE = 2**31 - 1
# Elements per byte.
_PER_BYTE = {
    getattr(TensorProto, name): count
    for name, count in {"UINT4": 2, "INT4": 2, "FLOAT4E2M1": 2, "UINT2": 4, "INT2": 4}.items()
    if hasattr(TensorProto, name)
}
# The field of values that are not raw bytes, and how many of its entries form an element.
_FIELDS: dict[int, tuple[str, int]] = {
    TensorProto.FLOAT: ("float_data", 1),
    TensorProto.COMPLEX64: ("float_data", 2),
    TensorProto.DOUBLE: ("double_data", 1),
    TensorProto.COMPLEX128: ("double_data", 2),
    TensorProto.INT64: ("int64_data", 1),
    TensorProto.UINT32: ("uint64_data", 1),
    TensorProto.UINT64: ("uint64_data", 1),
    TensorProto.STRING: ("string_data", 1),
}


def parse_onnx(data: Contents, where: str, folder: Path | None = None) -> OnnxGraph:
    """Parse the model in `data`; `folder` is where its external weights may be. Raises ModelFormatError."""
    if data.size > MAX_MESSAGE:
        raise ModelFormatError(
            f"{where} has {data.size} bytes; an ONNX file holds at most 2 GiB, further weights must be external"
        )
    without = outline(data.content, SMALL_BYTES)
    try:
        model = onnx.ModelProto.FromString(bytes(data.content) if without is None else without.content)
    except DecodeError:
        raise ModelFormatError(
            f"{where} is not an ONNX model, or is truncated; expected a complete ONNX, TFLite, GGUF or Relay file"
        ) from None
    raw = {} if without is None else {n: data.part(place.start, place.size) for n, place in without.weights.items()}
    return prepare_proto(model, where, folder, raw)


def prepare_proto(
    model: onnx.ModelProto, where: str, folder: Path | None = None, raw: Mapping[int, np.ndarray] | None = None
) -> OnnxGraph:
    """Validate a parsed model, which is modified: sizes are checked, external weights mapped, and constants removed
    from the inputs.

    `raw`: bytes of weights that the parser did not read, by the number of the initializer.
    """
    if not model.HasField("graph") or not (model.graph.node or model.graph.output):
        raise ModelFormatError(f"{where} contains no graph, so it is not an ONNX model; expected a complete .onnx file")
    if not model.graph.output:
        raise ModelFormatError(f"{where}: the graph has no output; expected a model with at least one")
    _check_names(model, where)
    _name_the_standard(model)
    sparse = [graph for graph in all_graphs(model) if graph.sparse_initializer]
    if sparse or any(entry.HasField("sparse_tensor") for node in nodes_in(model) for entry in node.attribute):
        raise ModelFormatError(f"{where} contains sparse weights; expected dense ones")
    graph = OnnxGraph(model, where)
    files: dict[Path, Contents] = {}
    beside: dict[int, np.ndarray] = {}
    # keeps the objects alive, so that later iterations return the same ones
    initializers = list(model.graph.initializer)
    for number, tensor in enumerate(initializers):
        held = None if raw is None else raw.get(number)
        if tensor.data_location == TensorProto.EXTERNAL:
            held = _external_bytes(tensor, where, folder, files)
            tensor.data_location = TensorProto.DEFAULT
        if held is None:
            continue
        if tensor.data_type in _PER_BYTE or tensor.data_type == TensorProto.STRING:
            tensor.raw_data = held.tobytes()
        else:
            beside[number] = _of_bytes(tensor, held, where)
    known = {id(initializers[number]) for number in beside}
    for tensor in tensors_in(model):
        if tensor.data_location == TensorProto.EXTERNAL:
            tensor.raw_data = _external_bytes(tensor, where, folder, files).tobytes()
            tensor.data_location = TensorProto.DEFAULT
        elif id(tensor) not in known:
            _check_size(tensor, where)
    _take_constants(graph, beside)
    # Functions were added in version 8; before 4, every constant also had to be declared as an input.
    model.ir_version = max(model.ir_version, 8)
    return graph


def _check_names(model: onnx.ModelProto, where: str) -> None:
    """Check that names are valid text: protobuf returns invalid ones as bytes."""
    for graph in all_graphs(model):
        named = (*graph.input, *graph.output, *graph.value_info, *graph.initializer)
        if any(isinstance(entry.name, bytes) for entry in named):
            raise ModelFormatError(f"{where}: a tensor's name is not UTF-8 text, so the file is corrupted")
    for node in nodes_in(model):
        texts = (node.name, node.op_type, node.domain, *node.input, *node.output, *(a.name for a in node.attribute))
        if any(isinstance(text, bytes) for text in texts):
            raise ModelFormatError(f"{where}: a name in a node is not UTF-8 text, so the file is corrupted")


# Contributed operators that onnxruntime's tools write in the standard domain, which does not have these names.
_CONTRIBUTED = frozenset(["SimplifiedLayerNormalization"])


def _name_the_standard(model: onnx.ModelProto) -> None:
    """Normalise domains. The standard domain has two names, "" and "ai.onnx"; only the first is used from here on.
    Operators that are not standard get their own domain."""
    imports = [entry for holder in (model, *model.functions) for entry in holder.opset_import]
    for named in (*imports, *nodes_in(model)):
        if named.domain == "ai.onnx":
            named.domain = ""
    strays = [node for node in nodes_in(model) if not node.domain and node.op_type in _CONTRIBUTED]
    for node in strays:
        node.domain = "com.microsoft"
    if strays and not any(entry.domain == "com.microsoft" for entry in model.opset_import):
        model.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))


def _take_constants(graph: OnnxGraph, beside: Mapping[int, np.ndarray]) -> None:
    """Move large constants out of the graph, along with those in `beside`, by number; none of them remains an input."""
    tensors = list(graph.graph.initializer)
    names = {tensor.name for tensor in tensors}
    values = [value for value in graph.graph.input if value.name not in names]
    del graph.graph.initializer[:]
    del graph.graph.input[:]
    graph.graph.input.extend(values)
    for number, tensor in enumerate(tensors):
        if number in beside:
            graph.add_constant(tensor.name, beside[number])
        elif tensor.ByteSize() > SMALL_BYTES:
            graph.add_constant(tensor.name, numpy_helper.to_array(tensor))
        else:
            graph.graph.initializer.append(tensor)


def _elements(tensor: TensorProto, where: str) -> int:
    if any(extent < 0 for extent in tensor.dims):
        raise ModelFormatError(f"{where}: weight {tensor.name!r} has shape {list(tensor.dims)}; expected sizes from 0")
    return math.prod(tensor.dims)


def _stored_bytes(tensor: TensorProto, where: str) -> int:
    """Return the number of bytes that the declared shape and type take."""
    count = _elements(tensor, where)
    if tensor.data_type in _PER_BYTE:
        return -(-count // _PER_BYTE[tensor.data_type])
    try:
        return count * onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
    except KeyError:
        raise ModelFormatError(f"{where}: weight {tensor.name!r} has the unknown type {tensor.data_type}") from None


def _check_size(tensor: TensorProto, where: str) -> None:
    """Check that the file has as many values as the tensor declares, so that reading it allocates no more than that."""
    if tensor.data_type == TensorProto.STRING or not tensor.HasField("raw_data"):
        name, per_element = _FIELDS.get(tensor.data_type, ("int32_data", 1))
        held = len(getattr(tensor, name))
        wanted = _elements(tensor, where) * per_element
        if tensor.data_type in _PER_BYTE:
            wanted = _stored_bytes(tensor, where)
        kind = "values"
    else:
        held, wanted, kind = len(tensor.raw_data), _stored_bytes(tensor, where), "bytes"
    if held != wanted:
        raise _wrong_size(tensor, where, wanted, held, kind)


def _wrong_size(tensor: TensorProto, where: str, wanted: int, held: int, kind: str) -> ModelFormatError:
    return ModelFormatError(
        f"{where}: weight {tensor.name!r} of shape {list(tensor.dims)} needs {wanted} {kind}, but has {held}"
    )


def _of_bytes(tensor: TensorProto, raw: np.ndarray, where: str) -> np.ndarray:
    """Return a weight whose bytes were left out of the parsed model."""
    wanted = _stored_bytes(tensor, where)
    if raw.nbytes != wanted:
        raise _wrong_size(tensor, where, wanted, raw.nbytes, "bytes")
    return raw.view(onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)).reshape(tuple(tensor.dims))


def _external_bytes(tensor: TensorProto, where: str, folder: Path | None, files: dict[Path, Contents]) -> np.ndarray:
    """Return the bytes of a weight in an external file. `files` caches the files opened so far."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    weight = f"{where}: weight {tensor.name!r}"
    if folder is None:
        raise ModelFormatError(f"{weight} is in an external file; expected a model given by its path")
    path = _inside(folder, entries.get("location", ""), weight)
    if tensor.data_type == TensorProto.STRING:
        raise ModelFormatError(f"{weight} contains strings, which cannot be in an external file")
    size = _stored_bytes(tensor, where)
    try:
        offset = int(entries.get("offset", 0))
        length = int(entries.get("length", size))
    except ValueError:
        raise ModelFormatError(f"{weight}: its offset and length in {path.name!r} are not numbers") from None
    try:
        if path not in files:
            files[path] = FileContents(path)
        held = files[path].size
        found = files[path].part(offset, size) if length == size and 0 <= offset <= held - size else None
    except OSError as error:
        raise ModelFormatError(f"{weight}: {path.name!r} cannot be read: {error.strerror or error}") from None
    if found is None:
        raise ModelFormatError(
            f"{weight} of shape {list(tensor.dims)} takes {size} bytes, but the model declares {length} from "
            f"{offset} in {path.name!r}, which has {held}"
        )
    return found


def _inside(folder: Path, location: str, weight: str) -> Path:
    """Return the file at `location`, which must be inside `folder` after following links."""
    home = folder.resolve()
    named = bool(location) and "\0" not in location and not Path(location).is_absolute()
    path = (home / location).resolve() if named else home
    if not named or not path.is_relative_to(home):
        raise ModelFormatError(f"{weight} is at {location!r}; expected a file in the model's directory")
    if not path.is_file():
        raise ModelFormatError(f"{weight}: file {location!r} does not exist in the model's directory")
    return path
