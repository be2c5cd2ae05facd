"""PyTorch programs and modules as Relax modules."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.export.graph_signature import OutputKind, TensorArgument
from tvm.relax.frontend.torch.exported_program_translator import ExportedProgramImporter

from ...errors import ModelFormatError, UnsupportedOperator
from ..imported import ImportedModel, first_line
from . import recurrent as torch_recurrent
from .operators import CONVERTERS
from .shapes import input_values, refuse_open, settled


def import_module(module: torch.nn.Module, example_inputs: Sequence[Any] | None, *, where: str) -> ImportedModel:
    """A module, exported for the shapes of `example_inputs` as it behaves in inference.

    The module is put into eval() for the export and is then as it was. Raises ModelFormatError, UnsupportedOperator.
    """
    if not isinstance(example_inputs, tuple | list) or not example_inputs:
        raise ModelFormatError(
            f"{where}: a torch.nn.Module is exported for the shapes of its arguments; "
            f"accepted: example_inputs=(tensor, ...)"
        )
    with _evaluating(module), _quiet():
        try:
            program = torch.export.export(module, tuple(example_inputs))
        except Exception as error:
            raise ModelFormatError(f"{where}: torch.export cannot export it: {first_line(error)}") from error
    return import_program(program, batch=None, dims={}, where=where)


def import_program(
    program: torch.export.ExportedProgram, *, batch: int | None, dims: Mapping[str, int], where: str
) -> ImportedModel:
    """An exported program; its parameters become constants.

    `batch` is the size of the first dimension where inputs leave it open, `dims` gives open dimensions a size by name.
    Raises ModelFormatError for shapes that stay open and for programs that change their buffers, UnsupportedOperator
    naming every operator that is not served.
    """
    program = settled(program, batch, dims, where)
    with _quiet():
        program = program.run_decompositions(_decompositions())
    inputs = _inputs(program, where)
    changed = [spec.target for spec in program.graph_signature.output_specs if spec.kind in _CHANGES]
    if changed:
        raise ModelFormatError(
            f"{where}: it changes {', '.join(map(repr, changed))} while it runs; accepted: modules in eval() that "
            f"leave their buffers and inputs as they are"
        )
    _refuse_unserved(program, where)
    try:
        with _quiet():
            module = ExportedProgramImporter().from_exported_program(program, False, True, False, CONVERTERS)
    except Exception as error:
        raise UnsupportedOperator(f"{where}: TVM cannot import it: {first_line(error)}") from error
    main = module["main"]
    return ImportedModel(
        module=module,
        input_names=tuple(inputs),
        input_shapes=tuple(inputs.values()),
        input_dtypes=tuple(str(variable.ty.dtype) for variable in main.params),
        output_names=tuple(
            spec.arg.name for spec in program.graph_signature.output_specs if isinstance(spec.arg, TensorArgument)
        ),
        source="torch",
    )


_CHANGES = (OutputKind.BUFFER_MUTATION, OutputKind.USER_INPUT_MUTATION)


def _inputs(program: torch.export.ExportedProgram, where: str) -> dict[str, tuple[int, ...]]:
    """Shapes of what a caller passes, by name."""
    values = input_values(program, where)
    refuse_open(values, where)
    return {name: tuple(value.shape) for name, value in values.items()}


def _refuse_unserved(program: torch.export.ExportedProgram, where: str) -> None:
    served = ExportedProgramImporter().create_convert_map().keys() | CONVERTERS.keys()
    refused: dict[str, list[str]] = {}
    for module in program.graph_module.modules():
        for node in getattr(module, "graph", program.graph).nodes:
            if node.op == "call_function" and node.target.__name__ not in served:
                refused.setdefault(str(node.target), []).append(repr(node.name))
    if refused:
        listed = "; ".join(f"{name} (nodes {', '.join(nodes)})" for name, nodes in sorted(refused.items()))
        raise UnsupportedOperator(f"{where}: operators that are not served: {listed}")


def _decompositions() -> Any:
    """Torch's own, but for recurrent layers, which it would write out step by step."""
    table = torch.export.default_decompositions()
    for name in torch_recurrent.CONVERTERS:
        operator, _, overload = name.partition(".")
        table.pop(getattr(getattr(torch.ops.aten, operator), overload), None)
    return table


@contextlib.contextmanager
def _evaluating(module: torch.nn.Module) -> Iterator[None]:
    """`module` and all inside it in eval() for a while."""
    before = {inner: inner.training for inner in module.modules()}
    module.eval()
    try:
        yield
    finally:
        for inner, training in before.items():
            inner.training = training


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without the warnings of torch.export about its own insides."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
