"""From a lowered module to a library: object files of its kernels, the bytecode that calls them, and linking."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import tvm
import tvm_ffi
from tvm import relax, tirx
from tvm.relax import vm_build

from ..errors import TilingError
from ..runtime.library import Library
from ..runtime.plan import ExecutionPlan
from ..sizes import Shape
from ..temporary import temporary_folder
from .extract_plan import NoPlan, extract_plan
from .kernels import Kernels, Kind
from .link import Destination, link, link_objects, link_plan
from .memory_files import MemoryFiles
from .passes.machine_calls import machine_calls
from .read_open_plan import read_open_plan
from .space import naming


@dataclass(frozen=True)
class Built:
    """`library`: the kernels and the code that calls them. `activations`: bytes that a run allocates for intermediate
    tensors."""

    library: Library
    activations: int


def build(mod: tvm.IRModule, kernels: Kernels, shapes: Sequence[Shape] = (), parts: int = 1) -> Built:
    """Build the executable of `mod`, whose operators are scheduled, like relax.build, from object files of `kernels`.

    `shapes`: those of its inputs if they are dynamic. `parts`: how often a run executes `mod`, each time for a part of
    the batch. Raises OSError if the directory for temporary files is full, TilingError if the C compiler cannot link
    it, or several parts have no plan.
    """
    scheduled = {variable.name_hint for variable in mod.functions}
    if shapes and (built := _with_open_plan(mod, kernels, shapes)) is not None:
        return built
    with kernels.target:
        mod = machine_calls(mod)
    constants = dict(mod.attrs.get("const_name_to_constant", {})) if mod.attrs else {}
    builder = relax.ExecBuilder()
    plan, no_plan = _plan(mod)
    # The two halves of relax.build, between which it compiles all PrimFuncs as one module.
    left = vm_build._vmcodegen(builder, mod, "bytecode")
    functions = {v.name_hint: f for v, f in left.functions.items() if isinstance(f, tirx.PrimFunc)}
    objects = kernels.objects(functions, lambda name: Kind.SCHEDULED if name in scheduled else Kind.ADDED)
    needed, destination = kernels.instructions, _destination(kernels)
    with temporary_folder() as folder, MemoryFiles(folder) as files, naming(folder):
        if plan is not None:
            library = link_plan(objects, plan if parts == 1 else plan.in_parts(parts), folder, destination)
            if library is not None:
                return Built(replace(library, instructions=needed), plan.arena)
            no_plan = "there is no C compiler"
        if parts > 1:
            raise TilingError(f"the batch cannot be computed in {parts} parts: {no_plan}")
        linked = vm_build._vmlink(builder, kernels.target, None, params=constants)
        library = link(linked, objects, no_plan, folder, files, destination)
    return Built(replace(library, instructions=needed), _planned(mod))


def _destination(kernels: Kernels) -> Destination:
    return Destination(None if kernels.instructions is None else kernels.instructions.arch, kernels.lacking)


def _with_open_plan(mod: tvm.IRModule, kernels: Kernels, shapes: Sequence[Shape]) -> Built | None:
    """The library of a model with dynamic shapes that has a plan; None if it has none, or there is no C compiler."""
    try:
        plan = read_open_plan(mod, shapes)
    except NoPlan:
        return None
    functions = {name: mod[name] for name in plan.kernels}
    objects = kernels.objects(functions, lambda _: Kind.SCHEDULED)
    with temporary_folder() as folder, naming(folder):
        library = link_plan(objects, plan, folder, _destination(kernels))
    if library is None:
        return None
    return Built(replace(library, instructions=kernels.instructions), 0)


def _plan(mod: tvm.IRModule) -> tuple[ExecutionPlan | None, str]:
    """The plan of "main", or the reason why there is none."""
    try:
        return extract_plan(mod), ""
    except NoPlan as why:
        return None, str(why)


def build_packing(functions: Mapping[str, tirx.PrimFunc], kernels: Kernels) -> Any:
    """A library of the `functions` that pack weights, for use in this process. Raises the errors of build()."""
    objects = kernels.objects(functions, lambda _: Kind.PACKING)
    with temporary_folder() as folder, naming(folder):
        return link_objects(objects, folder).module


class Libraries:
    """Libraries built for one target, by module structure: models that differ only in the values of their constant
    arguments share one."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], list[tuple[tvm.IRModule, Built]]] = {}

    def build(self, mod: tvm.IRModule, kernels: Kernels, shapes: Sequence[Shape] = (), parts: int = 1) -> Built:
        """The library of an equal module that was built before, or a new one. Errors as in build()."""
        known = self._known.setdefault((tvm_ffi.structural_hash(mod), parts), [])
        for other, built in known:
            if tvm_ffi.structural_equal(other, mod):
                return built
        built = build(mod, kernels, shapes, parts)
        known.append((mod, built))
        return built


def _planned(mod: tvm.IRModule) -> int:
    """Total bytes of storages allocated by "main", which tensors with disjoint lifetimes share. Storages of
    data-dependent size are not counted."""
    sizes = []

    def storage(expr: object) -> None:
        if isinstance(expr, relax.Call) and isinstance(expr.op, tvm.ir.Op) and expr.op.name == "relax.vm.alloc_storage":
            extents = getattr(expr.args[0], "values", [])
            if len(extents) and all(isinstance(extent, tirx.IntImm) for extent in extents):
                sizes.append(math.prod(int(extent) for extent in extents))

    relax.analysis.post_order_visit(mod["main"], storage)
    return sum(sizes)
