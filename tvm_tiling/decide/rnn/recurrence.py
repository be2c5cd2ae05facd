"""The recurrence of a layer on a CPU: one kernel for the whole sequence, including hidden-state products, gates and
state.

The input part of all steps is one matrix multiplication that runs first. A step multiplies the recurrent weights by the
state, column by column: `vp` rows of the weights, which are the gates of whole vectors of units side by side, are
summed in registers, `ep` columns at a time with separate sums, so that multiply-adds are independent. Weights are
packed in the order in which they are read. Cores divide the units or the sequences. With a share of the units, a core
reads the same part of the weights in every step, but needs the whole state, most of which other cores have just
written. With a share of the sequences it reads all weights but needs no data of other cores, which synchronise once
instead of in every step. If a core's weights exceed L1, every other step reads them backwards, so that the weights read
last, which are still in the nearest cache, are read first.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar

from ...figures import quantity
from ...hardware.cpu import CACHE_LINE, Cpu
from ...operand_types import element_bytes
from ..explain import Sections
from ..gemm.traffic import ceil_div
from ..tiling import Decision, Reason

# Gates of a unit, by the letters used in the literature.
GATES = {"lstm": "ifgo", "gru": "rzn", "rnn": "h"}
FUNCTIONS = {"lstm": 5, "gru": 3, "rnn": 1}  # sigmoids and tanhs per unit
MOST_COLUMNS = 8  # columns at once, each with its own sums
MOST_BLOCKS = 4  # vectors of units of a register tile


@dataclass(frozen=True, kw_only=True)
class Recurrence:
    """The computation: `steps` steps of `batch` sequences through `hidden` units, in float32. The weights may be
    `stored` in 16 bits.

    - `order`: the gates in the order of the projected inputs and of the weights.
    - `reverse`: from the last step to the first.
    - `reset_after` (GRU): r multiplies the product of h and its weights, including the bias.
    - `lengths`: each sequence has its own length.
    - `peepholes` (LSTM): gates that see the cell state.
    - `clip`: functions of the sums of gates take them within +- this bound; None: unbounded. The cell state is not
      clipped.
    """

    cell: str
    steps: Any  # ints, or TIR expressions for dynamic sizes
    batch: Any
    hidden: int
    order: str
    reverse: bool = False
    reset_after: bool = True
    activation: str = "tanh"
    lengths: bool = False
    peepholes: bool = False
    clip: float | None = None
    stored: str = "float32"

    @property
    def gates(self) -> int:
        return len(self.order)

    @property
    def flops(self) -> int:
        return 2 * self.steps * self.batch * self.gates * self.hidden * self.hidden

    @property
    def phases(self) -> tuple[str, ...]:
        """The gates of each matrix multiplication of a step; where r multiplies h, the second one depends on the
        first."""
        if self.cell == "gru" and not self.reset_after:
            return "rz", "n"
        return (GATES[self.cell],)

    @property
    def inputs(self) -> dict[str, tuple[int, ...]]:
        """Names and shapes of the kernel's inputs; "lengths" are int32, "weights" have the type in which they are
        stored, the others are float32."""
        state = (self.batch, self.hidden)
        taken = {
            "projected": (self.steps, self.batch, self.gates * self.hidden),
            "weights": (self.gates * self.hidden, self.hidden),
            "h0": state,
        }
        if self.cell == "lstm":
            taken["c0"] = state
        if self.cell == "gru" and self.reset_after:
            taken["bias"] = (self.hidden,)  # of the candidate's product with h
        if self.peepholes:
            taken["peepholes"] = (3 * self.hidden,)  # of i, o, f
        if self.lengths:
            taken["lengths"] = (self.batch,)
        return taken

    @property
    def outputs(self) -> dict[str, tuple[int, ...]]:
        """Names and shapes of the kernel's outputs: h of all steps, and the states after the last one."""
        state = (self.batch, self.hidden)
        given = {"y": (self.steps, self.batch, self.hidden), "h": state}
        return {**given, "c": state} if self.cell == "lstm" else given

    def to_dict(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self)}


@dataclass(frozen=True, kw_only=True)
class RecurrenceTiling(Decision):
    """Tiling of a recurrence: `vp` rows of the weights, those of `blocks` vectors of units, for `rows` sequences and
    `ep` columns at once; `threads` cores divide the units or the sequences, whichever `split` names.

    `lower` lists the columns at once for tiles of 1, 2, ... sequences fewer than `rows`, used with a dynamic batch.
    `turning`: every other step reads a core's weights backwards.
    """

    op: ClassVar[str] = "recurrence"

    lanes: int
    ep: int
    vp: int
    blocks: int
    rows: int
    lower: tuple[int, ...] | None = None
    threads: int
    split: str = "units"
    turning: bool
    predicted_seconds: float
    form: str = "sequence"

    sections: ClassVar[Sections] = (
        ("columns", ("form", "ep", "vp")),
        ("register tile", ("lanes", "blocks", "rows", "lower")),
        ("cores", ("threads", "split", "turning")),
        ("predicted", ("predicted_seconds",)),
    )


