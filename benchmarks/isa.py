"""Speed on x86-64 without AVX-512 on a CPU that has it: switches that limit this package and its peers alike.

Libraries read them when they are loaded, so that a driver starts itself again with them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

from tvm_tiling.hardware.detect import LIMIT

_AVX2 = {
    "OPENBLAS_CORETYPE": "Haswell",  # NumPy
    "ATEN_CPU_CAPABILITY": "avx2",  # PyTorch, as the following
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
}
SWITCHES = {
    "avx2": {LIMIT: "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", **_AVX2},
    "avx2-vnni": {LIMIT: "avx2-vnni", "ONEDNN_MAX_CPU_ISA": "AVX2_VNNI", **_AVX2},
}
WITHOUT_SWITCH = ("onnxruntime",)


def again(isa: str, module: str, arguments: Sequence[str]) -> int | None:
    """Run `module` with the switches of `isa` in a process of its own, and return its exit status; None if this process
    has them already."""
    switches = SWITCHES[isa]
    if all(os.environ.get(name) == value for name, value in switches.items()):
        return None
    return subprocess.run(
        [sys.executable, "-m", module, *arguments], env={**os.environ, **switches}, check=False
    ).returncode


def is_limited() -> bool:
    """Whether this process hides instructions of its CPU."""
    return LIMIT in os.environ
