"""Decisions as frozen records, independent of whether a formula, a search or a database produced them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields, is_dataclass
from typing import Any, ClassVar, NamedTuple

from .explain import Row, Sections, as_text, record_rows, shown_name, value_text
from .labels import label


class Reason(NamedTuple):
    """The reason for the value of one field of a decision."""

    field: str
    value: object
    why: str


@dataclass(frozen=True, kw_only=True)
class Decision:
    """Base of all decisions: the reasons, and conversion to JSON and text.

    `mode` is "best", or "seed" for the published formulas; `reasons` has one entry for each field that has a reason.
    `op` names the operator. `sections` lists the fields in the order in which the text shows them.
    """

    op: ClassVar[str]
    title: ClassVar[str] = ""
    sections: ClassVar[Sections]

    mode: str = "best"
    reasons: tuple[Reason, ...] = ()

    @property
    def rule(self) -> str | None:
        """Name of the rule that describes the configuration (configs/config.py); None if the decision has no
        configuration."""
        return None

    @property
    def algorithm(self) -> str | None:
        """Kernel variant of a matrix multiplication or algorithm of a convolution; None on machines that have only one.
        Stored as the field `form` in records and files."""
        return getattr(self, "form", None)

    def why(self, field: str) -> str:
        """Return the reason for a field, "" if there is none."""
        return next((r.why for r in self.reasons if r.field == field), "")

    def to_dict(self) -> dict[str, Any]:
        """Return the operator's name, all fields and the reasons as plain values for JSON."""
        plain = {f.name: _plain(getattr(self, f.name)) for f in fields(self) if f.name != "reasons"}
        return {"op": self.op, **plain, "reasons": [list(r) for r in self.reasons]}

    def to_json(self) -> str:
        """Return the decision as one JSON object with sorted keys."""
        return json.dumps(self.to_dict(), sort_keys=True)

    def explain(self) -> str:
        """Return every choice with its reason, and the predicted traffic and utilisation, as text."""
        return as_text(self.headline(), self.explained())

    def __str__(self) -> str:
        return self.explain()

    def headline(self) -> str:
        """One line: the kind of decision, and the mode if it is not the usual one."""
        return f"{self.title or self.op} tiling" + ("" if self.mode == "best" else f", mode {self.mode}")

    def explained(self) -> Iterator[Row]:
        """Yield every choice in reading order: the fields by section without those that are None or empty, then the
        nested decisions, and finally the remaining reasons in the section "also"."""
        shown = set()
        for row in (*self._own_rows(), *self._parts()):
            shown.add((row.name, row.why))
            yield row._replace(name=shown_name(row.name))
        for field, value, why in self.reasons:
            if (field, why) not in shown:
                yield Row("also", shown_name(field), value_text(field, value), why, label(self.op, field))

    def _own_rows(self) -> Iterator[Row]:
        for section, names in self.sections:
            for name in names:
                value = getattr(self, name)
                if value is not None and value != ():
                    yield Row(section, name, value_text(name, value), self.why(name), label(self.op, name))

    def _parts(self) -> Iterator[Row]:
        """Yield the rows of nested decisions and records."""
        return iter(())


def _plain(value: Any) -> Any:
    """Convert a field's value for JSON: nested decisions and configurations become dictionaries, several of them a
    list."""
    if isinstance(value, tuple) and value and all(is_dataclass(item) for item in value):
        return [_plain(item) for item in value]
    if isinstance(value, Decision):
        return value.to_dict()
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value


@dataclass(frozen=True)
class ProductChunks:
    """The steps of an accelerator program for a matrix multiplication, in elements, and how they alternate.

    - `step_m`, `step_n`, `depth`: steps of the loops over m, n and K.
    - `tile_m`, `tile_n`: tiles within a step of m and n.
    - `sync_m`, `sync_n`: one matrix-engine instruction multiplies `sync_m` x `sync_n` x `depth`. This is a whole tile,
      or the part of it that one synchronisation covers if the vector engine runs an epilogue.
    - `versions_a`, `versions_b`: number of steps of an operand that its buffer may hold at once.
    - `stays`: "a" or "b", the operand of which a step with all of K stays resident while the other operand streams
      past; "" where K is split.
    - `backward`: the partitions are traversed from last to first.
    - `whole_a`, `whole_b`: the whole operand stays resident.
    - `sums`: memory of the partial sums, "acc" or "out"; `versions_sums` is the number of blocks of them that
      alternate.
    - `cycles`: predicted cycles of one multiplication of a batch, from the first load to the last store.
    """

    predictions: ClassVar[tuple[str, ...]] = ("cycles",)

    step_m: int
    step_n: int
    depth: int
    tile_m: int
    tile_n: int
    sync_m: int
    sync_n: int
    versions_a: int
    versions_b: int
    whole_a: bool
    whole_b: bool
    stays: str
    backward: bool
    sums: str
    versions_sums: int
    cycles: float

    @property
    def size(self) -> str:
        """The steps of m, n and K as text."""
        return f"{self.step_m} x {self.step_n} x {self.depth}"


