"""Exported C libraries compared with the executables that they come from: python -m benchmarks.exported squeezenet
resnet50

Each network is compiled, exported, built into a shared library by the C compiler, and loaded into this process. Results
are compared first: both run the same kernels, so they must be equal. Then the library's run function alternates with
Executable.run, which writes to preallocated memory.
"""

from __future__ import annotations

import argparse
import ctypes
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import tvm_tiling as tt
from tvm_tiling.cli.table import print_table
from tvm_tiling.measure import Condition, Side, Status, paired
from tvm_tiling.runtime.threads import own_core

from .onnx_networks import NETWORKS, with_random_weights
from .run import SETTLE

USUAL = ("squeezenet", "resnet50")
NAME = "net"


def shared_library(executable: Any, folder: Path) -> Path:
    """Build the executable as a C library in `folder`."""
    executable.export(folder / NAME)
    parts = [*(folder / NAME).glob("*.c"), *(folder / NAME).glob("*.o")]
    parts = [part for part in parts if part.name != "main.c"]
    target = folder / f"lib{NAME}.so"
    command = ["cc", "-O2", "-fPIC", "-shared", *map(str, parts), "-o", str(target), "-lm", "-pthread"]
    subprocess.run(command, check=True)
    return target


def row(network: str, folder: Path) -> tuple[str, ...]:
    """Compile, export, compare and time one network."""
    executable = tt.compile(with_random_weights(network), cache=False)
    rng = np.random.default_rng(1)
    signature = executable.signature
    inputs = [rng.standard_normal(shape).astype("float32") for shape in signature.input_shapes]
    wanted = executable.run(*inputs)
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    out = tuple(np.empty_like(value) for value in wanted)
    library = ctypes.CDLL(str(shared_library(executable, folder)))
    library.net_error.restype = ctypes.c_char_p
    model = ctypes.c_void_p()
    if library.net_create(ctypes.byref(model), str(folder / NAME / f"{NAME}.weights").encode(), 0):
        raise SystemExit(f"{network}: {library.net_error().decode()}")
    made = [np.empty_like(value) for value in wanted]
    addresses = [(ctypes.c_void_p * len(arrays))(*(a.ctypes.data for a in arrays)) for arrays in (inputs, made)]

    def exported() -> None:
        if library.net_run(model, *addresses):
            raise RuntimeError(library.net_error().decode())

    exported()
    if not all(np.array_equal(ours, value) for ours, value in zip(made, wanted, strict=True)):
        raise SystemExit(f"{network}: the library's results differ from the executable's")
    given = out if len(out) > 1 else out[0]
    pair = paired(
        Side(exported, own_core),
        Side(lambda: executable.run(*inputs, out=given), own_core),
        condition=Condition(settle=SETTLE),
    )
    library.net_destroy(model)
    if pair.status is not Status.OK:
        raise SystemExit(f"{network}: {pair.reason}")
    milliseconds = (f"{1e3 * side.median:.2f}" for side in (pair.ours, pair.peer))
    return network, *milliseconds, f"{1 / pair.ratio:.3f}", f"{pair.spread:.3f}", "doubtful" if pair.doubtful else ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.exported", description=__doc__)
    parser.add_argument("networks", nargs="*", choices=[[], *NETWORKS], default=USUAL)
    rows = []
    for network in parser.parse_args(arguments).networks:
        with tempfile.TemporaryDirectory() as folder:
            rows.append(row(network, Path(folder)))
    print_table(("network", "library ms", "exe.run ms", "library / exe.run", "spread", ""), rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
