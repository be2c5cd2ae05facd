"""decide(): the one entry to every decision, for an operator on its own.

What explains, schedules, compiles, tunes and fills a database asks `kinds.decided` with the same workload, machine,
options and surroundings, and so gets the same decision.
"""

from __future__ import annotations

from typing import Literal

from ..errors import HardwareError, UnsupportedOperator
from ..hardware.description import Hardware
from ..old_names import old_arguments
from ..workload import ConvWorkload, GemmWorkload, RnnWorkload
from .as_scheduled import asked_for
from .gemm.best import Prefer
from .kinds import Decided, decided
from .options import Options
from .surroundings import Surroundings

WEIGHTS = ("plain", "packed")


@old_arguments(form="algorithm")
def decide(
    workload: GemmWorkload | ConvWorkload | RnnWorkload,
    hardware: Hardware | str | None = None,
    *,
    mode: Literal["best", "seed"] = "best",
    prefer: Prefer = "utilisation",
    acc_factor: float = 0.5,
    outer_preset: str | int | None = None,
    inner_preset: str | int | None = None,
    algorithm: str | None = None,
    weights: str = "plain",
) -> Decided:
    """The tiling of `workload` on `hardware` as tiling_schedule writes it: a Hardware, the name of a preset, a TOML
    file, or None for this CPU. Milliseconds, no TVM.

    mode: "best", or "seed" for the formulas as printed (accelerators only). prefer, on machines with a matrix engine:
    "utilisation", fewest cycles; "traffic", fewest bytes from memory of what is as fast, or at most 5 percent slower
    where cycles are those of a program; "energy", by the coefficients of the description; "edp", the product of energy
    and cycles. `acc_factor`, `outer_preset` and `inner_preset` belong to machines with buffers alone (design page 01);
    `algorithm` forces a kernel variant or the algorithm of a convolution on a CPU, or "wfold" on a W-fold machine,
    which takes convolutions that way in any case, and matrix multiplications as convolutions of one tap where it has no
    other engine. `weights` "packed" is for weights
    that are prepacked when a model is compiled, on CPUs; "plain" ones are packed while a kernel runs.

    A convolution on a machine with buffers is a ConvPartition: its matrix multiplication with the blocks of the
    program; a pointwise one is decided as the matrix multiplication, points by output channels, that it is scheduled
    as, and so is a single column on a CPU, as a single row. On a machine with several storage levels a convolution is a
    LevelsTiling. The column engine takes matrix-vector multiplications: a ColumnTiling, and recurrent layers: an
    RnnTiling, as on a CPU an RnnCpuTiling.
    Raises HardwareError if the machine has no unit for it or nothing fits, UnsupportedOperator for an unknown workload
    or one that the algorithm does not support.
    """
    if not isinstance(workload, GemmWorkload | ConvWorkload | RnnWorkload):
        raise UnsupportedOperator(
            f"{type(workload).__name__} is not a workload; expected GemmWorkload, ConvWorkload, RnnWorkload"
        )
    if weights not in WEIGHTS:
        raise UnsupportedOperator(f"weights = {weights!r}; expected {', '.join(map(repr, WEIGHTS))}")
    machine = hardware
    if not isinstance(machine, Hardware):
        machine = Hardware.detect() if machine is None else Hardware.load(machine)
    if weights == "packed" and machine.cpu is None:
        raise HardwareError(f"weights = 'packed' is for CPUs, {machine.name} has no cpu; expected 'plain'")
    options = Options(
        form=algorithm,
        mode=mode,
        prefer=prefer,
        acc_factor=acc_factor,
        outer_preset=outer_preset,
        inner_preset=inner_preset,
        prepacked=weights == "packed",
    )
    if isinstance(workload, RnnWorkload):
        return decided(workload, machine, options, Surroundings())
    asked, prepacked = asked_for(workload, machine, options.prepacked)
    around = Surroundings(prepacked=prepacked, exchanged=machine.cpu is not None and asked.n != workload.n)
    return decided(asked, machine, options, around)
