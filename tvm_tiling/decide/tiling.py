"""Decisions as data: frozen records that a formula, a search or a database entry may equally have made."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields, is_dataclass
from typing import Any, ClassVar, NamedTuple

from .explain import Row, Sections, as_text, record_rows, shown_name, value_text


class Reason(NamedTuple):
    """Why a field of a decision has its value."""

    field: str
    value: object
    why: str


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What every decision tells of itself: its reasons, and all of it as JSON or as text.

    `op` names the operator. `sections` are the fields as the text shows them, in reading order.
    """

    op: ClassVar[str]
    sections: ClassVar[Sections]

    mode: str = "best"
    reasons: tuple[Reason, ...] = ()

    @property
    def rule(self) -> str | None:
        """The name of the rule that knows its choices (configs/config.py); None where there are none."""
        return None

    @property
    def algorithm(self) -> str | None:
        """The kernel variant of a matrix multiplication, the algorithm of a convolution; None on machines that have
        only one. It is the field `form` of records and files."""
        return getattr(self, "form", None)

    def why(self, field: str) -> str:
        """The reason for one field, empty where it has none."""
        return next((r.why for r in self.reasons if r.field == field), "")

    def to_dict(self) -> dict[str, Any]:
        """The operator's name, every field and the reasons, as plain values for JSON."""
        plain = {f.name: _plain(getattr(self, f.name)) for f in fields(self) if f.name != "reasons"}
        return {"op": self.op, **plain, "reasons": [list(r) for r in self.reasons]}

    def to_json(self) -> str:
        """The whole decision as one JSON object with sorted keys."""
        return json.dumps(self.to_dict(), sort_keys=True)

    def explain(self) -> str:
        """Every choice with its reason, predicted traffic and utilisation, as text."""
        return as_text(self.headline(), self.explained())

    def headline(self) -> str:
        """What kind of decision this is, and whether it fits."""
        return f"{self.op} tiling, mode {self.mode}"

    def explained(self) -> Iterator[Row]:
        """Every choice in reading order: fields by their sections, those that are None or empty left out, then the
        parts; last, in the section "also", reasons for anything else."""
        told = set()
        for row in (*self._own_rows(), *self._parts()):
            told.add((row.name, row.why))
            yield row._replace(name=shown_name(row.name))
        for field, value, why in self.reasons:
            if (field, why) not in told:
                yield Row("also", shown_name(field), value_text(field, value), why)

    def _own_rows(self) -> Iterator[Row]:
        for section, names in self.sections:
            for name in names:
                value = getattr(self, name)
                if value is not None and value != ():
                    yield Row(section, name, value_text(name, value), self.why(name))

    def _parts(self) -> Iterator[Row]:
        """The rows of decisions and records within this one."""
        return iter(())


def _plain(value: Any) -> Any:
    """A field's value for JSON: a decision or a configuration within a decision as a dictionary, several as a list."""
    if isinstance(value, tuple) and value and all(is_dataclass(item) for item in value):
        return [_plain(item) for item in value]
    if isinstance(value, Decision):
        return value.to_dict()
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value


@dataclass(frozen=True)
class ProductChunks:
    """Pieces of a configuration, in elements, and how they take turns.

    The loops over m, n and k go in steps of `step_m`, `step_n` and `depth`, those within a step of m and n by tiles of
    `tile_m` x `tile_n`. An instruction of the matrix engine multiplies `sync_m` x `sync_n` x `depth`: a tile, or where
    the vector engine computes what is fused behind, as much of it as one synchronisation covers. `versions` are how
    many steps of an operand
    may be in its buffer at once. `stays` is the operand, "a" or "b", of which a step stays, with all of k, while the
    other one passes by; "" where K is split. `backward`: its partitions are walked from the last one to the first.
    `whole_a`, `whole_b`: the operand stays as a whole. `sums` is the memory of the sums, "acc" or "out",
    `versions_sums` how many blocks of them take turns there. `cycles` are those of one product of a batch, from the
    first load until the last results have left: a prediction.
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
        """Its steps of m, n and k as text."""
        return f"{self.step_m} x {self.step_n} x {self.depth}"


@dataclass(frozen=True, kw_only=True)
class GemmTiling(Decision):
    """How a matrix product is cut (pages 01 and 03). Sizes in elements, `acc_bytes` in bytes.

    `outer_order` "mn" walks m outside n (the seed's flag 1), "nm" n outside m (flag 0); `inner_order` likewise within a
    partition. `load_a` and `load_b` are how often each operand is read from memory. `form` and the fields after it are
    those of a CPU and None on other machines. On an accelerator with buffers `chunks` is what its program loads and
    multiplies at once, and in which order: the partition is the bound of it, and what its traffic is predicted from.
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
    feasible: bool = True  # False only in mode="seed", whose literal cut may exceed a buffer
    chunks: ProductChunks | None = None
    form: str | None = None  # "normal", "inline", "nocopy", "pack", "stream"
    mr: int | None = None  # rows of the register tile
    nr: int | None = None  # columns of the register tile: z vectors of `lanes`
    lanes: int | None = None  # accumulators in a vector register
    keep: int | None = None  # rows of the register tile read in place; the rest come from a small buffer
    threads_batch: int | None = None
    threads_m: int | None = None
    threads_n: int | None = None
    threads_k: int | None = None
    pack_a: str | None = None  # "none", "inline", "pack"
    pack_b: str | None = None  # "none", "pack" (while it runs), "ahead" (when it is compiled)
    predicted_seconds: float | None = None

    sections: ClassVar[Sections] = (
        ("tiling", ("partition_m", "partition_n", "partition_k", "tile_m", "tile_n", "outer_order", "inner_order")),
        ("split-K", ("split_k", "need_acc_buffer", "acc_bytes")),
        (
            "CPU",
            (
                *("form", "mr", "nr", "lanes", "keep"),
                *("threads_batch", "threads_m", "threads_n", "threads_k", "pack_a", "pack_b"),
            ),
        ),
        ("predicted", ("load_a", "load_b", "utilisation", "predicted_seconds")),
    )

    @property
    def rule(self) -> str | None:
        if self.form is None:
            return "matrix"
        return "stream" if self.form == "stream" else "normal"

    @property
    def program(self) -> tuple[str, Any] | None:
        """What an accelerator's program is written from, with its name; None on other machines."""
        return None if self.chunks is None else ("chunks", self.chunks)

    def headline(self) -> str:
        return super().headline() + ("" if self.feasible else ": DOES NOT FIT the buffers")

    def _own_rows(self) -> Iterator[Row]:
        """Where there is a program, it is what runs; the partition is then the formulas' prediction."""
        if self.program is None:
            yield from super()._own_rows()
            return
        name, record = self.program
        yield Row("program", name, record.size, self.why(name))
        own = {field.name for field in fields(self)}  # their reasons are the partition's
        for row in record_rows("program", record):
            yield row if row.name in own else row._replace(why=self.why(row.name))
        for row in super()._own_rows():
            yield row if row.section == "predicted" else row._replace(section=f"{row.section}, predicted")
