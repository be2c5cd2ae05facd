"""Random kernels whose addresses depend on data: NaN, infinities, huge coordinates, unchecked indices.

Results are not compared; no run may access memory outside of its tensors, which lie between guard pages.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from case import Case
from guarded_memory import WalledModel
from tvm import relax, topi

from tvm_tiling.errors import WorkloadError
from tvm_tiling.schedule import hardware_of

op = relax.op
HARDWARE = hardware_of("llvm")
RUNS = 4
NUMBERS = (
    np.nan,
    np.inf,
    -np.inf,
    1e30,
    -1e30,
    3e9,
    -3e9,
    2**31,
    -(2**31),
    1e-38,
    -0.0,
    -1.0,
    0.5,
    1.0,
    2.5,
    7.0,
    64.0,
)
INTEGERS = (0, 1, 2, 3, -1, -2, 5, 8, 64, -64, 2**31 - 1, -(2**31), 2**32, 2**40, -(2**40), 2**63 - 1, -(2**63))


@dataclass(frozen=True)
class Kernel:
    """`inputs`: shapes and types; `expr`: an expression of their variables."""

    text: str
    inputs: tuple[tuple[tuple[int, ...], str], ...]
    expr: Callable[..., relax.Expr]


def _image(rng: random.Random) -> tuple[int, ...]:
    return rng.randint(1, 2), rng.randint(1, 3), rng.randint(2, 9), rng.randint(2, 9)


def _grid_sample(rng: random.Random) -> Kernel:
    image, out = _image(rng), (rng.randint(1, 5), rng.randint(1, 5))
    how = rng.choice(("bilinear", "nearest", "bicubic"))
    padding, corners = rng.choice(("zeros", "border", "reflection")), rng.random() < 0.5
    return Kernel(
        f"grid_sample {how} {padding} {corners}",
        ((image, "float32"), ((image[0], 2, *out), "float32")),
        lambda _, x, g: op.image.grid_sample(x, g, how, "NCHW", padding, corners),
    )


def _regions(rng: random.Random) -> Kernel:
    image, count, size = _image(rng), rng.randint(1, 4), (rng.randint(1, 3), rng.randint(1, 3))
    inputs = ((image, "float32"), ((count, 5), "float32"))
    ratio, mode = rng.choice((1, 2)), rng.choice(("avg", "max"))
    if rng.random() < 0.3:
        return Kernel("roi_pool", inputs, lambda _, x, r: op.vision.roi_pool(x, r, size, 0.5))
    return Kernel(
        f"roi_align {mode} {ratio}",
        inputs,
        lambda _, x, r: op.vision.roi_align(x, r, size, 0.5, sample_ratio=ratio, mode=mode),
    )


def _regions_unchecked(rng: random.Random) -> Kernel:
    image, count, size = _image(rng), rng.randint(1, 4), (rng.randint(1, 3), rng.randint(1, 3))
    return Kernel(
        "topi.roi_align",
        ((image, "float32"), ((count, 5), "float32")),
        lambda b, x, r: b.emit_te(topi.vision.roi_align, x, r, size, 1.0, "avg", 2),
    )


def _crop(rng: random.Random) -> Kernel:
    image, count = _image(rng), rng.randint(1, 4)
    how = rng.choice(("bilinear", "nearest_neighbor"))
    return Kernel(
        f"crop_and_resize {how}",
        ((image, "float32"), ((count, 4), "float32"), ((count,), "int32")),
        lambda b, x, boxes, images: b.emit_te(topi.image.crop_and_resize, x, boxes, images, (3, 2), "NCHW", how, 0.0),
    )


def _unchecked(rng: random.Random) -> Kernel:
    """TVM's own kernels on unchecked indices."""
    shape = tuple(rng.randint(1, 7) for _ in range(rng.randint(1, 3)))
    axis, dtype = rng.randrange(len(shape)), rng.choice(("int32", "int64"))
    data, places = (shape, "float32"), (shape, dtype)
    kernels = (
        Kernel("topi.take", (data, places), lambda b, x, i: b.emit_te(topi.take, x, i, axis, mode="fast")),
        Kernel("topi.gather", (data, places), lambda b, x, i: b.emit_te(topi.gather, x, axis, i)),
        Kernel(
            "topi.gather_nd",
            (data, ((len(shape), 5), dtype)),
            lambda b, x, i: b.emit_te(topi.gather_nd, x, i),
        ),
        Kernel(
            "topi.scatter_elements",
            (data, places, data),
            lambda b, x, i, new: b.emit_te(topi.scatter_elements, x, i, new, axis, "add"),
        ),
        Kernel(
            "topi.scatter_nd",
            (data, ((len(shape), 5), dtype), ((5,), "float32")),
            lambda b, x, i, new: b.emit_te(topi.scatter_nd, x, i, new, "update"),
        ),
        Kernel("topi.adv_index", (data, ((4,), dtype)), lambda b, x, i: b.emit_te(topi.adv_index, x, [i])),
        Kernel(
            "topi.reverse_sequence",
            (((4, 3), "float32"), ((3,), dtype)),
            lambda b, x, i: b.emit_te(topi.reverse_sequence, x, i, 0, 1),
        ),
        Kernel(
            "topi.searchsorted",
            (((6,), "float32"), ((5,), "float32")),
            lambda b, x, v: b.emit_te(topi.searchsorted, x, v, False, "int32"),
        ),
    )
    return rng.choice(kernels)


def _cast(rng: random.Random) -> Kernel:
    """Indices that are floats cast to integers."""
    dtype = rng.choice(("int32", "int64"))
    return Kernel(
        f"take of {dtype} of floats",
        (((5, 3), "float32"), ((4,), "float32")),
        lambda b, x, i: op.take(x, b.emit(op.astype(i, dtype)), 0),
    )


def _boxes(rng: random.Random) -> Kernel:
    boxes = rng.randint(1, 6)
    return Kernel(
        "non_max_suppression",
        (((2, boxes, 6), "float32"), ((2,), "int32"), ((2, boxes), "int32")),
        lambda _, x, counts, i: op.vision.non_max_suppression(x, counts, i, return_indices=False),
    )


KERNELS = (_grid_sample, _regions, _regions_unchecked, _crop, _unchecked, _unchecked, _unchecked, _cast, _boxes)


def random_coordinates(rng: random.Random) -> Case:
    """One kernel with several sets of hostile data."""
    kernel, seed = rng.choice(KERNELS)(rng), rng.randrange(2**32)

    def check() -> None:
        builder, arrays = relax.BlockBuilder(), np.random.default_rng(seed)
        variables = [
            relax.Var(f"in_{place}", relax.TensorType(shape, dtype))
            for place, (shape, dtype) in enumerate(kernel.inputs)
        ]
        with builder.function("main", variables):
            with builder.dataflow():
                output = builder.emit_output(builder.emit(kernel.expr(builder, *variables)))
            builder.emit_func_output(output)
        model = WalledModel(builder.get(), HARDWARE)
        for run in range(RUNS):
            inputs = []
            for shape, dtype in kernel.inputs:
                limits = np.iinfo(dtype) if "int" in dtype else None
                known = [n for n in INTEGERS if limits.min <= n <= limits.max] if limits else NUMBERS
                inputs.append(arrays.choice(np.array(known, dtype), shape))
            try:
                model.run(inputs, at_end=bool(run % 2))
            except WorkloadError as error:
                assert "is out of range; expected " in str(error)

    return Case(f"{kernel.text} {kernel.inputs} {seed}", check)
