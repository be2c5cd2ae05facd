"""Imported models run by TVM's default pipeline, so that a frontend is tested without this package's schedules, and
without LLVM's optimisations, which take a fifth of the time of such tests."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tvm
from tvm import relax

from tvm_tiling.frontend import ImportedModel


def run(model: ImportedModel, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return the outputs of a model for `inputs` in order."""
    built = tvm.compile(model.module, tvm.target.Target({"kind": "llvm", "opt-level": 0}))
    # A model without kernels has an empty C source, which TVM would compile although nothing calls it.
    machine = relax.VirtualMachine(built.mod, tvm.cpu())
    out = machine["main"](*(tvm.runtime.tensor(np.asarray(value)) for value in inputs))
    return [value.numpy() for value in ([out] if isinstance(out, tvm.runtime.Tensor) else out)]
