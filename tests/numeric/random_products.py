"""Random GEMMs, machines and options that are valid together."""

from __future__ import annotations

import math
import platform
import random

from products import EPSILON, Product, avx2, machine_for, native

import tvm_tiling as tt

STEPS = ("bias_n", "bias_m", "relu", "residual", "scale", "tanh", "gelu", "square", "cast:float16", "cast:float32")


def size(rng: random.Random, most: int) -> int:
    """Half of the time a small or round number and its neighbours."""
    if rng.random() < 0.5:
        return max(1, min(most, rng.choice((1, 2, 8, 16, 32, 48, 64, 128, 256)) + rng.choice((-1, 0, 0, 1))))
    return int(math.exp(rng.uniform(0, math.log(most + 1))))


def epilogue(rng: random.Random, dtype: str) -> tuple[str, ...]:
    """Steps in types in which they can be computed; a narrow float is the last."""
    steps: list[str] = []
    kind = "float32" if dtype in ("float32", "float16", "bfloat16") else dtype
    for _ in range(rng.choice((0, 0, 1, 2, 3, 4))):
        step = rng.choice(STEPS)
        if kind in ("int8", "uint8"):
            step = rng.choice(("bias_n", "bias_m", "relu", "residual", "cast:float32"))
        if kind == "float64" and step.startswith("cast:"):
            continue
        # Steps for which large values exceed the range of half precision.
        if (step == "square" and "square" in steps) or (step == "cast:float16" and dtype in ("int8", "uint8")):
            continue
        steps.append(step)
        if step == "cast:float32":
            kind = "float32"
        if step == "cast:float16":
            break
    return tuple(steps)


def random_case(rng: random.Random, most: int) -> tuple[Product, tt.Hardware, dict[str, object]]:
    """A matrix multiplication, a machine and the options of products.check."""
    dtype = rng.choice(("float32", "float32", "float32", "float64", "float16", "bfloat16", "int8", "uint8"))
    m, n, k = (size(rng, most) for _ in range(3))
    if rng.random() < 0.1:
        m, n, k = size(rng, 40), size(rng, 40), rng.randrange(2000, 12000)
    dtype_b = {"int8": "uint8", "uint8": "int8"}.get(dtype) if rng.random() < 0.2 else None
    layout = {"trans_a": rng.random() < 0.3, "trans_b": rng.random() < 0.5}
    machine = rng.choice((native, native, avx2)) if platform.machine() in ("x86_64", "AMD64") else native
    cores = rng.choice((1, 1, 4, 16))
    forms = [None, None, "pack"]
    if dtype in EPSILON:
        forms += ["normal", "nocopy"]
        # The shorter side may become the rows: matrix times column is computed as row times matrix.
        forms += ["inline"] if m > 16 and n > 1 else ["stream"] if 1 <= m <= 4 and n > 1 else []
    form = rng.choice(forms)
    weights = "packed" if form != "stream" and rng.random() < 0.3 else "plain"
    if rng.random() < 0.2 and dtype != "bfloat16":
        pads = {f"pad_{name}": rng.choice((1, 7, 16, 100)) for name in "abc"}
        p = Product(m=m, n=n, k=k, dtype=dtype, dtype_b=dtype_b, **layout, **pads)
        weights = "plain"
    else:
        batch = rng.choice(((), (), (), (3,), (2, 2)))
        shared = rng.choice((None, tuple(rng.choice((1, b)) for b in batch)))
        if batch and form not in (None, "pack"):
            form = None  # the rows of a batch that shares B are those of one GEMM, perhaps with uneven distances
        steps = epilogue(rng, dtype)
        p = Product(m=m, n=n, k=k, dtype=dtype, dtype_b=dtype_b, batch=batch, batch_b=shared, epilogue=steps, **layout)
    return p, machine_for(form, machine, cores), {"form": form, "weights": weights}
