"""From a lowered module to a library, operators compiled side by side.

LLVM takes most of a model's compilation and one core; TVM lets go of the interpreter while it runs. So PrimFuncs are
compiled in as many groups as there are cores, each in a thread of its own, and linked under one virtual machine.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax, tirx
from tvm.relax import vm_build


@dataclass(frozen=True)
class Built:
    """`library`: what relax.build makes. `activations`: bytes of the storage that is planned for a run."""

    library: Any
    activations: int


def build(mod: tvm.IRModule, target: tvm.target.Target, workers: int) -> Built:
    """The executable of `mod`, whose operators are scheduled; as relax.build makes it, but on `workers` cores."""
    with target:
        mod = relax.get_pipeline("default")(mod)
    constants = dict(mod.attrs.get("const_name_to_constant", {})) if mod.attrs else {}
    builder = relax.ExecBuilder()
    # The two halves of relax.build, which compiles all PrimFuncs as one in between.
    left = vm_build._vmcodegen(builder, mod, "bytecode")
    functions = {v.name_hint: f for v, f in left.functions.items() if isinstance(f, tirx.PrimFunc)}
    libraries = build_functions(functions, target, workers)
    library = vm_build._vmlink(builder, target, None, ext_libs=libraries, params=constants)
    return Built(library, _planned(mod))


def _planned(mod: tvm.IRModule) -> int:
    """Bytes of all storages that "main" allocates: what lives at different times shares one. Those whose size the data
    decides are not counted."""
    sizes = []

    def storage(expr: object) -> None:
        if isinstance(expr, relax.Call) and isinstance(expr.op, tvm.ir.Op) and expr.op.name == "relax.vm.alloc_storage":
            extents = getattr(expr.args[0], "values", [])
            if len(extents) and all(isinstance(extent, tirx.IntImm) for extent in extents):
                sizes.append(math.prod(int(extent) for extent in extents))

    relax.analysis.post_order_visit(mod["main"], storage)
    return sum(sizes)


def build_functions(
    functions: dict[str, tirx.PrimFunc], target: tvm.target.Target, workers: int
) -> Sequence[tvm.runtime.Module]:
    """Libraries that hold `functions`, in groups of about equal work."""
    # Neighbours in the graph take similar time to compile: every n-th one makes an even group.
    names = list(functions)
    groups = [names[i::workers] for i in range(min(workers, len(names)))]

    def compiled(group: Sequence[str]) -> tvm.runtime.Module:
        with tvm.transform.PassContext(opt_level=3):
            return tvm.tirx.build(tvm.IRModule({name: functions[name] for name in group}), target=target)

    if len(groups) < 2:
        return [compiled(group) for group in groups]
    with ThreadPoolExecutor(len(groups)) as pool:
        return list(pool.map(compiled, groups))
