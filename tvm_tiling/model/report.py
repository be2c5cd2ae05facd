"""Reports of a compiled model: its operators with their decisions and times, and its memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from ..figures import microseconds, size
from ..other_work import doubt
from ..plain_text import printable
from .graph import GraphStep
from .precision.record import FLOAT32, PrecisionRecord

# Operators that consist of multiply-accumulates; the others move data.
MULTIPLYING = ("convolution", "gemm", "attention", "recurrence")


@dataclass(frozen=True, kw_only=True)
class OperatorRecord:
    """One operator of a model, the kernel `name`: `predicted_seconds` and `measured_seconds` are those of all its
    `calls` in one run, None if unknown or not measured.

    `kind` is "convolution", "gemm", "attention", "recurrence", "other" or "runtime"; `flops` are the operations of one
    call as the model defines them, 0 if they are not counted. `form` is the algorithm or kernel variant, or what an
    operator of kind "other" computes ("reduction", "element-wise", "data movement"), `why` the reason for it,
    `decision` the decision as returned by its `to_dict`. `workload` is that of one call of a convolution or a matrix
    multiplication, as returned by its `to_dict`. `nodes`: names of the model's nodes computed by all its calls, in
    order; empty if the model has no names.
    """

    name: str
    kind: str
    calls: int
    flops: int
    form: str | None = None
    why: str = ""
    predicted_seconds: float | None = None
    measured_seconds: float | None = None
    decision: dict[str, Any] | None = None
    workload: dict[str, Any] | None = None
    nodes: tuple[str, ...] = ()

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> OperatorRecord:
        """The record for the result of asdict(). Files of older releases may have no nodes, and call the kind "gemm"
        "product". Raises TypeError if nodes are not names, or if fields are missing or unknown."""
        record = cls(**{**plain, "nodes": nodes_of(plain.get("nodes", ()))})
        return replace(record, kind="gemm") if record.kind == "product" else record


def nodes_of(plain: Any) -> tuple[str, ...]:
    """Names of nodes in a file, as displayed. Raises TypeError if they are not names."""
    if not isinstance(plain, list | tuple) or not all(isinstance(name, str) for name in plain):
        raise TypeError("nodes of an operator are not names")
    return tuple(map(printable, plain))


NODES_SHOWN = 2


def nodes_text(nodes: Sequence[str], most: int = NODES_SHOWN) -> str:
    """The first names of an operator's nodes, and the number of further ones."""
    more = f" and {len(nodes) - most} more" if len(nodes) > most else ""
    return ", ".join(nodes[:most]) + more


