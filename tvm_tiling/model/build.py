"""From a lowered module to a library, operators compiled side by side.

LLVM takes most of a model's compilation and one core; TVM lets go of the interpreter while it runs. So PrimFuncs are
compiled in as many groups as there are cores, each in a thread of its own, to objects of machine code, which link.py
makes a library of.
"""

from __future__ import annotations

import hashlib
import math
import resource
import shutil
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import tvm
import tvm_ffi
from tvm import relax, tirx
from tvm.relax import vm_build

from ..lowering.bounded import bounded
from ..lowering.integers import defined
from ..lowering.sizes import with_checked_sizes, with_safe_sizes
from ..lowering.wrapping import wrapping
from ..match.floats import exact
from ..runtime.library import Library
from ..runtime.plan import ExecutionPlan
from ..temporary import temporary_folder
from .extract_plan import NoPlan, extract_plan
from .link import link, link_plan
from .memory_files import MemoryFiles

T = TypeVar("T")
OTHER_FOLDER = "another folder by TMPDIR"
SPACE = 64 << 20  # bytes, some ten times what the machine code of the largest networks takes


@dataclass(frozen=True)
class Built:
    """`library`: the kernels and what calls them. `activations`: bytes of the storage that is planned for a run."""

    library: Library
    activations: int


def build(mod: tvm.IRModule, target: tvm.target.Target, workers: int) -> Built:
    """The executable of `mod`, whose operators are scheduled; as relax.build makes it, but on `workers` cores.

    OSError where the folder for temporary files has no room, TilingError where the C compiler does not link it.
    """
    scheduled = {variable.name_hint for variable in mod.functions}
    with target:
        mod = relax.get_pipeline("default")(mod)
    constants = dict(mod.attrs.get("const_name_to_constant", {})) if mod.attrs else {}
    builder = relax.ExecBuilder()
    plan, no_plan = _plan(mod)
    # The two halves of relax.build, which compiles all PrimFuncs as one in between.
    left = vm_build._vmcodegen(builder, mod, "bytecode")
    functions = {
        v.name_hint: wrapping(with_safe_sizes(f), scheduled=True) if v.name_hint in scheduled else _checked(f)
        for v, f in left.functions.items()
        if isinstance(f, tirx.PrimFunc)
    }
    _require_space(Path(tempfile.gettempdir()))
    with temporary_folder() as folder, MemoryFiles(folder) as files:
        try:
            objects = _objects(functions, target, workers, files)
            if plan is not None:
                library = link_plan([path for path, _ in objects], plan, folder)
                if library is not None:
                    return Built(library, _planned(mod))
                no_plan = "there is no C compiler"
            modules = [tvm.runtime.load_static_library(path, names) for path, names in objects]
            linked = vm_build._vmlink(builder, target, None, ext_libs=modules, params=constants)
            return Built(link(linked, no_plan, folder, files), _planned(mod))
        except OSError as error:
            raise OSError(
                f"what is compiled cannot be put into {folder}: {error.strerror}; accepted: {OTHER_FOLDER}"
            ) from None


def _plan(mod: tvm.IRModule) -> tuple[ExecutionPlan | None, str]:
    """The plan of "main", or why there is none."""
    try:
        return extract_plan(mod), ""
    except NoPlan as why:
        return None, str(why)


def _checked(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """What TVM adds to a module, sorts and functions that compute sizes, without what may end the process."""
    if func.attrs and func.attrs.get("tirx.is_host_func"):
        func = with_checked_sizes(func)
    return defined(bounded(with_safe_sizes(func)))


class Kernels:
    """Libraries that were built for one target, by the structure of their modules: models that differ only in the
    content of the constants they take share one."""

    def __init__(self) -> None:
        self._known: dict[int, list[tuple[tvm.IRModule, Built]]] = {}

    def build(self, mod: tvm.IRModule, target: tvm.target.Target, workers: int) -> Built:
        """The library of an equal module that was built before, or a new one. Errors as build()."""
        known = self._known.setdefault(tvm_ffi.structural_hash(mod), [])
        for other, built in known:
            if tvm_ffi.structural_equal(other, mod):
                return built
        built = build(mod, target, workers)
        known.append((mod, built))
        return built


def _require_space(folder: Path) -> None:
    """OSError where machine code may find no room: said at once and not behind a minute of compilation."""
    free, (largest, _) = shutil.disk_usage(folder).free, resource.getrlimit(resource.RLIMIT_FSIZE)
    if largest != resource.RLIM_INFINITY:
        free = min(free, largest)
    if free < SPACE:
        raise OSError(
            f"{folder} has room for {free >> 20} MiB; accepted: {SPACE >> 20} MiB for what is compiled "
            f"there, or {OTHER_FOLDER}"
        )


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
) -> list[tvm.runtime.Module]:
    """Libraries that hold `functions`."""
    return _each_group(lambda group: _compiled(group, target), functions, workers)


def _objects(
    functions: dict[str, tirx.PrimFunc], target: tvm.target.Target, workers: int, files: MemoryFiles
) -> list[tuple[str, list[str]]]:
    """The same as machine code, in `files`: paths, and the names of the functions in each."""

    def written(group: dict[str, tirx.PrimFunc]) -> tuple[str, list[str]]:
        names = list(group)
        # The name of a fused operator grows with the operators in it; that of a file may not.
        path = files.path(f"{hashlib.sha256(names[0].encode()).hexdigest()}.o")
        _compiled(group, target).write_to_file(path)
        return path, names

    return _each_group(written, functions, workers)


def _compiled(group: dict[str, tirx.PrimFunc], target: tvm.target.Target) -> tvm.runtime.Module:
    functions = {name: exact(func) for name, func in group.items()}
    with tvm.transform.PassContext(opt_level=3):
        return tvm.tirx.build(tvm.IRModule(functions), target=target)


def _each_group(
    make: Callable[[dict[str, tirx.PrimFunc]], T], functions: dict[str, tirx.PrimFunc], workers: int
) -> list[T]:
    """`make` of groups of about equal work, one for each worker, in threads."""
    # Neighbours in the graph take similar time to compile: every n-th one makes an even group.
    names = list(functions)
    groups = [{name: functions[name] for name in names[i::workers]} for i in range(min(workers, len(names)))]
    if len(groups) < 2:
        return [make(group) for group in groups]
    with ThreadPoolExecutor(len(groups)) as pool:
        return list(pool.map(make, groups))