@dataclass(frozen=True, order=True)
class _Division:
    """What each of `cores` cores has a share of: "units" or "sequences"."""

    cores: int
    split: str

    @property
    def of_units(self) -> int:
        return self.cores if self.split == "units" else 1

    @property
    def of_sequences(self) -> int:
        return self.cores if self.split == "sequences" else 1

    def __str__(self) -> str:
        return "one core" if self.cores == 1 else f"{quantity(self.cores, 'core')} dividing the {self.split}"


def decide_recurrence(
    recurrence: Recurrence,
    cpu: Cpu,
    threads: int | None = None,
    *,
    any_batch: bool = False,
    deterministic: bool = False,
) -> RecurrenceTiling:
    """Return the configuration of one layer's recurrence.

    threads: forces the number of cores. any_batch: the kernel has a tile of each height, for any number of sequences.
    deterministic: one order of sums for every number of sequences and cores: columns one after the other, and in the
    direction that one core would use.
    """
    r, lanes = recurrence, cpu.lanes(4)
    gates = max(len(phase) for phase in r.phases)
    costs = {
        division: _step_cycles(r, cpu, *_tile(r, gates, lanes, cpu, deterministic, division), division)
        for division in _divisions(r, cpu, threads, any_batch)
    }
    chosen = min(costs, key=lambda division: (costs[division], division))
    rows, blocks = _tile(r, gates, lanes, cpu, deterministic, chosen)
    vectors = rows * blocks * gates
    wanted = cpu.fma_latency * cpu.fma_units
    at_once = (lambda number: 1) if deterministic else (lambda number: _columns(r, number, blocks, gates, cpu))
    lower = tuple(map(at_once, range(1, rows))) if any_batch else None
    ep = at_once(rows)
    kept = cpu.kernel_costs.l1_share * cpu.l1_bytes
    share = _weights(r) / (1 if deterministic else chosen.of_units)
    why_ep = f"{quantity(vectors, 'sum')} per column; {wanted} cover the latency of multiply-adds"
    if deterministic:
        why_ep = "one column, for a fixed order of additions"
    others = {other: cost for other, cost in costs.items() if other != chosen}
    better = min(others, key=lambda division: others[division], default=None)
    instead = f"{others[better]:.0f} with {better}" if better else "as requested"
    return RecurrenceTiling(
        lanes=lanes,
        ep=ep,
        vp=blocks * gates * lanes,
        blocks=blocks,
        rows=rows,
        lower=lower,
        threads=chosen.cores,
        split=chosen.split,
        turning=share > kept,
        predicted_seconds=r.steps * costs[chosen] / (cpu.mhz * 1e6),
        reasons=(
            Reason(
                "form",
                "sequence",
                "one kernel for all steps, after one matrix multiplication for the inputs of all steps",
            ),
            Reason("ep", ep, why_ep),
            Reason("vp", blocks * gates * lanes, f"{gates} gates of {quantity(blocks, 'vector')} of {lanes} units"),
            Reason("rows", rows, f"of {r.batch}; registers hold {rows} x {blocks * gates} vectors of sums"),
            Reason("threads", chosen.cores, f"{costs[chosen]:.0f} cycles per step; {instead}"),
            Reason("split", chosen.split, _why_split(chosen)),
            Reason("turning", share > kept, f"{share:.0f} bytes of weights per core; L1 keeps {kept:.0f}"),
        ),
    )


def _divisions(r: Recurrence, cpu: Cpu, threads: int | None, any_batch: bool) -> list[_Division]:
    """Return the divisions to choose from. A kernel for any number of sequences divides the units, since a single
    sequence would leave all cores but one idle."""
    vectors = ceil_div(r.hidden, cpu.lanes(4))
    counts = [threads] if threads else range(1, cpu.cores + 1)
    found = [_Division(number, "units") for number in counts if threads or number <= vectors]
    if not any_batch:
        found += [_Division(number, "sequences") for number in counts if 1 < number <= r.batch]
    return found