@dataclass(frozen=True, kw_only=True)
class GemmTiling(Decision):
    """Tiling of a matrix multiplication. Sizes are in elements, `acc_bytes` in bytes.

    `partition_m`, `partition_n` and `partition_k` are the outer blocks: what the input buffers hold at once, or on a
    CPU the rows of a core, the columns of a block of B and the elements of K in a block. `tile_m` and `tile_n` are the
    inner blocks: what one synchronisation between the engines covers, or the register tile of a CPU. `split_k`: K is
    divided into several blocks. `need_acc_buffer`: partial sums need a buffer, of `acc_bytes`. `outer_order` is "mn" if
    the loop over m is outside the loop over n, "nm" otherwise; `inner_order` is the same within a partition. `load_a`
    and `load_b` count how often each operand is read from memory. `utilisation` is the predicted share of the peak rate
    of multiply-adds. `form`, the kernel variant, and the fields after it are set on CPUs only; cores divide batch, m, n
    and K into `threads_batch`, `threads_m`, `threads_n` and `threads_k` parts, and `predicted_seconds` is the time of
    one call. On an accelerator with buffers, `chunks` holds the steps and loop order of the program; the partition is
    then an upper bound of the steps, from which traffic is predicted.
    """

    op: ClassVar[str] = "gemm"

    partition_m: int
    partition_n: int
    partition_k: int
    tile_m: int
    tile_n: int
    outer_order: str
    inner_order: str
    split_k: bool
    need_acc_buffer: bool
    acc_bytes: int
    load_a: int
    load_b: int
    utilisation: float
    feasible: bool = True  # False only in mode="seed", whose literal partition may exceed a buffer
    chunks: ProductChunks | None = None
    form: str | None = None  # "normal", "inline", "nocopy", "pack", "stream"
    mr: int | None = None  # rows of the register tile
    nr: int | None = None  # columns of the register tile: z vectors of `lanes`
    lanes: int | None = None  # accumulators in a vector register
    keep: int | None = None  # rows of the register tile read in place; the others are read from a small buffer
    threads_batch: int | None = None
    threads_m: int | None = None
    threads_n: int | None = None
    threads_k: int | None = None
    pack_a: str | None = None  # "none", "inline", "pack"
    pack_b: str | None = None  # "none", "pack" (at run time), "ahead" (at compile time)
    prefetch_b: bool | None = None  # kernels prefetch prepacked B
    prefetch_next: bool | None = None  # the tiles of a block of prepacked B prefetch the next one, in equal parts
    predicted_seconds: float | None = None

    sections: ClassVar[Sections] = (
        ("tiling", ("partition_m", "partition_n", "partition_k", "tile_m", "tile_n", "outer_order", "inner_order")),
        ("split-K", ("split_k", "need_acc_buffer", "acc_bytes")),
        (
            "CPU",
            (
                *("form", "mr", "nr", "lanes", "keep"),
                *("threads_batch", "threads_m", "threads_n", "threads_k", "pack_a", "pack_b"),
                *("prefetch_b", "prefetch_next"),
            ),
        ),
        ("predicted", ("load_a", "load_b", "utilisation", "predicted_seconds")),
    )

    @property
    def rule(self) -> str | None:
        """Name of the configuration rule: "matrix" on accelerators, "stream" or "normal" on CPUs."""
        if self.form is None:
            return "matrix"
        return "stream" if self.form == "stream" else "normal"

    @property
    def program(self) -> tuple[str, Any] | None:
        """Name and value of the record from which an accelerator's program is generated; None on other machines."""
        return None if self.chunks is None else ("chunks", self.chunks)

    def __str__(self) -> str:
        return self.explain()

    def headline(self) -> str:
        """One line: the kind of decision, and whether it fits the buffers."""
        return super().headline() + ("" if self.feasible else ": DOES NOT FIT the buffers")

    def _own_rows(self) -> Iterator[Row]:
        """Yield the program first where there is one, since it is what runs; the partition is then shown as the
        formulas' prediction."""
        if self.program is None:
            yield from super()._own_rows()
            return
        name, record = self.program
        yield Row("program", name, record.size, self.why(name), label(name, name))
        own = {field.name for field in fields(self)}  # their reasons belong to the partition
        for row in record_rows("program", record, name):
            yield row if row.name in own else row._replace(why=self.why(row.name))
        for row in super()._own_rows():
            yield row if row.section == "predicted" else row._replace(section=f"{row.section}, predicted")
