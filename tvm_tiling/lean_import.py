"""Import of TVM without PyTorch, which TVM imports if installed: a third of the time, half of the memory.

Models and tensors of PyTorch are supported in any order of imports. A process that imports PyTorch after this package
lacks two functions of tvm_ffi: `convert` of a torch.dtype, and `use_torch_stream`, which is for other devices.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import LazyLoader
from types import ModuleType
from typing import Any

_FIRST = ("tvm", "tvm_ffi")  # whichever is imported first imports PyTorch
# Sessions of many devices, which take a quarter of a second: imported on first use.
_LATER = "tvm.runtime.disco"


@contextlib.contextmanager
def tvm_without_torch() -> Iterator[None]:
    """Prevent TVM from importing PyTorch if it is imported within the context; no effect if either is already
    loaded."""
    if "torch" in sys.modules or any(name in sys.modules for name in _FIRST):
        yield
        return
    finder = ChangedLoaders({**dict.fromkeys(_FIRST, _WithoutTorch), _LATER: LazyLoader})
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


class ChangedLoaders(MetaPathFinder):
    """Finds modules as the path finder does, with another loader for some names: `change` makes it from the module's
    own. With LazyLoader they are loaded on first use."""

    def __init__(self, change: Mapping[str, Callable[[Loader], Loader]]) -> None:
        self._change = change

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Implements the importlib interface; None leaves a module to other finders."""
        spec = PathFinder.find_spec(name, path) if name in self._change else None
        if spec is not None and spec.loader is not None:
            spec.loader = self._change[name](spec.loader)
        return spec


class _WithoutTorch(Loader):
    """A module's own loader, with PyTorch hidden."""

    def __init__(self, own: Loader) -> None:
        self._own = own

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Delegate to the module's own loader."""
        return self._own.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Execute the module while PyTorch cannot be found."""
        absent = "torch" not in sys.modules
        if absent:
            sys.modules["torch"] = None  # type: ignore[assignment]  # what importlib takes for: not there
        try:
            self._own.exec_module(module)
        finally:
            if absent:
                del sys.modules["torch"]
