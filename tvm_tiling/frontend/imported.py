"""The common result of all frontends."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

import tvm
from tvm import relax, tirx

from ..errors import ModelFormatError
from ..limits import MAX_EXTENT
from ..lowering import size_order  # noqa: F401 - for TVM
from ..lowering.samples import samples
from ..sizes import Named, OpenSizes, Shape, leading_of

# How TVM's messages print an operator.
_OPERATOR = re.compile(r'ir\.Op\(.*?name="relax\.([\w.]+)".*?support_level=\d+\)')


@dataclass(frozen=True)
class ImportedModel:
    """A model in the form that compilation takes.

    module: a Relax module; its function "main" takes the inputs in order, weights are constants inside. input_names,
    output_names: as in the model. input_shapes: in elements. input_dtypes: TVM's type names. source: the format that
    the model was read from: "onnx", "torch", "tflite", "gguf" or "relax". open_sizes: the dynamic dimensions that the
    input shapes name; each occurs by itself in one of them, where the shape of the module's parameter has a variable.
    end_tokens: the end-of-text tokens of a language model.
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
        """The name of the dynamic dimension that each variable in the module's parameter shapes stands for."""
        found: dict[tirx.Var, str] = {}
        for parameter, shape in zip(self.module["main"].params, self.input_shapes, strict=True):
            for variable, extent in zip(parameter.ty.shape or (), shape, strict=True):
                if isinstance(extent, Named) and isinstance(variable, tirx.Var):
                    found[variable] = extent.name
        return found

    def at_sample(self) -> AbstractContextManager[None]:
        """Return a context in which decisions are made for a sample of the dynamic dimensions, with their ranges
        known."""
        usual = self.open_sizes.usual(leading_of(self.input_shapes))
        ends = {size.name: (size.least, size.most) for size in self.open_sizes.sizes}
        names = {variable.name: name for variable, name in self.symbols.items()}
        sizes = {variable: usual[name] for variable, name in names.items()}
        return samples(sizes, {variable: ends[name] for variable, name in names.items()})

    @property
    def outputs(self) -> tuple[tuple[tuple[int, ...] | None, str], ...]:
        """The shape of each output, None if it is data-dependent, and TVM's name of its type."""
        returned = self.module["main"].ret_ty
        return tuple(map(_shape_and_type, returned.fields if isinstance(returned, relax.TupleType) else [returned]))


def check_dims(dims: Mapping[str, int], known: Sequence[str], where: str) -> None:
    """Raise ModelFormatError if `dims` names a dimension that is not dynamic in the model, or gives an invalid size."""
    unknown = sorted(set(dims) - set(known))
    if unknown:
        raise ModelFormatError(
            f"{where}: dims names {', '.join(map(repr, unknown))}; "
            + (f"expected {', '.join(map(repr, known))}" if known else "the model has no named dynamic dimensions")
        )
    for name, size in dims.items():
        if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= MAX_EXTENT:
            raise ModelFormatError(f"{where}: dims[{name!r}] = {size!r}; expected a number from 1 to {MAX_EXTENT}")


def output_count(main: relax.Function) -> int:
    """Return the number of tensors that `main` returns."""
    returned = main.ret_ty
    return len(returned.fields) if isinstance(returned, relax.TupleType) else 1


def _shape_and_type(kind: tvm.ir.Type) -> tuple[tuple[int, ...] | None, str]:
    if not isinstance(kind, relax.TensorType):
        return None, ""
    extents = kind.shape.values if isinstance(kind.shape, relax.ShapeExpr) else [None]
    fixed = all(isinstance(extent, tirx.IntImm) for extent in extents)
    return tuple(map(int, extents)) if fixed else None, str(kind.dtype or "")


def first_line(error: Exception) -> str:
    """Return the first line of another package's message without its full stop, with TVM operators shown by name."""
    line = next(iter(str(error).strip().splitlines()), type(error).__name__).strip().rstrip(".")
    return _OPERATOR.sub(r"\1", line)
