"""Decisions as data: frozen records that a formula, a search or a database entry may equally have made."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields, is_dataclass
from typing import Any, ClassVar, NamedTuple


class Reason(NamedTuple):
    """Why a field of a decision has its value."""

    field: str
    value: object
    why: str


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What every decision tells of itself: its reasons, and all of it as JSON or as text. `op` names the operator."""

    op: ClassVar[str]

    mode: str = "best"
    reasons: tuple[Reason, ...] = ()

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
        from .explain import explain_tiling

        return explain_tiling(self)


def _plain(value: Any) -> Any:
    """A field's value for JSON: a decision or a cut within a decision as a dictionary, several as a list."""
    if isinstance(value, tuple) and value and all(is_dataclass(item) for item in value):
        return [_plain(item) for item in value]
    if isinstance(value, Decision):
        return value.to_dict()
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value


@dataclass(frozen=True)
class ProductChunks:
    """Pieces of a cut, in elements, and how they take turns.

    The loops over m, n and k go in steps of `step_m`, `step_n` and `depth`, those within a step of m and n by tiles.
    `tile_m` x `tile_n` x `depth` is one instruction of the matrix engine. `versions` are how many steps of an operand
    may be in its buffer at once. `stays` is the operand, "a" or "b", of which a step stays, with all of k, while the
    other one passes by; "" where K is split. `backward`: its partitions are walked from the last one to the first.
    `whole_a`, `whole_b`: the operand stays as a whole. `sums` is the memory of the sums, "acc" or "out",
    `versions_sums` how many blocks of them take turns there.
    """

    step_m: int
    step_n: int
    depth: int
    tile_m: int
    tile_n: int
    versions_a: int
    versions_b: int
    whole_a: bool
    whole_b: bool
    stays: str
    backward: bool
    sums: str
    versions_sums: int


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
