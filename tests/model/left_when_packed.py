"""python left_when_packed.py MODEL: how many Relax functions of the model exist when its weights are packed, and the
bytes by which packing lets this process grow: a process of its own, so that memory of other tests does not count."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path

from tvm import relax

import tvm_tiling as tt
from tvm_tiling.frontend import load_model
from tvm_tiling.model import compilation, operators


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def functions() -> set[int]:
    gc.collect()
    return {id(kind) for kind in gc.get_objects() if type(kind) is relax.Function}


def main(path: str) -> None:
    known, pack = functions(), operators._pack

    def packing(weights, library):
        left = len(functions() - known)
        before = resident()
        pack(weights, library)
        print(left, resident() - before)

    operators._pack = packing
    models = compilation._taken([load_model(path)])
    options = tt.schedule.Options()
    hardware = tt.Hardware.detect()
    compilation._built(models, 0.0, None, hardware=hardware, options=options, libraries=None, progress=None)


if __name__ == "__main__":
    main(sys.argv[1])
