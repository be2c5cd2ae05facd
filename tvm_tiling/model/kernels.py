"""The kernels of a compilation: object files, compiled concurrently as soon as each is scheduled.

LLVM takes most of a model's compilation time, and TVM releases the interpreter lock while it runs. So kernels are
compiled in one thread per core while others are still being decided and scheduled. Those being waited for come first,
then the largest kernel. Functions that are equal except for their names are compiled once per compilation, and with a
cache only once at all.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping
from enum import Enum
from types import TracebackType

import tvm
import tvm_ffi
from tvm import tirx
from tvm.support import cc

from ..hardware.description import Hardware
from ..lowering.bounded import bounded
from ..lowering.integers import defined
from ..lowering.sizes import with_checked_sizes, with_safe_sizes
from ..lowering.wrapping import wrapping
from ..runtime.library import load_linker
from ..schedule import llvm_target
from .build_progress import BuildProgress, Told
from .instructions import instructions_of
from .kernel_cache import KernelCache
from .machine_code import TRUSTED, at_level, named, object_of
from .native_objects import make_ahead
from .space import require_space
from .workers import Result, Workers

# Attributes of a PrimFunc that affect its machine code.
_READ = ("tirx.noalias", "s_tir", "tirx.is_host_func", TRUSTED)


# LLVM's optimisation level. Kernels are already tiled, vectorised and unrolled: level 3, TVM's default, duplicates
# loops on conditions and takes a fifth to a third more processor time, without faster kernels (models took 0.94 to 1.00
# of their time at level 1, measured with AVX2).
LEVEL = 1


_FIRST = 1 << 60  # precedes any kernel


class Kind(Enum):
    """The origin of a function, which determines the safety checks added before its compilation."""

    PACKING = "packing"  # packs constant weights, once, on this machine
    SCHEDULED = "scheduled"
    ADDED = "added"  # by TVM: sorts, and functions that compute sizes


class Kernels:
    """Object files for one target by the content of their functions. A context manager, whose threads end with it."""

    def __init__(
        self,
        target: tvm.target.Target,
        workers: int,
        cache: KernelCache | None = None,
        progress: Told | None = None,
    ) -> None:
        """`workers`: number of threads. `progress` is called whenever a kernel has been built, from any thread, but
        never concurrently; its error ends the compilation."""
        self.target = target
        self.instructions = instructions_of(target)
        optimised = at_level(target, LEVEL)
        # Packing functions run once, in less time than LLVM takes to optimise them. Unoptimised object files each have
        # a start-up function; TVM's JIT linker, used without a C compiler, supports only one.
        linked = cc.get_cc() is not None
        here = self._target_here()
        packing = at_level(here, 0 if linked else LEVEL)
        if not linked:
            load_linker()  # before any thread starts
        self._targets = {kind: packing if kind is Kind.PACKING else optimised for kind in Kind}
        self._workers = Workers(workers)
        self._cache = cache or KernelCache(None)
        self._progress = progress
        # by the hash of the function
        self._known: dict[tuple[int, Kind], list[tuple[tirx.PrimFunc, Result[bytes]]]] = {}
        self._asked = self._done = self._expected = 0
        self._telling = threading.Lock()

    @property
    def lacking(self) -> str:
        """The instructions required by the kernels that this CPU lacks, in words; empty if it can run them."""
        return "" if self.instructions is None else self.instructions.lacking()

    def _target_here(self) -> tvm.target.Target:
        """The target of functions that run at compile time: this CPU, if it cannot run code for the model's target."""
        return llvm_target() if self.lacking else self.target

    def __enter__(self) -> Kernels:
        """Raises OSError if the directory for temporary files has not enough space."""
        require_space()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        """Discard kernels that are no longer waited for."""
        self._workers.end()
        if kind is None:
            self._cache.make_space()

    def expect(self, count: int) -> None:
        """Announce that `count` more kernels will be requested."""
        self._expected += count

    def start_native(self) -> None:
        """Compile the native sources that are linked into a model's library."""
        self._workers.add(-2 * _FIRST, self._make_native)

    def start(self, func: tirx.PrimFunc, kind: Kind) -> Result[bytes]:
        """Compile `func`; the object file uses the generic name, see named()."""
        func = _bare(func)
        alike = self._known.setdefault((tvm_ffi.structural_hash(func), kind), [])
        for other, known in alike:
            if tvm_ffi.structural_equal(other, func):
                return known
        result: Result[bytes] = Result()
        alike.append((func, result))
        self._asked += 1
        order = -_FIRST if kind is Kind.PACKING else -_stores(func)
        self._workers.add(order, lambda: result.compute(lambda: self._make(func, kind)))
        return result

    def objects(self, functions: Mapping[str, tirx.PrimFunc], kinds: Callable[[str], Kind]) -> list[bytes]:
        """The object files of `functions` under their names, after all are compiled."""
        made = [(name, self.start(func, kinds(name))) for name, func in functions.items()]
        return [named(result.get(), name) for name, result in made]

    def _make_native(self) -> None:
        """Errors are raised when the library is linked, which tries again."""
        with contextlib.suppress(Exception):
            make_ahead(self._cache, None if self.instructions is None else self.instructions.arch)

    def _make(self, func: tirx.PrimFunc, kind: Kind) -> bytes:
        key = self._key(func, kind) if self._cache.keeps else None
        content = None if key is None else self._cache.get(key)
        if content is None:
            content = object_of(_safe(func, kind), self._targets[kind])
            if key is not None:
                self._cache.put(key, content)
        self._tell()
        return content

    def _tell(self) -> None:
        if self._progress is not None:
            with self._telling:
                self._done += 1
                self._progress(BuildProgress(self._done, max(self._expected, self._asked)))

    def _key(self, func: tirx.PrimFunc, kind: Kind) -> str:
        return self._cache.key(f"{kind.value} {self._targets[kind]} {tvm.ir.save_json(func)}")


def kernels_for(
    hardware: Hardware,
    cache: KernelCache | None = None,
    progress: Told | None = None,
) -> Kernels:
    """Kernels for the CPU of `hardware`, compiled on all of its cores."""
    return Kernels(llvm_target(hardware), hardware.cpu.cores if hardware.cpu else 1, cache, progress)


def trusted(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Mark `func` as called only with memory allocated by the virtual machine and constants of the model. Dynamic sizes
    are checked nevertheless."""
    return func.with_attr(TRUSTED, 1)


def _stores(func: tirx.PrimFunc) -> int:
    """The number of store statements in `func`, an estimate of its compilation time."""
    count = 0

    def note(_: tirx.BufferStore) -> None:
        nonlocal count
        count += 1

    tvm_ffi.structural_walk(func.body, (tirx.BufferStore, note))
    return count


def _bare(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """`func` without the attributes that do not affect its machine code."""
    for name in list(func.attrs.keys()) if func.attrs else ():
        if name not in _READ:
            func = func.without_attr(name)
    return func


def _safe(func: tirx.PrimFunc, kind: Kind) -> tirx.PrimFunc:
    """`func` with checks that make it safe for any tensor contents."""
    if kind is Kind.PACKING:
        return func
    if kind is Kind.SCHEDULED:
        return wrapping(with_safe_sizes(func), scheduled=True)
    # Functions that TVM adds to a module, made unable to crash the process.
    if func.attrs and func.attrs.get("tirx.is_host_func"):
        func = with_checked_sizes(func)
    return defined(bounded(with_safe_sizes(func)))
