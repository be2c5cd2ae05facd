"""The operator given to tune(): a workload, TE, or a TIR function, with the range of its rows if they are symbolic."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from ..decide.as_scheduled import asked_for
from ..decide.epilogue import NONE, said
from ..decide.gemm.open_rows import at_rows
from ..errors import HardwareError, WorkloadError, nearest
from ..hardware.description import Hardware
from ..limits import MAX_EXTENT
from ..model.open_sizes import range_of
from ..sizes import USUAL, Range
from ..workload import ConvWorkload, GemmWorkload
from .tasks import Task

_ACCEPTED = "expected of symbolic shapes: a matrix multiplication with only its rows symbolic, stored untransposed"


def operator_of(op: Any, hardware: Hardware, prepacked: bool, options: Mapping[str, Any]) -> Task | None:
    """Return the task of an operator (the workload, whether its weights are prepacked, a measurable epilogue, and the
    range of symbolic rows), or None for a model.

    `options` are those of a model; an operator accepts only `dims`, with a range for the rows of a matrix
    multiplication: "m" of a GemmWorkload, or the variable of a function. WorkloadError for others.
    """
    if isinstance(op, GemmWorkload | ConvWorkload):
        ranges = _ranges(options, hardware)
        if not ranges:
            return _fixed(op, hardware, prepacked, NONE)
        workload, rows = _open_product(op, ranges)
        return _open(at_sample(workload, rows), rows, prepacked, NONE)
    if isinstance(op, str | bytes):
        return None
    from ..match import epilogue_of, match, prim_func_of
    from ..model.accel.operator import is_operator

    if not is_operator(op):
        return None
    ranges = _ranges(options, hardware)
    functions = getattr(op, "functions", None)
    if functions is not None:
        if len(functions) != 1:
            raise WorkloadError(f"a module of {len(functions)} operators; expected one operator, or a Relax model")
        op = next(iter(functions.values()))
    func = prim_func_of(op)
    from ..schedule import is_open_func

    if hardware.cpu is not None and is_open_func(func):
        return _open_function(func, ranges, prepacked)
    _refuse_names(ranges, ())
    program = match(func, may_swap=False, keep_taps=True)
    # Accelerators have no epilogue here: their configurations are for the sums alone.
    behind = said(epilogue_of(program)) if hardware.cpu is not None else NONE
    return _fixed(program.workload, hardware, prepacked, behind)


def _fixed(workload: GemmWorkload | ConvWorkload, hardware: Hardware, prepacked: bool, epilogue: str) -> Task:
    asked, packed = asked_for(workload, hardware, prepacked)
    return Task(name="", workload=asked, prepacked=packed, epilogue=epilogue, calls=1)


def _open(workload: GemmWorkload, rows: Range, prepacked: bool, epilogue: str) -> Task:
    return Task(name="", workload=workload, prepacked=prepacked, epilogue=epilogue, calls=1, rows=rows)


def _ranges(options: Mapping[str, Any], hardware: Hardware) -> dict[str, Range]:
    """Return the ranges in `dims`. WorkloadError for anything else, and for other options."""
    given = {name: value for name, value in options.items() if value}
    dims = given.pop("dims", {})
    if given:
        raise WorkloadError(f"{', '.join(given)}: accepted for a model only, not for an operator")
    if dims and hardware.cpu is None:
        raise HardwareError(f"dims: {hardware.name} supports static shapes only; expected none, or target='llvm'")
    found: dict[str, Range] = {}
    for name, sizes in dims.items():
        ends = range_of(f"dims[{name!r}]", sizes)
        if ends is None or ends[1] < 1:
            raise WorkloadError(
                f"dims[{name!r}] = {sizes!r}; expected a range of sizes for an operator, as in (1, 512)"
            )
        found[name] = Range(max(1, ends[0]), ends[1])
    return found


def _refuse_names(ranges: Mapping[str, Range], known: Collection[str]) -> None:
    """Raise WorkloadError for a range of a name that is not a symbolic dimension of the operator."""
    for name in ranges:
        if name not in known:
            what = nearest(name, known) if known else "expected none, since the operator's sizes are fixed"
            raise WorkloadError(f"dims names {name!r}; {what}")


def rows_of(workload: GemmWorkload | ConvWorkload, dims: Mapping[str, Any], hardware: Hardware) -> Range:
    """Return the rows that `dims` gives as a range. WorkloadError for anything else."""
    return _open_product(workload, _ranges({"dims": dims}, hardware))[1]


def _open_product(workload: GemmWorkload | ConvWorkload, ranges: Mapping[str, Range]) -> tuple[GemmWorkload, Range]:
    _refuse_names(ranges, ("m",) if isinstance(workload, GemmWorkload) else ())
    assert isinstance(workload, GemmWorkload)
    if workload.trans_a:
        raise WorkloadError(f"{workload.op}: its first operand is transposed; {_ACCEPTED}")
    return workload, ranges["m"]


def at_sample(workload: GemmWorkload, rows: Range) -> GemmWorkload:
    """Return the workload with the number of rows that decisions for symbolic `rows` assume."""
    most = USUAL if rows.last is None else min(rows.last, USUAL)
    return at_rows(workload, max(rows.first, most))


def _open_function(func: Any, ranges: Mapping[str, Range], prepacked: bool) -> Task:
    """Return the task of a function with symbolic shapes."""
    from ..lowering.samples import samples
    from ..match import epilogue_of, match_gemm
    from ..schedule import open_variables
    from ..schedules.cpu_schedule import rows_of as rows_of_program

    _refuse_names(ranges, open_variables(func))
    sizes = {name: max(own.first, min(own.last or USUAL, USUAL)) for name, own in ranges.items()}
    with samples(sizes, {name: (own.first, own.last or MAX_EXTENT) for name, own in ranges.items()}):
        program = match_gemm(func, may_swap=False, may_open=True)
        rows = rows_of_program(program)
    if rows is None:
        raise WorkloadError(
            f"{program.name}: its columns, reduction axis or batch are symbolic, or its rows are computed; {_ACCEPTED}"
        )
    return _open(program.workload, rows, prepacked, said(epilogue_of(program)))
