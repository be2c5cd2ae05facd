"""An execution plan as tables in C."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...hardware.instruction_sets import InstructionSet
from ...runtime.native_library import PREFIX
from ...runtime.plan import CONSTANT, ExecutionPlan, TensorType, type_code
from .own_symbols import own_symbol

WIDTH = 110


def tables(
    plan: ExecutionPlan, offsets: Sequence[int], name: str, inputs: Sequence[str], outputs: Sequence[str]
) -> str:
    """Definitions of the tables declared in @name@.c. `offsets`: of the plan's constants, bytes from the start of the
    weights; `inputs`, `outputs`: their names in the model."""
    shapes: list[int] = []
    rows = []
    for tensor in plan.tensors:
        offset = offsets[tensor.offset] if tensor.place == CONSTANT else tensor.offset
        rows.append(f"{{{tensor.place}, {offset}, {type_code(tensor.dtype)}, {len(tensor.shape)}, {len(shapes)}}}")
        shapes += tensor.shape
    starts = [0]
    for step in plan.steps:
        starts.append(starts[-1] + len(step.arguments))
    arguments = [number for step in plan.steps for number in step.arguments]
    return "\n".join(
        [
            "/* place, offset, type, rank, first extent */",
            _array("static const tvm_tiling_tensor tensors[]", rows, "{0},"),
            _array("static const int64_t shapes[]", shapes),
            _array("static const int64_t steps[]", starts),
            _array("static const int64_t arguments[]", arguments),
            _array("static const int64_t results[]", plan.results),
            _array("static const int64_t sizes[]", [kind.bytes for kind in (*plan.inputs, *plan.outputs)]),
            "",
            *(f"void {own_symbol(name, PREFIX + kernel)}(void);" for kernel in plan.kernels),
            _array(
                "static void (*const kernels[])(void)",
                [own_symbol(name, PREFIX + step.kernel) for step in plan.steps],
            ),
            "",
            *_described(f"{name}_inputs", f"{name}_tensor", plan.inputs, inputs),
            *_described(f"{name}_outputs", f"{name}_tensor", plan.outputs, outputs),
        ]
    )


def _described(array: str, kind: str, types: Sequence[TensorType], names: Sequence[str]) -> Iterable[str]:
    """The header's declarations of inputs or outputs."""
    rows = []
    for number, (each, name) in enumerate(zip(types, names, strict=True)):
        yield _array(f"static const int64_t {array}_{number}[]", each.shape)
        rows.append(f"{{{quoted(name)}, {quoted(each.dtype)}, {array}_{number}, {len(each.shape)}, {each.bytes}}}")
    yield _array(f"const {kind} {array}[]", rows, "{0},")


def _array(declared: str, items: Iterable[object], nothing: str = "0,") -> str:
    """A definition; an empty array gets one zero, because C has no empty arrays."""
    lines = [""]
    for item in map(str, items):
        if len(lines[-1]) + len(item) > WIDTH:
            lines.append("")
        lines[-1] += f"{item}, "
    content = "\n    ".join(line.rstrip() for line in lines) or nothing
    return f"{declared} = {{\n    {content}\n}};"


def instruction_table(needed: InstructionSet | None) -> str:
    """The CPU features that @name@.c checks; empty if a model of an older release does not state its requirements."""
    records = [] if needed is None else needed.records()
    rows = [
        f"{{{quoted(each.name)}, {each.leaf:#x}u, {each.subleaf}, {each.word}, {each.bit}, {each.state:#x}}}"
        for each in records
    ]
    return _array("static const instructions needed[]", [*rows, "{0, 0, 0, 0, 0, 0}"], "")


def quoted(text: str) -> str:
    """A C string literal, with octal escapes for bytes that are not printable ASCII."""
    return '"' + "".join(_character(byte) for byte in text.encode()) + '"'


def _character(byte: int) -> str:
    return chr(byte) if 32 <= byte < 127 and chr(byte) not in '"\\?' else f"\\{byte:03o}"
