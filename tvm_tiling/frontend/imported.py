"""What every frontend ends in."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

import tvm
from tvm import relax, tirx

from ..errors import ModelFormatError
from ..limits import MAX_EXTENT
from ..lowering.samples import samples
from ..sizes import Named, OpenSizes, Shape, leading_of

# How TVM's messages write an operator.
_OPERATOR = re.compile(r'ir\.Op\(.*?name="relax\.([\w.]+)".*?support_level=\d+\)')


@dataclass(frozen=True)
class ImportedModel:
    """A model in the one form that compilation takes.

    module: a Relax module; its function "main" takes the inputs in order, weights are constants inside.
    input_names, output_names: as the model calls them. input_shapes: in elements. input_dtypes: TVM's names of types.
    source: what the model was read as: "onnx", "torch", "tflite", "gguf" or "relax". open_sizes: those that the
    inputs' shapes name; each is an extent of its own somewhere in them, and there a variable in the shape of the
    module's parameter. end_tokens: of a language model, those that end a text.
    """

    module: tvm.IRModule
    input_names: tuple[str, ...]
    input_shapes: tuple[Shape, ...]
    input_dtypes: tuple[str, ...]
    output_names: tuple[str, ...]
    source: str
    open_sizes: OpenSizes = field(default_factory=OpenSizes)
    end_tokens: tuple[int, ...] = ()

    @property
    def symbols(self) -> dict[tirx.Var, str]:
        """The name of the open size that a variable in the shapes of the module's tensors stands for."""
        found: dict[tirx.Var, str] = {}
        for parameter, shape in zip(self.module["main"].params, self.input_shapes, strict=True):
            for variable, extent in zip(parameter.ty.shape or (), shape, strict=True):
                if isinstance(extent, Named) and isinstance(variable, tirx.Var):
                    found[variable] = extent.name
        return found

    def at_sample(self) -> AbstractContextManager[None]:
        """Within, decisions are made for the sample of the open sizes, and know their ranges."""
        usual = self.open_sizes.usual(leading_of(self.input_shapes))
        ends = {size.name: (size.least, size.most) for size in self.open_sizes.sizes}
        names = {variable.name: name for variable, name in self.symbols.items()}
        sizes = {variable: usual[name] for variable, name in names.items()}
        return samples(sizes, {variable: ends[name] for variable, name in names.items()})

    @property
    def outputs(self) -> tuple[tuple[tuple[int, ...] | None, str], ...]:
        """Of each output the shape, None where the data decides it, and TVM's name of its type."""
        returned = self.module["main"].ret_ty
        return tuple(map(_shape_and_type, returned.fields if isinstance(returned, relax.TupleType) else [returned]))


def check_dims(dims: Mapping[str, int], known: Sequence[str], where: str) -> None:
    """ModelFormatError where `dims` names a dimension that the model does not leave open, or gives no size."""
    unknown = sorted(set(dims) - set(known))
    if unknown:
        raise ModelFormatError(
            f"{where}: dims names {', '.join(map(repr, unknown))}; "
            + (f"expected {', '.join(map(repr, known))}" if known else "the model has no named dynamic dimensions")
        )
    for name, size in dims.items():
        if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= MAX_EXTENT:
            raise ModelFormatError(f"{where}: dims[{name!r}] = {size!r}; accepted: a number from 1 to {MAX_EXTENT}")


def output_count(main: relax.Function) -> int:
    """How many tensors `main` returns."""
    returned = main.ret_ty
    return len(returned.fields) if isinstance(returned, relax.TupleType) else 1


def _shape_and_type(kind: tvm.ir.Type) -> tuple[tuple[int, ...] | None, str]:
    if not isinstance(kind, relax.TensorType):
        return None, ""
    extents = kind.shape.values if isinstance(kind.shape, relax.ShapeExpr) else [None]
    fixed = all(isinstance(extent, tirx.IntImm) for extent in extents)
    return tuple(map(int, extents)) if fixed else None, str(kind.dtype or "")


def first_line(error: Exception) -> str:
    """The first line of another package's message, without its full stop; TVM's operators by their names alone."""
    line = next(iter(str(error).strip().splitlines()), type(error).__name__).strip().rstrip(".")
    return _OPERATOR.sub(r"\1", line)