LATENCY = ("p50", "p90", "p99", "throughput")


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """Seconds of a run over `runs` runs: median (`p50`), interquartile range (`spread`), 90th and 99th percentile
    (`p90`, `p99`); and in `operators` the seconds of each operator, all its calls together.

    `throughput`: runs per second, sequentially. With fewer than 100 runs the 99th percentile is close to the slowest
    one. `others`: share of the cores' time that other processes took while the runs were timed; None if unknown.
    """

    median: float
    spread: float
    p90: float
    p99: float
    throughput: float
    runs: int
    operators: dict[str, float]
    others: float | None = None

    @property
    def p50(self) -> float:
        """The median, in seconds."""
        return self.median

    @property
    def latency(self) -> dict[str, float]:
        """Percentiles in seconds, and runs per second, by name."""
        return {name: getattr(self, name) for name in LATENCY}

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {**asdict(self), "p50": self.p50}


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Bytes used by a model at run time: activations as planned at compile time, and constants.

    `weights` are the constants read by convolutions and matrix multiplications, prepacked; `constants` are the others.
    `mapped` bytes of both are pages of a file: they are read by the system on first use, and shared by processes that
    map the file.
    """

    activations: int
    weights: int
    constants: int
    mapped: int = 0

    @property
    def total(self) -> int:
        """The sum of all three."""
        return self.activations + self.weights + self.constants

    def planned(self) -> dict[str, int]:
        """The values known before the model is loaded: all but `mapped`, as plain values."""
        return {"activations": self.activations, "weights": self.weights, "constants": self.constants}

    def to_dict(self) -> dict[str, int]:
        """Plain values for JSON, with the total."""
        return {**asdict(self), "total": self.total}

    def __str__(self) -> str:
        shared = f"; {size(self.mapped)} of it mapped from a file" if self.mapped else ""
        return (
            f"{size(self.total)}: activations {size(self.activations)}, weights {size(self.weights)}, "
            f"other constants {size(self.constants)}{shared}"
        )


@dataclass(frozen=True, kw_only=True)
class Report:
    """The `operators` with their decisions, predicted and measured times, the slowest first; times are of one run.

    `seconds` is the median latency of a run, None if it was not measured; `memory` the bytes used at run time;
    `precision` and `deterministic` are those of the compilation. `compile_seconds` is the compile time of this
    executable, 0 when it was loaded from a file or from the cache. `others`: share of the cores' time that other
    processes took during the measurement; None if unknown. `graph`: the steps of a run; empty if unknown. `parts`: a
    run executes these steps once for each of that many equal parts of the batch.
    """

    operators: tuple[OperatorRecord, ...]
    seconds: float | None
    memory: Memory
    compile_seconds: float
    precision: PrecisionRecord = FLOAT32
    deterministic: bool = False
    others: float | None = None
    graph: tuple[GraphStep, ...] = ()
    parts: int = 1

    def share(self, record: OperatorRecord) -> float | None:
        """Fraction of the measured time spent in the operator `record`."""
        total = sum(o.measured_seconds or 0.0 for o in self.operators)
        return None if not total or record.measured_seconds is None else record.measured_seconds / total

    @property
    def outside(self) -> float | None:
        """Fraction of the measured time spent outside convolutions and matrix multiplications; None if nothing was
        measured."""
        shares = [self.share(o) or 0.0 for o in self.operators if o.kind not in MULTIPLYING]
        return sum(shares) if any(o.measured_seconds is not None for o in self.operators) else None

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "seconds": self.seconds,
            "others": self.others,
            "compile_seconds": self.compile_seconds,
            **self.precision.described(),
            **({"deterministic": True} if self.deterministic else {}),
            **({"parts": self.parts} if self.parts > 1 else {}),
            "memory": self.memory.to_dict(),
            "share_outside": self.outside,
            "graph": [asdict(step) for step in self.graph],
            "operators": [{**asdict(o), "share": self.share(o)} for o in self.operators],
        }

    def lines(self) -> list[str]:
        """Lines about the model as a whole: time outside convolutions and matrix multiplications, precision, memory,
        compile time."""
        outside = (
            []
            if self.outside is None
            else [f"outside convolutions and matrix multiplications: {self.outside:.1%} of the time"]
        )
        compiled = [f"compiled in {self.compile_seconds:.1f} s"] if self.compile_seconds else []
        precision = [] if self.precision == FLOAT32 else str(self.precision).splitlines()
        doubtful = [doubt(self.others)] if doubt(self.others) else []
        order = ["deterministic: equal results for every batch and number of threads"] if self.deterministic else []
        parts = [f"the batch is computed in {self.parts} parts"] if self.parts > 1 else []
        return [*doubtful, *outside, *precision, *order, *parts, f"memory: {self.memory}", *compiled]

    def __str__(self) -> str:
        kernel = "  kernel" if any(o.nodes for o in self.operators) else ""
        lines = [
            f"{'operator':<44} {'kind':<12} {'algorithm':<12} {'calls':>5} {'predicted':>12} {'measured':>12} "
            f"{'share':>6}{kernel}"
        ]
        for o in self.operators:
            share = self.share(o)
            lines.append(
                f"{_label(o):<44} {o.kind:<12} {o.form or '-':<12} {o.calls:>5} {_us(o.predicted_seconds):>12} "
                f"{_us(o.measured_seconds):>12} {'-' if share is None else f'{share:.1%}':>6}"
                f"{'  ' + o.name if o.nodes else ''}"
            )
        return "\n".join([*lines, *self.lines()])


def _label(operator: OperatorRecord) -> str:
    """The first node of an operator and the number of further ones, in 44 characters; its function if it has no
    nodes."""
    if not operator.nodes:
        return operator.name[:44]
    more = f" and {len(operator.nodes) - 1} more" if len(operator.nodes) > 1 else ""
    return operator.nodes[0][: 44 - len(more)] + more


def _us(seconds: float | None) -> str:
    return "-" if seconds is None else f"{microseconds(seconds)} µs"
