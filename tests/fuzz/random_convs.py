"""Random convolutions in one to three dimensions, in any layout, type and algorithm, on machines with one core and
more."""

from __future__ import annotations

import random

import numpy as np
import tvm
from case import Case
from convs import Conv, Source, arrays, blocked, topi_conv, topi_depthwise, topi_transposed
from products import DTYPES, EPSILON, Guarded, avx2, native

import tvm_tiling as tt
from tvm_tiling.errors import TilingError

LAYOUTS = {1: (("NWC", "WIO"), ("NCW", "OIW")), 2: (("NHWC", "HWIO"), ("NCHW", "OIHW"), ("NHWC", "OHWI"))}
LAYOUTS[3] = (("NDHWC", "DHWIO"), ("NCDHW", "OIDHW"))
DRAWN = ("float32", "float32", "float32", "int8", "uint8", "float16", "bfloat16", "float64")
FORMS = ("direct", "gemm", "depthwise", "winograd", "stride_fold", "wfold", "planes", "grouped")
MOST_WORK = 3e7  # multiplications
WINOGRAD = 1e-3  # of the largest result; other algorithms are exact for sums of small integers


def random_source(rng: random.Random) -> tuple[Conv, Source, str]:
    """Return a valid convolution, how a frontend emits it, and the name of its kind."""
    kind = rng.choice(("plain", "plain", "plain", "grouped", "depthwise", "blocked", "transposed"))
    while True:
        dims = 2 if kind == "blocked" else rng.choice((1, 2, 2, 2, 3))
        most = {1: 60, 2: 24, 3: 9}[dims]
        each = lambda low, high: tuple(rng.randint(low, high) for _ in range(dims))  # noqa: E731, B023
        transposed, stride = kind == "transposed", each(1, 3)
        groups, ci, co = 1, rng.randint(1, 40), rng.randint(1, 70)
        if kind == "grouped":
            groups = rng.randint(2, 4)
            ci, co = groups * rng.randint(1, 12), groups * rng.randint(1, 24)
        elif kind == "depthwise":
            groups = ci
            co = ci * rng.choice((1, 1, 2, 3))
        elif kind == "blocked":
            ci, co = 16 * rng.randint(1, 3), 16 * rng.randint(1, 3)
        conv = Conv(
            space=each(1, most),
            kernel=each(1, 5 if dims < 3 else 3),
            stride=stride,
            before=each(0, 2),
            behind=each(0, 2),
            dilation=each(1, 3) if transposed else each(1, 2),
            more=tuple(rng.randrange(s) for s in stride) if transposed else (),
            n=rng.randint(1, 2),
            ci=ci,
            co=co,
            groups=groups,
            dtype=rng.choice(DRAWN),
            transposed=transposed,
        )
        # A convolution that reads only padding is refused, with that reason.
        if conv.possible and conv.reads and work(conv) <= MOST_WORK:
            break
    if kind == "transposed":
        return conv, topi_transposed(conv), kind
    if kind == "depthwise" and dims == 2:
        return conv, topi_depthwise(conv, rng.choice(("NHWC", "NCHW"))), kind
    if kind == "blocked":
        return conv, blocked(conv, rng.choice((4, 8, 16)), rng.choice((8, 16))), kind
    return conv, topi_conv(conv, *rng.choice(LAYOUTS[dims] if groups == 1 else LAYOUTS[dims][:2])), kind


def work(conv: Conv) -> float:
    """Number of multiplications."""
    places = conv.space if conv.transposed else conv.points
    return float(conv.n * np.prod(places) * np.prod(conv.kernel) * conv.ci * conv.co / conv.groups)


def random_conv(rng: random.Random) -> Case:
    """A convolution, its algorithm, a machine, and the storage of weights."""
    conv, source, kind = random_source(rng)
    hardware = rng.choice((native, native, avx2))(cores=rng.choice((1, 1, 2, 5, 16)))
    form, packed = rng.choice((None, None, None, *FORMS)), rng.random() < 0.5
    machine = f"{hardware.cpu.cores} cores of {hardware.cpu.vector_bits} bits"
    name = f"{conv} {kind} {source.layout} form {form}, packed {packed}, {machine}"
    return Case(name, lambda: check(conv, source, hardware, form=form, packed=packed))


def check(conv: Conv, source: Source, hardware: tt.Hardware, *, form: str | None, packed: bool) -> None:
    """Compare a convolution with NumPy."""
    inputs, exact = arrays(conv, source)
    # topi's depthwise convolution stores the type it reads: int8 wraps, bfloat16 rounds.
    want = exact.astype(DTYPES[str(source.out.dtype)]).astype(np.float64)
    operands = [Guarded(array.shape, array.dtype.name).fill(array) for array in inputs]
    result = Guarded(want.shape, str(source.out.dtype))
    try:
        sch = tt.tiling_schedule(source.out, hardware, algorithm=form, weights="packed" if packed else "plain")
    except TilingError:
        if form is None:
            raise
        return  # an algorithm that does not apply says so
    library = tvm.compile(sch.mod, target=tt.llvm_target(hardware))
    arguments = [operand.tensor for operand in operands]
    if packed:
        buffer = sch.mod["main_pack"].params[1]
        arguments[1] = Guarded(tuple(map(int, buffer.shape)), str(buffer.dtype)).tensor
        library["main_pack"](operands[1].tensor, arguments[1])
    library["main"](*arguments, result.tensor)
    assert all(operand.unchanged() for operand in operands), "an input was written"
    assert result.unchanged_around(), "something beside the output was written"
    rounded = WINOGRAD * max(1.0, np.abs(want).max()) if conv.dtype in EPSILON and form in (None, "winograd") else 0.0
    if form is None and '"form": "winograd"' not in str(sch.mod["main"].attrs["tvm_tiling.decision"]):
        rounded = 0.0
    np.testing.assert_allclose(result.array.astype(np.float64), want, rtol=0, atol=rounded)
