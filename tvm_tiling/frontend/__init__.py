"""Import of models from other frameworks into one form: a Relax module with its weights inside.

Names are imported on first use: reading only the header of a file needs no TVM.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .imported import ImportedModel
    from .source import load_model

_MODULES = {"ImportedModel": ".imported", "load_model": ".source"}
__all__ = ["ImportedModel", "load_model"]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(importlib.import_module(_MODULES[name], __name__), name)
    return found
