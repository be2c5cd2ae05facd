"""decide(): the public entry point of every decision for a single operator.

Explaining, scheduling, compiling, tuning and filling a database all call `kinds.decided` with the same workload,
machine, options and surroundings, so they all get the same decision.
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
    deterministic: bool = False,
) -> Decided:
    """Return the tiling of `workload` on `hardware`, the same that tiling_schedule applies. Takes milliseconds and does
    not import TVM.

    hardware: a Hardware, the name of a preset, the path of a TOML file, or None for this CPU.

    mode: "best", or "seed" for the published formulas without refinement (accelerators only).

    prefer (machines with a matrix engine): "utilisation" minimises cycles; "traffic" minimises bytes read from external
    memory among tilings that are as fast, or within 5 percent of the fastest where cycles are those of a program;
    "energy" uses the energy coefficients of the machine description; "edp" minimises the energy-delay product.

    acc_factor, outer_preset, inner_preset: only for machines with a single level of buffers (analytical split-K
    partition).

    algorithm: forces a kernel variant of a matrix multiplication, or the algorithm of a convolution on a CPU. W-fold
    machines accept "wfold", which is always their algorithm for convolutions, and for matrix multiplications if they
    have no matrix engine.

    weights (CPUs): "packed" if weights are prepacked when the model is compiled; "plain" if the kernel packs them while
    it runs.

    deterministic (CPUs): the order of sums depends neither on the number of rows or images nor on the number of cores.

    The type of the result depends on the machine. On a machine with one level of buffers, a convolution gives a
    ConvPartition: the tiling of its matrix multiplication together with the blocks of the program. A pointwise
    convolution is decided as a matrix multiplication, points by output channels, and on a CPU a matrix multiplication
    with one column is decided as one with a single row. On a machine with several storage levels a convolution gives a
    LevelsTiling. The column engine supports matrix-vector multiplications (ColumnTiling) and recurrent layers
    (RnnTiling; RnnCpuTiling on a CPU).

    Raises HardwareError if the machine has no unit for the operator or nothing fits, and UnsupportedOperator for an
    unknown workload or one that the algorithm does not support.
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
        raise HardwareError(f"weights = 'packed' applies to CPUs; {machine.name} has no CPU; expected 'plain'")
    if deterministic and machine.cpu is None:
        raise HardwareError(f"deterministic = True is not supported on {machine.name}; expected a CPU")
    options = Options(
        form=algorithm,
        mode=mode,
        prefer=prefer,
        acc_factor=acc_factor,
        outer_preset=outer_preset,
        inner_preset=inner_preset,
        prepacked=weights == "packed",
        deterministic=deterministic,
    )
    if isinstance(workload, RnnWorkload):
        return decided(workload, machine, options, Surroundings())
    asked, prepacked = asked_for(workload, machine, options.prepacked)
    around = Surroundings(prepacked=prepacked, exchanged=machine.cpu is not None and asked.n != workload.n)
    return decided(asked, machine, options, around)
