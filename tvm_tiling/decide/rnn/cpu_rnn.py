"""Recurrent layers on a CPU: for each layer and direction, one matrix multiplication with the inputs of all steps, then
one kernel for the recurrence."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from ...errors import HardwareError
from ...figures import quantity
from ...hardware.description import Cpu, Hardware
from ...workload import GemmWorkload, RnnWorkload
from ..explain import Row, Sections
from ..gemm.cpu_gemm import decide_on_cpu
from ..tiling import Decision, GemmTiling, Reason
from .recurrence import GATES, Recurrence, RecurrenceTiling, decide_recurrence


@dataclass(frozen=True, kw_only=True)
class RnnCpuLayer:
    """One direction of a layer with `input_size` inputs: the `product` of all its inputs with their prepacked weights,
    and its `recurrence`."""

    input_size: int
    product: GemmTiling
    recurrence: RecurrenceTiling


@dataclass(frozen=True, kw_only=True)
class RnnCpuTiling(Decision):
    """Configuration of recurrent layers on a CPU.

    `ep` columns and `vp` rows of the recurrent weights at once on `threads` cores are those of the first layer;
    `layers` holds all. `cycles_per_step` covers all layers and directions, including a step's share of the input matrix
    multiplications; `utilisation` is that of the multiply-add units, `predicted_seconds` the time of one call.
    """

    op: ClassVar[str] = "rnn_cpu"
    title: ClassVar[str] = "recurrent layer"

    ep: int
    vp: int
    threads: int
    layers: tuple[RnnCpuLayer, ...]
    cycles_per_step: float
    utilisation: float
    predicted_seconds: float

    sections: ClassVar[Sections] = (
        ("columns", ("ep", "vp", "threads")),
        ("predicted", ("cycles_per_step", "utilisation", "predicted_seconds")),
    )

    def _parts(self) -> Iterator[Row]:
        for number, part in enumerate(self.layers, start=1):
            p, r = part.product, part.recurrence
            tile = f"register tile {p.mr} x {p.nr}"
            why = f"EP x VP on {quantity(r.threads, 'core')}; inputs: kernel variant {p.form}, {tile}"
            yield Row("layers", f"layer {number}", f"{r.ep} x {r.vp}", why)


def decide_rnn_on_cpu(workload: RnnWorkload, hardware: Hardware, *, deterministic: bool = False) -> RnnCpuTiling:
    """Return the configuration of recurrent layers on `hardware.cpu`. deterministic: as in decide_recurrence(). Raises
    HardwareError if the machine has no CPU or the type is not float32.
    """
    w, cpu = workload, hardware.cpu
    if cpu is None:
        raise HardwareError(f"{hardware.name} has no CPU; expected a machine with a CPU or a column engine")
    if w.dtype != "float32":
        raise HardwareError(f"{hardware.name}: recurrent layers of {w.dtype} on a CPU; expected float32")
    layers = tuple(_layer(w, hardware, cpu, size, deterministic) for size in w.input_sizes)
    parts = [(part.product.predicted_seconds or 0.0) + part.recurrence.predicted_seconds for part in layers]
    seconds = w.directions * sum(parts)
    clock = cpu.mhz * 1e6
    per_step = seconds * clock / w.steps
    peak = cpu.lanes(4) * cpu.fma_units * cpu.cores
    utilisation = w.macs / (peak * seconds * clock)
    first = layers[0].recurrence
    x_part = w.directions * sum(part.product.predicted_seconds or 0.0 for part in layers)
    return RnnCpuTiling(
        ep=first.ep,
        vp=first.vp,
        threads=first.threads,
        layers=layers,
        cycles_per_step=per_step,
        utilisation=utilisation,
        predicted_seconds=seconds,
        reasons=(
            Reason("ep", first.ep, first.why("ep")),
            Reason("vp", first.vp, first.why("vp")),
            Reason("threads", first.threads, first.why("threads")),
            Reason("cycles_per_step", per_step, f"{x_part / seconds:.0%} of it for the input matrix multiplications"),
            Reason("utilisation", utilisation, f"of {peak} multiply-adds per cycle"),
            Reason(
                "predicted_seconds",
                seconds,
                ", ".join(
                    (quantity(len(layers), "layer"), quantity(w.directions, "direction"), quantity(w.steps, "step"))
                ),
            ),
        ),
    )


def _layer(w: RnnWorkload, hardware: Hardware, cpu: Cpu, size: int, deterministic: bool) -> RnnCpuLayer:
    product = GemmWorkload(m=w.steps * w.batch, k=size, n=w.gates * w.hidden_size)
    recurrence = Recurrence(
        cell=w.cell,
        steps=w.steps,
        batch=w.batch,
        hidden=w.hidden_size,
        order=GATES[w.cell],
        reset_after=w.linear_before_reset,
        activation=w.activation,
    )
    return RnnCpuLayer(
        input_size=size,
        product=decide_on_cpu(product, hardware, packing="ahead", deterministic=deterministic),
        recurrence=decide_recurrence(recurrence, cpu, deterministic=deterministic),
    )
