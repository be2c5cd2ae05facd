"""Cost of a replayable trace: kernels built by TVM's schedule primitives compared with emitted ones: python -m
benchmarks.primitives

Measured on one core in processor time, so that other load on the machine has little effect.
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace

import numpy as np
import tvm
from tvm import te, topi

import tvm_tiling as tt
from tvm_tiling.measure import Condition, StopRule, paired
from tvm_tiling.runtime.threads import own_core

PRODUCTS = (  # m, n, k
    (512, 512, 512),
    (1024, 1024, 1024),
    (384, 4096, 1024),
    (64, 64, 16384),
    (127, 509, 257),
    (16, 1024, 1024),
    (1, 4096, 4096),
    (33, 50, 40),
)
CONVOLUTIONS = ((56, 64, 64, 3, 1), (28, 128, 128, 3, 1), (56, 64, 256, 1, 1), (224, 3, 64, 7, 2), (15, 24, 40, 3, 2))


def product(m: int, n: int, k: int) -> te.Tensor:
    """Return a matrix multiplication in float32."""
    return topi.matmul(te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B"))


def convolution(size: int, ci: int, co: int, kernel: int, stride: int) -> te.Tensor:
    """Return a convolution of one NHWC image of `size` x `size` in float32."""
    x, w = te.placeholder((1, size, size, ci), name="X"), te.placeholder((kernel, kernel, ci, co), name="W")
    return topi.nn.conv2d_nhwc(x, w, stride, kernel // 2, 1)


def cost(op: te.Tensor, hardware: tt.Hardware, form: str | None = None, most_seconds: float = 4.0) -> float:
    """Return the time of the kernel built by primitives relative to that of the emitted one, timed together for at most
    `most_seconds`; the emitted one uses the algorithm `form` if it is given."""
    runs = []
    for options in ({"form": form}, {"primitives": True}):
        func = tt.tiling_schedule(op, hardware, **options).mod["main"]
        kernel = tvm.compile(tvm.IRModule({"main": func}), target=tt.llvm_target(hardware))["main"]
        shapes = [tuple(int(extent) for extent in parameter.shape) for parameter in func.params]
        arrays = [tvm.runtime.tensor(np.random.default_rng(1).random(shape, "float32")) for shape in shapes]
        runs.append(lambda kernel=kernel, arrays=arrays: kernel(*arrays))
    return paired(*runs, StopRule(most_seconds=most_seconds), Condition(clock=time.process_time)).ratio


def main() -> int:
    """Print a line for each operator."""
    known = tt.Hardware.detect()
    if known.cpu is None:
        print("the CPU of this machine is not supported", file=sys.stderr)
        return 1
    hardware = replace(known, cpu=replace(known.cpu, cores=1, threads=1))
    print("operator                      time by primitives / time of the emitted kernel")
    with own_core():
        for shape in PRODUCTS:
            print(f"gemm {'x'.join(map(str, shape)):24} {cost(product(*shape), hardware):.2f}", flush=True)
        for layer in CONVOLUTIONS:
            op, text = convolution(*layer), "x".join(map(str, layer))
            best, direct = cost(op, hardware), cost(op, hardware, "direct")
            print(f"conv {text:24} {best:.2f}, direct algorithm {direct:.2f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