def _why_split(chosen: _Division) -> str:
    if chosen.cores == 1:
        return "one core computes everything"
    if chosen.split == "units":
        return "each core reads a part of the weights; cores synchronise in every step"
    return "each core reads all weights; cores synchronise only at the end"


def _columns(r: Recurrence, rows: int, blocks: int, gates: int, cpu: Cpu) -> int:
    """Return the columns at once of a tile of `rows` sequences: enough that its sums cover the latency of
    multiply-adds."""
    ep, most = 1, min(MOST_COLUMNS, r.hidden)
    while (
        ep * 2 <= most
        and ep * rows * blocks * gates < cpu.fma_latency * cpu.fma_units
        and _registers(rows * ep * 2, blocks, gates, cpu)
    ):
        ep *= 2
    return ep


def _registers(rows: int, blocks: int, gates: int, cpu: Cpu) -> bool:
    """Return whether the sums, a column's weights and one element of the state fit the registers."""
    return (rows + 1) * blocks * gates + 1 <= cpu.vector_registers


def _tile(r: Recurrence, gates: int, lanes: int, cpu: Cpu, one_column: bool, division: _Division) -> tuple[int, int]:
    """Return (sequences, vectors of units) of a register tile: the fewest loads per multiply-add, then the fewest
    units, divided evenly. one_column: columns are taken one at a time, so that a tile needs enough sums to hide the
    latency of multiply-adds."""
    batch = ceil_div(r.batch, division.of_sequences)
    cores = cpu.cores if division.split == "units" else 1
    found = []
    most_blocks = max(MOST_BLOCKS, MOST_COLUMNS // gates) if one_column else MOST_BLOCKS
    for blocks in range(1, min(most_blocks, ceil_div(r.hidden, lanes)) + 1):
        most = max([n for n in range(1, batch + 1) if _registers(n, blocks, gates, cpu)], default=0)
        if not most and blocks > 1:
            break
        rows = ceil_div(batch, ceil_div(batch, max(1, most)))
        groups = ceil_div(r.hidden, blocks * lanes)
        uneven = ceil_div(groups, cores) * cores * blocks * lanes / r.hidden
        loads = 1 / rows if batch > 1 else 1.0
        waiting = max(1.0, cpu.fma_latency * cpu.fma_units / (rows * blocks * gates)) if one_column else 1.0
        found.append(((1 + loads + 1 / (blocks * gates)) * uneven * waiting, blocks, rows))
    _, blocks, rows = min(found)
    return rows, blocks


def _weights(r: Recurrence) -> float:
    """Return the bytes of the weights."""
    return float(element_bytes(r.stored)) * r.gates * r.hidden * r.hidden


def _step_cycles(r: Recurrence, cpu: Cpu, rows: int, blocks: int, division: _Division) -> float:
    """Return the cycles of one step: multiply-adds or the transfer of the weights from L2, the transfer of other
    weights from beyond L2, which hardly overlaps with multiply-adds, the activation functions, and the exchange of the
    state.
    """
    lanes = cpu.lanes(4)
    groups = ceil_div(r.hidden, blocks * lanes)
    share = ceil_div(groups, division.of_units) / groups
    every_tile = ceil_div(r.batch, rows)
    tiles = ceil_div(every_tile, division.of_sequences)
    batch = ceil_div(r.batch * tiles, every_tile)
    weights = _weights(r) * share
    vectors = r.gates * r.hidden * r.hidden * share / lanes
    products = vectors * batch / cpu.fma_units
    if r.stored != "float32":
        products += vectors * tiles * cpu.kernel_costs.widened_vector
    third, kept = cpu.cache(3), cpu.kernel_costs.l2_share * cpu.l2_bytes
    far = max(0.0, weights - kept)
    within = third is not None and _weights(r) <= third.size
    beyond = far / (cpu.l3_bytes_per_cycle if within else cpu.memory_bytes_per_cycle)
    near = (weights * tiles - far) / cpu.l2_bytes_per_cycle
    functions = FUNCTIONS[r.cell] * batch * ceil_div(r.hidden, lanes) * share * cpu.kernel_costs.function
    return max(products, near) + beyond + functions + _meeting(r, cpu, division)


def _meeting(r: Recurrence, cpu: Cpu, division: _Division) -> float:
    """Return the cycles of a step in which cores wait for each other and for cross-core transfers of the state."""
    if division.cores == 1:
        return 0.0
    if division.split == "sequences":
        return cpu.meeting / r.steps
    lines = 4 * r.batch * r.hidden * (1 - 1 / division.cores) / CACHE_LINE
    return (cpu.meeting + lines * cpu.kernel_costs.state_line * cpu.mhz / 1000) * len(r.phases)
