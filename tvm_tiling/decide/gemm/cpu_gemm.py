"""How a matrix product is cut on a CPU: register tile, blocks for the caches, shares of the cores, what is packed.

Page 03 gives the limits of the register tile and the ways to read A; page 01 the outer cut, whose buffers are here the
L2 (a block of B) and the first (a tile of A). Every candidate that meets the limits is priced by
gemm/gemm_cost.py and the cheapest is taken, so the ranking is by predicted time for the shape and not in general.

gemm/choice.py tells what the candidates are.
"""

from __future__ import annotations

from ...errors import HardwareError
from ...hardware.description import Hardware
from ...workload import GemmWorkload
from ..tiling import GemmTiling
from .choice import ProductChoice
from .microkernel import registers_of

FORMS = ("normal", "nocopy", "inline", "pack", "stream")


def decide_on_cpu(
    workload: GemmWorkload,
    hardware: Hardware,
    *,
    form: str | None = None,
    microkernel: tuple[int, int] | None = None,
    packing: str = "run",
    plain_a: bool = True,
    plain_b: bool = True,
    accumulates_in_output: bool = True,
) -> GemmTiling:
    """The cheapest configuration of `workload` on `hardware.cpu`. Sources: pages 01 and 03.

    `form` forces a way to read A, `microkernel` = (rows, vectors) the register tile. `packing`: "run" (B, where it is
    packed, is packed while the product runs) or "ahead" (it arrives packed). `plain_a`/`plain_b`: the operand can be
    read in place. `accumulates_in_output`: sums may wait in the output between k-blocks.
    """
    cpu = hardware.cpu
    if cpu is None:
        raise HardwareError(f"{hardware.name} has no cpu; expected a hardware description with a [cpu] table")
    if form is not None and form not in FORMS:
        raise HardwareError(
            f"algorithm = {form!r} is not a kernel variant of a gemm on a CPU; expected {', '.join(FORMS)}"
        )
    if microkernel is not None:
        pair = isinstance(microkernel, tuple) and len(microkernel) == 2
        if not pair or not all(type(size) is int for size in microkernel):
            raise HardwareError(f"microkernel = {microkernel!r}; expected two whole numbers, (rows, vectors)")
        if form == "stream":
            raise HardwareError(
                "algorithm = 'stream' has no register tile; expected an algorithm or a microkernel, not both"
            )
    choice = ProductChoice(workload, cpu, packing=packing, plain_a=plain_a, plain_b=plain_b, form=form)
    best: tuple[float, GemmTiling] | None = None
    if form in (None, "stream") and microkernel is None:
        best = choice.best_stream(forced=form == "stream")
    if form != "stream":
        configs = choice.configs(form, microkernel, whole_k=not accumulates_in_output)
        priced = min(((choice.model.cycles(config), n, config) for n, config in enumerate(configs)), default=None)
        if priced is None:
            raise HardwareError(_nothing_fits(choice, form, microkernel))
        if best is None or priced[0] < best[0]:
            best = (priced[0], choice.tiling(priced[2], priced[0], form))
    assert best is not None
    return best[1]


def _nothing_fits(choice: ProductChoice, form: str | None, microkernel: tuple[int, int] | None) -> str:
    cpu = choice.cpu
    if microkernel is not None:
        rows, vectors = microkernel
        needed = registers_of(rows, vectors)
        if rows < 1 or vectors < 1 or needed > cpu.vector_registers:
            return (
                f"microkernel = {microkernel} needs {needed} vector registers, this CPU has {cpu.vector_registers}; "
                f"expected (m, z) of at least 1 with (m + 1) * z + 1 <= {cpu.vector_registers}"
            )
    if form in ("normal", "nocopy", "inline") and not choice.plain_a:
        return f"algorithm = {form!r} reads A in place, which this product of {choice.w.dtype} cannot; expected 'pack'"
    if form == "inline":
        return (
            f"algorithm = 'inline' copies the rows beyond the {choice.keep_rows} that fit L1's ways, and no "
            f"register tile of this product has more; expected 'normal', 'nocopy', 'pack'"
        )
    return f"no register tile of this product meets algorithm = {form!r} and microkernel = {microkernel}"
