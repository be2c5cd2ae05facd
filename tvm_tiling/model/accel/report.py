"""Report of a model with a part on an accelerator, by operator: placement and cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ...accel.program.program import Program
from ...accel.program.work import work
from ...accel.report.report import SimReport
from ..report import OperatorRecord, nodes_text


@dataclass(frozen=True, kw_only=True)
class AcceleratorOperator:
    """One call of an operator. On the accelerator, `cycles` are those from its first start to its last result, which
    overlap with its neighbours', `utilisation` is its multiply-accumulates relative to the machine's peak in that time,
    `bytes` the data moved between chip and memory by operand. On the CPU these are None, and `why` gives the reason.
    `nodes`: the model nodes that it computes, the first of which names an operator on the accelerator."""

    name: str
    where: str  # "accelerator" or "cpu"
    workload: str = ""
    cycles: int | None = None
    utilisation: float | None = None
    macs: int = 0
    bytes: dict[str, int] | None = None
    why: str = ""
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class AcceleratorReport:
    """`sim` is the report of the accelerator's part as a whole, None if nothing runs there."""

    operators: tuple[AcceleratorOperator, ...]
    sim: SimReport | None

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "operators": [asdict(operator) for operator in self.operators],
            "simulation": None if self.sim is None else self.sim.to_dict(),
        }

    def __str__(self) -> str:
        lines = [
            f"{'operator':<32} {'where':<12} {'cycles':>12} {'util.':>6} {'a':>12} {'b':>12} {'out':>12}  nodes, why"
        ]
        for o in self.operators:
            if o.bytes is None:
                name = o.nodes[0] if o.nodes else o.name
                why = ": ".join(filter(None, (nodes_text(o.nodes), o.why)))
                lines.append(f"{name[:32]:<32} {o.where:<12} {'-':>12} {'-':>6} {'-':>12} {'-':>12} {'-':>12}  {why}")
            else:
                moved = " ".join(f"{o.bytes[name]:>12}" for name in ("a", "b", "out"))
                figures = f"{o.cycles:>12} {o.utilisation or 0:>6.1%} {moved}"
                lines.append(f"{o.name[:32]:<32} {o.where:<12} {figures}  {nodes_text(o.nodes)}".rstrip())
        if self.sim is not None:
            lines.append(
                f"accelerator: {self.sim.cycles} cycles of {self.sim.hardware}, utilisation {self.sim.utilisation:.1%}"
            )
        return "\n".join(lines)


def accelerator_report(
    sim: SimReport | None,
    on_cpu: Sequence[OperatorRecord],
    left: dict[str, str],
    nodes: Mapping[str, Sequence[str]] | None = None,
) -> AcceleratorReport:
    """The operators of a simulated run, then those on the CPU with the reason. `nodes`: model nodes by region name."""
    rows = [] if sim is None else _on_accelerator(sim, nodes or {})
    rows += [
        AcceleratorOperator(name=record.name, where="cpu", why=left.get(record.name, ""), nodes=record.nodes)
        for record in on_cpu
    ]
    return AcceleratorReport(operators=tuple(rows), sim=sim)


def _on_accelerator(sim: SimReport, nodes: Mapping[str, Sequence[str]]) -> list[AcceleratorOperator]:
    moved = region_bytes(sim.program)
    peak = sim.macs / (sim.utilisation * sim.cycles) if sim.utilisation and sim.cycles else 0.0  # per cycle
    places = {region.name: number for number, region in enumerate(sim.program.regions)}
    found = []
    for time in sim.regions:
        cycles = time.end - time.start
        found.append(
            AcceleratorOperator(
                name=time.name,
                where="accelerator",
                workload=time.workload,
                cycles=cycles,
                utilisation=time.macs / (peak * cycles) if peak and cycles else 0.0,
                macs=time.macs,
                bytes=moved[places[time.name]],
                nodes=tuple(nodes.get(time.name, ())),
            )
        )
    return found


def region_bytes(program: Program) -> list[dict[str, int]]:
    """Bytes between the chip and off-chip memories by operand, for each region of a program."""
    region = program.instructions["region"].astype(np.int64)
    found = [dict.fromkeys(("a", "b", "out"), 0) for _ in program.regions]
    for batch in work(program).of("bytes"):
        if not {batch.source, batch.target} & {"external", "internal"}:
            continue
        totals = np.bincount(region[batch.number], weights=batch.bytes, minlength=len(found))
        for number, total in enumerate(totals.astype(np.int64).tolist()):
            found[number][batch.operand] += total
    return found
