"""Import of PyTorch programs and modules as Relax modules."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.export.graph_signature import InputKind
from torch.utils import _pytree as pytree

from ...errors import ModelFormatError, UnsupportedOperator
from ...sizes import MayBeEmpty, OpenSizes, Shape
from ..imported import ImportedModel, first_line
from ..open_windows import guard_windows
from .decompositions import decompositions, rules
from .expansion import expanded
from .few_bits import of_constants
from .open_program import OpenProgram, open_program, require_traced
from .operators import CONVERTERS
from .refusals import full_name, unsupported
from .shapes import refuse_open, settled
from .types import NAMES
from .user_values import changed_state, user_inputs, user_outputs
from .walk import Walk


def import_module(
    module: torch.nn.Module, example_inputs: Sequence[Any] | Mapping[str, Any] | None, *, where: str
) -> ImportedModel:
    """Import a module, exported for the shapes of `example_inputs` in inference mode.

    The module is set to eval() for the export and restored afterwards. Raises ModelFormatError, UnsupportedOperator.
    """
    if not isinstance(example_inputs, tuple | list | Mapping) or not example_inputs:
        raise ModelFormatError(
            f"{where}: a torch.nn.Module is exported for the shapes of its arguments; "
            f"expected example_inputs=(tensor, ...), or {{name: tensor, ...}} for arguments by keyword"
        )
    by_keyword = isinstance(example_inputs, Mapping)
    args, kwargs = ((), dict(example_inputs)) if by_keyword else (tuple(example_inputs), {})
    with _evaluating(module), _quiet():
        try:
            program = torch.export.export(module, *_apart(args, kwargs))
        except Exception as error:
            raise ModelFormatError(f"{where}: torch.export cannot export it: {first_line(error)}") from error
    return import_program(program, batch=None, dims={}, where=where)


def _apart(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments, with copies of tensors that occur more than once, which PyTorch would export as one input."""
    seen: set[int] = set()

    def own(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        known = id(value) in seen
        seen.add(id(value))
        return value.detach().clone() if known else value

    apart: tuple[tuple[Any, ...], dict[str, Any]] = pytree.tree_map(own, (args, kwargs))
    return apart


def import_program(
    program: torch.export.ExportedProgram,
    *,
    batch: int | None,
    dims: Mapping[str, int],
    where: str,
    leave_open: bool = False,
    may_be_empty: MayBeEmpty = MayBeEmpty(),  # noqa: B008  which is frozen
) -> ImportedModel:
    """Import an exported program; its parameters become constants.

    `batch` is the size of the first dimension of inputs that leave it dynamic, `dims` assigns sizes to dynamic
    dimensions by name; the others stay dynamic with `leave_open`, and those that `may_be_empty` may be 0. Input and
    output names are those of user_values.py; inputs that the program mutates become additional outputs.

    Raises ModelFormatError for remaining dynamic shapes and for programs that mutate their buffers, UnsupportedOperator
    with the names of all unsupported operators.
    """
    if leave_open:
        opened = open_program(program, user_inputs(program, where), batch, dims, where, may_be_empty)
        if opened is not None:
            return _import_open(program, opened, where)
    program = settled(program, batch, dims, where)
    refuse_open(user_inputs(program, where), where)
    quick = expanded(program, rules(), lambda target: full_name(target) in CONVERTERS)
    if quick is not None:
        with contextlib.suppress(UnsupportedOperator):  # reported for the program as PyTorch decomposes it
            return import_decomposed(quick, where=where)
    try:
        program = decomposed(program)
    except Exception as error:
        raise UnsupportedOperator(f"{where}: PyTorch cannot decompose it: {first_line(error)}") from error
    return import_decomposed(program, where=where)


def _import_open(program: torch.export.ExportedProgram, opened: OpenProgram, where: str) -> ImportedModel:
    """Import a program with dynamic shapes."""
    try:
        program = decomposed(program)
    except Exception as error:
        raise UnsupportedOperator(f"{where}: PyTorch cannot decompose it: {first_line(error)}") from error
    try:
        require_traced(opened, user_inputs(program, where))
    except ValueError as error:
        raise ModelFormatError(
            f"{where}: after decomposition, it depends on its dynamic dimensions by {first_line(error)}"
        ) from None
    return import_decomposed(program, where=where, opened=opened)


def decomposed(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """The program in core ATen operators."""
    own = program.module_call_graph[0].signature
    table = decompositions()
    for target in of_constants(program):
        table.pop(target, None)
    with _quiet():
        found = _flat(program).run_decompositions(table)
    signature = found.module_call_graph[0].signature
    assert own is not None and signature is not None
    signature.in_spec, signature.out_spec = own.in_spec, own.out_spec
    return found


def _flat(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """The program with flat tensor arguments and results.

    PyTorch retraces a program to decompose it, including the construction of containers, which for a DynamicCache
    computes.
    """
    entry = program.module_call_graph[0]
    own = entry.signature
    assert own is not None and own.in_spec is not None and own.out_spec is not None
    specs = [spec for spec in program.graph_signature.input_specs if spec.kind is InputKind.USER_INPUT]
    names = {"forward_arg_names": [spec.arg.name for spec in specs]} if hasattr(own, "forward_arg_names") else {}
    taken = pytree.tree_flatten((tuple(range(own.in_spec.num_leaves)), {}))[1]
    given = pytree.tree_flatten(tuple(range(own.out_spec.num_leaves)))[1]
    signature = dataclasses.replace(own, in_spec=taken, out_spec=given, **names)
    held = copy.copy(program)
    held._module_call_graph = [dataclasses.replace(entry, signature=signature), *program.module_call_graph[1:]]
    held._example_inputs = None  # PyTorch would write guards for them, by their names in containers
    return held


def import_decomposed(
    program: torch.export.ExportedProgram, *, where: str, opened: OpenProgram | None = None
) -> ImportedModel:
    """Import the result of decomposed(), like import_program() and with its errors; `opened`: the dynamic
    dimensions."""
    inputs = user_inputs(program, where)
    if opened is None:
        refuse_open(inputs, where)
    for given in inputs:
        if given.value.dtype not in NAMES:
            raise UnsupportedOperator(
                f"{where}: input {given.name!r} has type {given.value.dtype}; expected a type of real numbers or bool"
            )
    if changed := changed_state(program):
        raise ModelFormatError(
            f"{where}: it changes {', '.join(map(repr, changed))} at run time; expected modules in eval() "
            "that do not change their buffers, such as those that take a state as an argument and return the "
            "new one"
        )
    outputs = user_outputs(program)
    walk = Walk(program, CONVERTERS, opened)
    module = walk.function([given.node for given in inputs], program.graph.nodes, [out.node for out in outputs])
    if module is None:
        raise unsupported(walk.refused.values(), where)
    if not outputs:
        raise UnsupportedOperator(f"{where}: it returns no tensor; expected at least one")
    shapes: list[Shape] = [tuple(given.value.shape) for given in inputs]
    if opened is not None:
        guard_windows(module, opened.shapes, where)
        shapes = [opened.plain(given.value.shape) for given in inputs]
    return ImportedModel(
        module=module,
        input_names=tuple(given.name for given in inputs),
        input_shapes=tuple(shapes),
        input_dtypes=tuple(str(variable.ty.dtype) for variable in module["main"].params),
        output_names=tuple(out.name for out in outputs),
        source="torch",
        open_sizes=OpenSizes() if opened is None else opened.shapes.sizes(),
    )


@contextlib.contextmanager
def _evaluating(module: torch.nn.Module) -> Iterator[None]:
    """Set `module` and all its submodules to eval() within the context."""
    before = {inner: inner.training for inner in module.modules()}
    module.eval()
    try:
        yield
    finally:
        for inner, training in before.items():
            inner.training = training


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Suppress the warnings of torch.export about its internals."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
