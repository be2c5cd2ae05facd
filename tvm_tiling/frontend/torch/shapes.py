"""Fixed shapes for the inputs of an exported PyTorch program: it is exported again for them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping

import torch
from torch.export.graph_signature import ConstantArgument, InputKind

from ...errors import ModelFormatError
from ..imported import check_dims, first_line


def input_values(program: torch.export.ExportedProgram, where: str) -> dict[str, torch.Tensor]:
    """What a caller passes, by name: tensors without content, whose sizes may be open."""
    nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    values = {}
    for spec in program.graph_signature.input_specs:
        if spec.kind is not InputKind.USER_INPUT or isinstance(spec.arg, ConstantArgument):
            continue
        value = nodes[spec.arg.name].meta["val"]
        if not isinstance(value, torch.Tensor):
            raise ModelFormatError(f"{where}: input {spec.arg.name!r} is a {type(value).__name__}; accepted: tensors")
        values[spec.arg.name] = value
    return values


def settled(
    program: torch.export.ExportedProgram, batch: int | None, dims: Mapping[str, int], where: str
) -> torch.export.ExportedProgram:
    """`program` with sizes for open dimensions: of the first ones by `batch`, of others by name.

    ModelFormatError where a name is unknown, a dimension stays open, or the program excludes a size.
    """
    if batch is None and not dims:
        return program
    values = input_values(program, where)
    check_dims(dims, list(dict.fromkeys(name for _, _, name in _open_sizes(values))), where)
    sizes = {(place, axis): dims[name] for place, axis, name in _open_sizes(values) if name in dims}
    if batch is not None:
        leading = [(place, axis) for place, axis, _ in _open_sizes(values) if axis == 0]
        if not leading:
            raise ModelFormatError(f"{where}: batch given, but no input leaves its first dimension open")
        for key in leading:
            if sizes.setdefault(key, batch) != batch:
                raise ModelFormatError(
                    f"{where}: the first dimension of input {key[0]!r} is {batch} as batch and {sizes[key]} in dims"
                )
    stated = {
        place: [sizes.get((place, axis), extent) for axis, extent in enumerate(value.shape)]
        for place, value in values.items()
    }
    if any(not isinstance(extent, int) for shape in stated.values() for extent in shape):
        refuse_open(values, where)
    examples = tuple(torch.zeros(stated[place], dtype=value.dtype) for place, value in values.items())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return torch.export.export(program.module(), examples)
        except Exception as error:
            shapes = ", ".join(f"{place!r} {tuple(shape)}" for place, shape in stated.items())
            raise ModelFormatError(f"{where}: it does not take {shapes}: {first_line(error)}") from None


def refuse_open(values: Mapping[str, torch.Tensor], where: str) -> None:
    """ModelFormatError that names every input with an open size, and what to pass."""
    opened = list(_open_sizes(values))
    if not opened:
        return
    names = {(place, axis): name for place, axis, name in opened}
    described = [
        f"{place!r} ({', '.join(names.get((place, axis), str(extent)) for axis, extent in enumerate(value.shape))})"
        for place, value in values.items()
        if any(known == place for known, _ in names)
    ]
    raise ModelFormatError(
        f"{where}: the shape of input {', '.join(described)} is open; accepted: batch=... for first dimensions, "
        f"dims={{{opened[0][2]!r}: ...}} by name, or a program that was exported without dynamic_shapes"
    )


def _open_sizes(values: Mapping[str, torch.Tensor]) -> Iterator[tuple[str, int, str]]:
    """(input, axis, name) of every open size; its name as given in dynamic_shapes, or PyTorch's own where that is
    gone, as it is when a program has been saved."""
    for place, value in values.items():
        for axis, extent in enumerate(value.shape):
            if isinstance(extent, torch.SymInt):
                given = getattr(extent.node.shape_env, "source_name_to_debug_name", {})
                yield place, axis, given.get(f"L[{place!r}].size()[{axis}]", str(extent.node.expr))
