"""Import of TFLite flatbuffers as Relax modules."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..errors import ModelFormatError, UnsupportedOperator
from ..limits import Limits
from .imported import ImportedModel, first_line
from .node_names import NodeNames, with_bound_parts


def import_tflite(
    data: bytes, shapes: Mapping[str, Sequence[int]], batch: int | None, *, where: str, limits: Limits
) -> ImportedModel:
    """Import a TFLite file from its bytes; `shapes` and `batch` set dynamic dimensions.

    Raises ModelFormatError if the file is corrupted, a shape remains dynamic or the package tflite is missing,
    UnsupportedOperator with the names of all unsupported operators.
    """
    try:
        import tflite
    except ImportError:
        raise ModelFormatError(
            f"{where} is a TFLite file, which requires the package tflite, which is not installed; use "
            "pip install 'tvm-tiling[tflite]'"
        ) from None
    from tvm.relax.frontend.tflite import from_tflite

    names = NodeNames()

    try:
        # The first four bytes are the offset of the root table; a table starts with the offset of its layout.
        root = struct.unpack_from("<I", data)[0]
        struct.unpack_from("<i", data, root)
        model = tflite.Model.GetRootAsModel(data, 0)
        fixed, inputs, outputs = _signature(model, shapes, batch, where)
    except (struct.error, IndexError, ValueError, TypeError, AttributeError) as error:
        if isinstance(error, ModelFormatError):
            raise
        raise ModelFormatError(f"{where}: the TFLite file is corrupted; expected a complete one") from None
    for name, shape in fixed.items():
        limits.require_tensor(f"{where}: input {name!r}", math.prod(shape))
    try:
        module = names.attached(from_tflite(model, shape_dict=fixed, op_converter=_converter(names)))
    except (struct.error, IndexError):
        raise ModelFormatError(f"{where}: the TFLite file is corrupted; expected a complete one") from None
    except Exception as error:
        raise UnsupportedOperator(f"{where}: TVM cannot import it: {first_line(error)}") from error
    return ImportedModel(
        module=module,
        input_names=tuple(inputs),
        input_shapes=tuple(fixed[name] for name in inputs),
        input_dtypes=tuple(str(variable.ty.dtype) for variable in module["main"].params),
        output_names=tuple(outputs),
        source="tflite",
    )


def _converter(names: NodeNames) -> type:
    """TVM's operator converter, extended to bind each result to a variable named after its tensor."""
    from tvm import relax
    from tvm.relax.frontend.tflite.tflite_frontend import OperatorConverter, get_tensor_name

    class Named(OperatorConverter):
        convert_map: dict[str, Callable[..., Any]]

        def __init__(self, *args: Any, **more: Any) -> None:
            super().__init__(*args, **more)
            self.convert_map = {kind: self._naming(convert) for kind, convert in self.convert_map.items()}

        def _naming(self, convert: Callable[..., Any]) -> Callable[..., Any]:
            def converted(op: Any) -> Any:
                result = convert(op=op)
                if not isinstance(result, relax.Expr) or not op.OutputsLength():
                    return result
                name = names.variable(get_tensor_name(self.subgraph, op.Outputs(0)))
                result = self.bb.normalize(with_bound_parts(self.bb, result, name))
                is_tensor = isinstance(result.ty, relax.TensorType | relax.TupleType)
                return self.bb.emit(result, name) if isinstance(result, relax.Call) and is_tensor else result

            return converted

    return Named


def _signature(
    model: Any, shapes: Mapping[str, Sequence[int]], batch: int | None, where: str
) -> tuple[dict[str, tuple[int, ...]], list[str], list[str]]:
    """The static shape of each input by name, the input names in order, and the output names."""
    if model.SubgraphsLength() < 1:
        raise ModelFormatError(f"{where}: contains no graph; expected a complete TFLite file")
    graph = model.Subgraphs(0)
    tensors = {
        place: graph.Tensors(place) for place in (*_places(graph.InputsAsNumpy()), *_places(graph.OutputsAsNumpy()))
    }
    names = [tensors[place].Name().decode() for place in _places(graph.InputsAsNumpy())]
    unknown = sorted(set(shapes) - set(names))
    if unknown:
        raise ModelFormatError(
            f"{where}: shapes names {', '.join(map(repr, unknown))}; the inputs are {', '.join(map(repr, names))}"
        )
    fixed = {}
    for name, place in zip(names, _places(graph.InputsAsNumpy()), strict=True):
        tensor = tensors[place]
        declared = _places(tensor.ShapeSignatureAsNumpy()) or _places(tensor.ShapeAsNumpy())
        shape = list(declared)
        if batch is not None and shape and shape[0] < 0:
            shape[0] = batch
        if name in shapes:
            shape = list(shapes[name])
            if len(shape) != len(declared) or any(
                has >= 0 and has != new for has, new in zip(declared, shape, strict=True)
            ):
                raise ModelFormatError(
                    f"{where}: shapes[{name!r}] = {tuple(shape)} does not match the model's {tuple(declared)}"
                )
        if any(extent < 0 for extent in shape):
            raise ModelFormatError(
                f"{where}: the shape of input {name!r} {tuple(declared)} is dynamic; expected "
                f"shapes={{{name!r}: (...)}} with a number for each dimension, or batch=..."
            )
        fixed[name] = tuple(shape)
    return fixed, names, [tensors[place].Name().decode() for place in _places(graph.OutputsAsNumpy())]


def _places(numbers: Any) -> list[int]:
    """A vector of a flatbuffer as a list; the reader returns 0 for a missing one."""
    return [int(number) for number in numbers] if hasattr(numbers, "__len__") else []
