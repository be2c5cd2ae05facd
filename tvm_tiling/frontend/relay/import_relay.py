"""Import of Relay models as Relax modules: from text, JSON or an archive, including their parameters."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax

from ...errors import ModelFormatError, UnsupportedOperator
from ...limits import MAX_EXTENT, Limits, usual
from ...sizes import Extent, Guard, Named, Operation, Shape
from ..imported import ImportedModel, check_dims, first_line
from ..node_names import NamingBuilder
from ..open_shapes import OpenShapes
from ..open_windows import guard_windows
from ..size_tensors import as_tensor
from ..size_values import SizeValue
from .archive import is_tar, read_archive
from .attributes import from_json
from .json_module import module_of
from .nodes import Nodes
from .numbered import Numbered, by_number, graph_inputs, is_numbered
from .operands import Value
from .params import parse_params, read_params
from .parser import divide_metadata, parse_program
from .translate import Translator
from .tree import Function, Module, Release, TensorType, Var

ACCEPTED = "expected the output of mod.astext() or tvm.ir.save_json(mod) from TVM up to 0.19, or a tar archive of it"
LONGEST = 3000  # characters of a message: it may contain names and types from the file, of any length
_OLD_VERSION = re.compile(r"\s*v0\.0\.\d")


@dataclass(frozen=True)
class RelayModel:
    """A model read from Relay. `mapped`: for each Relay operator, how often it was converted to which Relax operators.
    `unused`: given parameters that the model does not have. `release`: the TVM release that wrote the file, if it says.
    `numbered`: the names found for the parameters p0, p1 etc. of a compiled model."""

    imported: ImportedModel
    mapped: Mapping[str, Mapping[str, int]]
    unused: tuple[str, ...]
    release: Release
    numbered: tuple[tuple[str, str], ...]


def read_relay(
    data: bytes | memoryview,
    *,
    shapes: Mapping[str, Sequence[int]],
    batch: int | None,
    params: Any,
    where: str,
    dims: Mapping[str, int] | None = None,
    leave_open: bool = False,
    limits: Limits | None = None,
) -> RelayModel:
    """Read a Relay model from the bytes of its file: text, JSON, or a tar archive of either with parameters.

    `params`: arrays by name, or the path or bytes of a .params file; they become constants. `shapes`: complete shapes
    of inputs with dynamic ones. `batch`: the size of a dynamic first dimension. `dims`: sizes of dynamic dimensions by
    name, such as x[0] for the first one of input x. `leave_open`: the others stay dynamic. `limits`: the maximum
    resources that the model may request. Raises ModelFormatError, LimitError, UnsupportedOperator.
    """
    try:
        known = _Known(shapes, batch, dims or {}, leave_open)
        return _read(memoryview(data).cast("B"), known, params, where, limits or usual())
    except (ModelFormatError, UnsupportedOperator) as error:
        if len(str(error)) <= LONGEST:
            raise
        raise type(error)(f"{str(error)[:LONGEST]}...") from None


@dataclass(frozen=True)
class _Known:
    """Given sizes of dynamic dimensions: shapes of inputs, the first dimension, dimensions by name, and whether the
    others stay dynamic."""

    shapes: Mapping[str, Sequence[int]]
    batch: int | None
    dims: Mapping[str, int]
    leave_open: bool


def _read(view: memoryview, known: _Known, params: Any, where: str, limits: Limits) -> RelayModel:
    held: dict[str, Any] = {}
    listed: tuple[str, ...] | None = None
    if is_tar(view):
        archive = read_archive(view, where)
        for name, content in archive.params:
            held.update(parse_params(content, f"{where}: {name}"))
        if archive.graph is not None and is_numbered(held):
            listed = graph_inputs(archive.graph[1], f"{where}: {archive.graph[0]}")
        view, source = archive.model, f"{where}: {archive.name}"
    else:
        source = where
    given = read_params(params)
    module = parsed(view, source)
    main = _main(module, source)
    values = {**held, **given}
    numbered = Numbered()
    unused: tuple[str, ...] = ()
    if is_numbered(values) and not _named(main).keys() & values.keys():
        numbered = by_number(main, values, listed, source)
        values = dict(numbered.values)
    else:
        unused = _refuse_unused(main, given, held, isinstance(params, Mapping), source)
    same: dict[str, Extent] = {}
    while True:
        found = _assembled(module, main, values, numbered, unused, known, same, source, limits)
        if not (equal := _equal_sizes(found.imported.open_sizes.guards)):
            return found
        # Dimensions that the model requires to be equal get one name; one required to be a number becomes it.
        same = {name: equal.get(to.name, to) if isinstance(to, Named) else to for name, to in same.items()} | equal


def _equal_sizes(guards: Sequence[Guard]) -> dict[str, Extent]:
    """The dynamic dimensions that have to equal another one or a number, with that value."""
    found: dict[str, Extent] = {}
    for guard in guards:
        sides = [found.get(side.name, side) if isinstance(side, Named) else side for side in (guard.left, guard.right)]
        if guard.relation != "==" or any(isinstance(side, Operation) for side in sides) or sides[0] == sides[1]:
            continue
        kept, gone = sides if isinstance(sides[1], Named) else sides[::-1]
        if isinstance(gone, Named):
            found = {name: kept if to == gone else to for name, to in found.items()} | {gone.name: kept}
    return found


def parsed(view: memoryview, where: str) -> Module:
    """The tree of a model in text or JSON. Raises ModelFormatError, UnsupportedOperator."""
    try:
        text = str(view, "utf-8").lstrip("\ufeff")
    except UnicodeDecodeError as error:
        raise ModelFormatError(f"{where}: not text at byte {error.start}; {ACCEPTED}") from None
    if text[:64].lstrip().startswith("{"):
        return module_of(Nodes(text, where))
    program, metadata = divide_metadata(text)
    nodes = Nodes(metadata, f"{where}: its metadata") if metadata.strip() else None
    release: Release = (0, 6) if _OLD_VERSION.match(program) else None
    if nodes is not None:
        nodes.release = release = nodes.release or release

    def meta(kind: str, number: int, op: str = "") -> Any:
        return None if nodes is None else _of_metadata(nodes, kind, number, op)

    try:
        return parse_program(program, meta, release)
    except (ModelFormatError, UnsupportedOperator) as error:
        if str(error).startswith(where):
            raise
        raise type(error)(f"{where}: {error}") from None


def _of_metadata(nodes: Nodes, kind: str, number: int, op: str) -> Any:
    """A metadata entry as a plain value, or as the attributes of `op`. Raises ModelFormatError if there is none."""
    for key, listed in nodes.pairs(nodes.root):
        name = key if isinstance(key, str) else nodes.text(key)
        if name != kind:
            continue
        items = nodes.items(listed)
        if number >= len(items):
            raise ModelFormatError(f"{nodes.where}: meta[{kind}][{number}] does not exist among {len(items)}")
        if "attrs" in kind:
            return from_json(op, nodes, items[number])
        return nodes.value(items[number])
    raise ModelFormatError(f"{nodes.where}: {kind}, to which the text refers, does not exist")


def _main(module: Module, where: str) -> Function:
    if "main" in module.functions:
        return module.functions["main"]
    raise ModelFormatError(f"{where}: no @main but {', '.join(module.functions)}; expected a module with @main")


def _named(main: Function) -> dict[str, Var]:
    """The inputs by name. Of several with the same name, possible in JSON, the later ones are numbered as in the text
    form."""
    found: dict[str, Var] = {}
    for variable in main.params:
        name, count = variable.name, 0
        while name in found:
            count += 1
            name = f"{variable.name}{count}"
        found[name] = variable
    return found


def _refuse_unused(
    main: Function, given: Mapping[str, Any], held: Mapping[str, Any], strict: bool, where: str
) -> tuple[str, ...]:
    """Names of parameters that the model does not have. Each is an error if the caller named it; a file may contain
    more than a model needs, but has to contain some of it."""
    known = _named(main)
    unknown = [name for name in given if name not in known and not name.startswith("meta[")]
    listed = ", ".join(map(repr, known))
    if unknown and (strict or len(unknown) == len(given)):
        raise ModelFormatError(
            f"{where}: params names {', '.join(map(repr, unknown[:12]))}; the inputs are {listed or 'none'}"
        )
    return tuple(unknown) + tuple(name for name in held if name not in known)


def _assembled(
    module: Module,
    main: Function,
    values: Mapping[str, Any],
    numbered: Numbered,
    unused: tuple[str, ...],
    known: _Known,
    same: Mapping[str, Extent],
    where: str,
    limits: Limits,
) -> RelayModel:
    """The Relax module of `main` with bound parameters and static or dynamic shapes; `same`: values of dynamic
    dimensions."""
    bound_names = {*values, *numbered.gone}
    inputs = {name: variable for name, variable in _named(main).items() if name not in bound_names}
    _refuse_shapes(list(inputs), known.shapes, where)
    typed = {name: _typed(name, variable, where) for name, variable in inputs.items()}
    check_dims(known.dims, _open_names(typed), where)
    settled = {name: _settled(name, kind, known, same, where) for name, kind in typed.items()}
    opened = OpenShapes()
    for shape in settled.values():
        for extent in shape:
            if isinstance(extent, Named):
                opened.variable(extent.name)
    builder = NamingBuilder()
    if opened.sizes():
        builder.shapes = opened
    parameters = [
        relax.Var(identifier, relax.TensorType([opened.size(extent) for extent in shape], typed[name].dtype))
        for identifier, (name, shape) in zip(_identifiers(list(inputs)), settled.items(), strict=True)
    ]
    supplied = {name: np.asarray(value) for name, value in values.items() if name.startswith("meta[")}
    translator = Translator(module, builder, where, supplied, limits, opened)
    bound: dict[int, Value] = {
        id(variable): parameter for variable, parameter in zip(inputs.values(), parameters, strict=True)
    }
    for name, variable in _named(main).items():
        if name in values:
            made = bound[id(variable)] = _constant(name, variable, values[name], where)
            translator.weights += made.value.numpy().nbytes
    for place, value in numbered.parts.items():
        bound[place] = relax.const(tvm.runtime.tensor(value), value.dtype.name)
    failure: Exception | None = None
    tensors: list[relax.Expr] = []
    with builder.function("main", parameters):
        with builder.dataflow():
            try:
                tensors = _flat(translator.run(main, bound), builder, where)
            except Exception as error:  # raised below: the builder has to close its blocks first
                failure = error
            builder.called = ""
            results = [builder.emit_output(tensor) for tensor in tensors]
        builder.emit_func_output(results[0] if len(results) == 1 else relax.Tuple(results))
    if isinstance(failure, ModelFormatError | UnsupportedOperator | MemoryError):
        raise failure
    if failure is not None:
        raise UnsupportedOperator(f"{where}: cannot be imported: {first_line(failure)}") from failure
    made = translator.names.attached(builder.finalize())
    if opened.sizes():
        guard_windows(made, opened, where)
    count = len(results)
    imported = ImportedModel(
        module=made,
        input_names=tuple(settled),
        input_shapes=tuple(settled.values()),
        input_dtypes=tuple(kind.dtype for kind in typed.values()),
        output_names=("output",) if count == 1 else tuple(f"output_{place}" for place in range(count)),
        source="relay",
        open_sizes=opened.sizes(),
    )
    return RelayModel(imported, translator.mapped, unused, module.release, numbered.names)


def _identifiers(names: Sequence[str]) -> list[str]:
    """Unique names for Relax variables."""
    taken: dict[str, None] = {}
    for given in names:
        name = re.sub(r"\W", "_", given)
        name = f"input_{name}" if not name or name[0].isdigit() else name
        while name in taken:
            name += "_"
        taken[name] = None
    return list(taken)


def _refuse_shapes(names: Sequence[str], shapes: Mapping[str, Sequence[int]], where: str) -> None:
    unknown = sorted(set(shapes) - set(names))
    if unknown:
        raise ModelFormatError(
            f"{where}: shapes names {', '.join(map(repr, unknown))}; the inputs are {', '.join(map(repr, names))}"
        )


def _typed(name: str, variable: Var, where: str) -> TensorType:
    """The type of an input, possibly with dynamic dimensions. Raises ModelFormatError if it is not a tensor."""
    stated = variable.type
    if not isinstance(stated, TensorType):
        what = "no type" if stated is None else f"the type {stated}"
        raise ModelFormatError(
            f"{where}: input {name!r} has {what}; expected Tensor[(...), ...] after its name, or its value in params"
        )
    try:
        if tvm.DataType(stated.dtype).bits < 1:
            raise ValueError(stated.dtype)
    except Exception:
        raise ModelFormatError(f"{where}: input {name!r} has the unknown type {stated.dtype!r}") from None
    return stated


def _open_names(typed: Mapping[str, TensorType]) -> list[str]:
    """The names of dynamic dimensions: input and axis."""
    return [f"{name}[{axis}]" for name, kind in typed.items() for axis, has in enumerate(kind.shape) if has is None]


def _settled(name: str, stated: TensorType, known: _Known, same: Mapping[str, Extent], where: str) -> Shape:
    """The shape of an input, with the numbers or names given for dynamic dimensions. Raises ModelFormatError if a
    required size is missing."""
    wanted = known.shapes.get(name)
    if wanted is not None and (
        len(wanted) != len(stated.shape)
        or any(has not in (None, new) for has, new in zip(stated.shape, wanted, strict=True))
    ):
        raise ModelFormatError(f"{where}: shapes[{name!r}] = {tuple(wanted)} does not match the model's {stated}")
    shape: list[Extent] = []
    for axis, has in enumerate(stated.shape):
        called = f"{name}[{axis}]"
        if wanted is not None:
            shape.append(wanted[axis])
        elif has is not None:
            shape.append(has)
        elif called in known.dims:
            shape.append(known.dims[called])
        elif axis == 0 and known.batch is not None:
            shape.append(known.batch)
        elif known.leave_open:
            shape.append(same.get(called, Named(called)))
        else:
            raise ModelFormatError(
                f"{where}: the shape of input {name!r} {stated} is dynamic; expected shapes={{{name!r}: "
                f"(...)}} with a number for each dimension, batch=..., or dims={{{called!r}: ...}}"
            )
    if any(
        not isinstance(extent, Named)
        and (isinstance(extent, bool) or not isinstance(extent, int) or not 0 <= extent <= MAX_EXTENT)
        for extent in shape
    ):
        raise ModelFormatError(
            f"{where}: input {name!r} has shape {tuple(shape)}; expected sizes from 0 to {MAX_EXTENT}"
        )
    return tuple(shape)


def _constant(name: str, variable: Var, given: Any, where: str) -> relax.Expr:
    """The value of a parameter as a constant of the shape and type that the model states."""
    value = given if isinstance(given, tvm.runtime.Tensor) else tvm.runtime.tensor(np.asarray(given))
    shape, dtype, stated = tuple(int(extent) for extent in value.shape), str(value.dtype), variable.type
    if isinstance(stated, TensorType):
        fits = len(shape) == len(stated.shape) and all(
            wanted in (None, has) for has, wanted in zip(shape, stated.shape, strict=True)
        )
        if not fits or dtype != stated.dtype:
            raise ModelFormatError(f"{where}: params[{name!r}] has type {dtype} and shape {shape}; expected {stated}")
    return relax.const(value, dtype)


def _flat(value: Value, builder: relax.BlockBuilder, where: str) -> list[relax.Expr]:
    """The tensors that a model returns, with nested tuples flattened in order."""
    if isinstance(value, tuple):
        found = [tensor for field in value for tensor in _flat(field, builder, where)]
    elif isinstance(value, SizeValue):
        found = [as_tensor(builder, value)]
    else:
        found = [value] if isinstance(value, relax.Expr) else []
    if not found and not (isinstance(value, tuple) and not value):
        raise ModelFormatError(f"{where}: the model returns a function; expected tensors")
    return found
