"""Import of Relax modules as they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tvm
from tvm import relax, tirx

from ..errors import ModelFormatError
from ..sizes import MayBeEmpty, Shape
from .imported import ImportedModel, check_dims, output_count
from .open_shapes import OpenShapes
from .open_windows import guard_windows


def import_relax(
    module: tvm.IRModule,
    params: Mapping[str, Any],
    *,
    batch: int | None,
    dims: Mapping[str, int],
    where: str,
    leave_open: bool = False,
    may_be_empty: MayBeEmpty = MayBeEmpty(),  # noqa: B008  which is frozen
) -> ImportedModel:
    """A copy of a Relax module whose function "main" is the model; `params` become constants, by name.

    `batch` is the size of the first dimension of inputs that leave it dynamic, `dims` assigns sizes to dynamic
    dimensions by name; the others stay dynamic with `leave_open`. Raises ModelFormatError if there is no such function,
    a name is not one of its parameters, a value does not match, or a shape remains dynamic.
    """
    functions = {variable.name_hint: function for variable, function in module.functions.items()}
    main = functions.get("main")
    if not isinstance(main, relax.Function):
        named = ", ".join(repr(name) for name, function in functions.items() if isinstance(function, relax.Function))
        raise ModelFormatError(
            f"{where}: has no Relax function 'main' but {named or 'none'}; expected a module whose model is 'main'"
        )
    copy = tvm.IRModule(dict(module.functions), attrs=module.attrs)
    if params:
        copy = relax.transform.BindParams("main", _fitting(main, params, where))(copy)
    for variable in copy["main"].params:
        if not isinstance(variable.ty, relax.TensorType):
            raise ModelFormatError(f"{where}: parameter {variable.name!r} has type {variable.ty}; expected tensors")
    copy = _settled(copy, batch, dims, where)
    inputs = copy["main"].params
    opened = _open_shapes(copy, where, may_be_empty) if leave_open else OpenShapes()
    open_inputs = [_described(variable) for variable in inputs if _plain_shape(variable, opened) is None]
    if open_inputs:
        left = _open_variables(copy["main"])
        named = f"batch=... for first dimensions, or dims={{{left[0].name!r}: ...}} by name" if left else "fixed shapes"
        raise ModelFormatError(f"{where}: the shape of parameter {', '.join(open_inputs)} is dynamic; expected {named}")
    count = output_count(copy["main"])
    return ImportedModel(
        module=copy,
        input_names=tuple(variable.name for variable in inputs),
        input_shapes=tuple(_plain_shape(variable, opened) or () for variable in inputs),
        input_dtypes=tuple(str(variable.ty.dtype) for variable in inputs),
        output_names=("output",) if count == 1 else tuple(f"output_{place}" for place in range(count)),
        source="relax",
        open_sizes=opened.sizes(),
    )


def _extents(variable: relax.Var) -> list[tirx.PrimExpr]:
    shape = variable.ty.shape
    return list(shape) if isinstance(shape, relax.ShapeExpr) else []


def _described(variable: relax.Var) -> str:
    if not isinstance(variable.ty.shape, relax.ShapeExpr):
        return f"{variable.name!r} (of any shape)"
    extents = (str(e.value) if isinstance(e, tirx.IntImm) else str(e) for e in _extents(variable))
    return f"{variable.name!r} ({', '.join(extents)})"


def _open_variables(main: relax.Function) -> list[tirx.Var]:
    """The variables of the dynamic dimensions of the inputs, in order."""
    extents = [extent for variable in main.params for extent in _extents(variable)]
    return list(dict.fromkeys(extent for extent in extents if isinstance(extent, tirx.Var)))


def _settled(module: tvm.IRModule, batch: int | None, dims: Mapping[str, int], where: str) -> tvm.IRModule:
    """`module` with sizes assigned to dynamic dimensions."""
    known = {variable.name: variable for variable in _open_variables(module["main"])}
    check_dims(dims, list(known), where)
    sizes = {known[name]: size for name, size in dims.items()}
    if batch is not None:
        first = [extents[0] for variable in module["main"].params if (extents := _extents(variable))]
        leading = [extent for extent in first if isinstance(extent, tirx.Var)]
        if not leading:
            raise ModelFormatError(f"{where}: batch is given, but no input has a dynamic first dimension")
        for variable in leading:
            if sizes.setdefault(variable, batch) != batch:
                raise ModelFormatError(
                    f"{where}: the first dimension {variable.name!r} is {batch} by batch, but {sizes[variable]} in dims"
                )
    return relax.transform.BindSymbolicVars(sizes, "main")(module) if sizes else module


def _open_shapes(module: tvm.IRModule, where: str, may_be_empty: MayBeEmpty) -> OpenShapes:
    """The dynamic dimensions of a module's inputs, by the names of their variables."""
    shapes, taken = OpenShapes(), set[str]()
    first = [extents[0] for parameter in module["main"].params if (extents := _extents(parameter))]
    for variable in _open_variables(module["main"]):
        name = str(variable.name)
        while name in taken:
            name += "_"
        taken.add(name)
        leading = [name] if any(variable.same_as(extent) for extent in first) else []
        shapes.adopt(variable, name, may_be_empty.least(name, leading))
    for parameter in module["main"].params:
        shapes.why = f"parameter {parameter.name!r}"
        for extent in _extents(parameter):
            if not isinstance(extent, tirx.Var) and shapes.extent(extent) is not None:
                shapes.require_at_least(extent, 0 if may_be_empty else 1)
    guard_windows(module, shapes, where)
    return shapes


def _plain_shape(variable: relax.Var, shapes: OpenShapes) -> Shape | None:
    """The shape of a parameter as plain data; None if it contains other expressions."""
    if not isinstance(variable.ty.shape, relax.ShapeExpr):
        return None
    found = [shapes.extent(extent) for extent in variable.ty.shape]
    return None if any(extent is None for extent in found) else tuple(extent for extent in found if extent is not None)


def _fixed_shape(variable: relax.Var) -> tuple[int, ...] | None:
    shape = variable.ty.shape
    if not isinstance(shape, relax.ShapeExpr) or not all(isinstance(extent, tirx.IntImm) for extent in shape):
        return None
    return tuple(int(extent) for extent in shape)


def _fitting(main: relax.Function, params: Mapping[str, Any], where: str) -> dict[str, tvm.runtime.Tensor]:
    """The values to bind, checked against the parameters that they replace."""
    declared = {variable.name: variable for variable in main.params}
    unknown = sorted(set(params) - set(declared))
    if unknown:
        raise ModelFormatError(
            f"{where}: params names {', '.join(map(repr, unknown))}; "
            f"the parameters are {', '.join(map(repr, declared))}"
        )
    values = {}
    for name, given in params.items():
        value = given if isinstance(given, tvm.runtime.Tensor) else tvm.runtime.tensor(np.asarray(given, order="C"))
        shape, dtype = _fixed_shape(declared[name]), str(declared[name].ty.dtype)
        if str(value.dtype) != dtype or (shape is not None and tuple(value.shape) != shape):
            raise ModelFormatError(
                f"{where}: params[{name!r}] has type {value.dtype} and shape {tuple(value.shape)}; expected "
                f"{dtype} of shape {shape if shape is not None else 'any'}"
            )
        values[name] = value
    return values
