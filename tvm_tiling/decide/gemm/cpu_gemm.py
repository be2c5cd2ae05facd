"""Tiling of a matrix multiplication on a CPU: register tile, cache blocks, division among cores, and packing.

The limits of the register tile and the ways to read A follow the microkernel selection of design page 03, the outer
partition follows design page 01 with L2 (a block of B) and L1 (a tile of A) as its buffers. gemm/choice.py enumerates
the candidates that meet the limits, and gemm/gemm_cost.py predicts their time; the fastest is taken, so the ranking is
specific to the shape.
"""

from __future__ import annotations

from ...errors import HardwareError
from ...hardware.description import Hardware
from ...workload import GemmWorkload
from ..tiling import GemmTiling
from .choice import ProductChoice
from .gemm_cost import cheapest

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
    deterministic: bool = False,
) -> GemmTiling:
    """Return the fastest predicted tiling of `workload` on `hardware.cpu`.

    form: forces a kernel variant, which sets how A is read. microkernel: forces the register tile, (rows, vectors).
    packing: "run" if B, where packing pays, is packed at run time; "ahead" if B is prepacked. plain_a, plain_b: whether
    the operand can be read in place. accumulates_in_output: whether partial sums may be kept in the output between K
    blocks. deterministic: the order of sums depends on K only (one_order.py).
    """
    cpu = hardware.cpu
    if cpu is None:
        raise HardwareError(f"{hardware.name} has no CPU; expected a hardware description with a [cpu] table")
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
    choice = ProductChoice(
        workload, cpu, packing=packing, plain_a=plain_a, plain_b=plain_b, form=form, deterministic=deterministic
    )
    best: tuple[float, GemmTiling] | None = None
    if form in (None, "stream") and microkernel is None:
        best = choice.best_stream(forced=form == "stream")
    if form != "stream":
        configs = choice.configs(form, microkernel, whole_k=not accumulates_in_output)
        priced = cheapest(configs, choice.model.least, choice.model.cycles)
        if priced is None:
            raise HardwareError(_nothing_fits(choice, form, microkernel))
        if best is None or priced[0] < best[0]:
            best = (priced[0], choice.tiling(priced[1], priced[0], form))
    assert best is not None
    return best[1]


def _nothing_fits(choice: ProductChoice, form: str | None, microkernel: tuple[int, int] | None) -> str:
    cpu = choice.cpu
    if microkernel is not None:
        rows, vectors = microkernel
        needed = choice.registers(rows, vectors)
        if rows < 1 or vectors < 1 or needed > cpu.vector_registers:
            needs = "(m + 1) * z + 1" if choice.engine.rows == 1 else "m * z + min(2 * z, m / 2) + 1, m even,"
            return (
                f"microkernel = {microkernel} needs {needed} vector registers, this CPU has {cpu.vector_registers}; "
                f"expected (m, z) of at least 1 with {needs} <= {cpu.vector_registers}"
            )
    if form in ("normal", "nocopy", "inline") and not choice.plain_a:
        return (
            f"algorithm = {form!r} reads A in place, which is not possible for {choice.w.dtype} operands here; "
            "expected 'pack'"
        )
    if form == "inline":
        return (
            f"algorithm = 'inline' copies rows beyond the {choice.keep_rows} that fit the ways of L1, but no "
            f"register tile has more; expected 'normal', 'nocopy', 'pack'"
        )
    return f"no register tile satisfies algorithm = {form!r} and microkernel = {microkernel}"
