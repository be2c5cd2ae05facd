"""The database of measured shapes: what was measured is kept, and serves its multiples (page 02)."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from ...atomic_file import atomic_file
from ...decide.as_scheduled import as_scheduled
from ...decide.configs.config import Config, Tiling, config_of
from ...decide.conv.conv_tiling import ConvTiling
from ...decide.levels.level_gemm import LevelsTiling
from ...decide.options import KNOWN
from ...decide.tiling import GemmTiling
from ...errors import DatabaseError, HardwareError
from ...hardware.cpu import Cpu
from ...hardware.description import Hardware
from ...old_names import old_arguments
from ...plain_text import plain_json
from ...sizes import Range
from ...target import Target, hardware_of
from ...workload import GemmWorkload
from ..measuring.measurer import Measurer
from ..measuring.steady import measurer_for_shapes
from .boundary import FACTOR, LIMIT, TOLERANCE, Reduction
from .candidates import MOST
from .check import CheckReport, check
from .cover import Cover, cover
from .entries import Entry, entry_of, put_entries, refuse_impossible
from .estimate import Estimate
from .estimates import Estimates
from .fingerprint import Fingerprint, fingerprint_of
from .generate import THRESHOLD, Generation, GenerationProgress, GenerationReport, Settings
from .key import ShapeKey, Workload, extents_of, key_of
from .matching import ORDERS, Hit, Wanted, choose, hits, nearest, of_ranges, serving
from .padding import Padding
from .portable import Lines, write_lines
from .random_shapes import RandomShapes
from .schema import ENTRIES, FINGERPRINTS, KEYS, KINDS, RANGE
from .store import Store

_CHUNK = 1000  # rows read at a time
_MOST_RANGES = 64  # entries of ranges that are looked through for one that covers the rows
_MOST_TRIED = 8  # hits of a match whose configurations are tried on the machine


@dataclass(frozen=True, kw_only=True)
class Holding:
    """What a database holds of one machine: entries by kind, `ranges` those of ranges of rows."""

    fingerprint: Fingerprint
    initial: int
    boundary: int
    ranges: int = 0


class ShapeDatabase:
    """Measured shapes with their cuts and costs, by the machine that they were measured on.

    url: "sqlite:///shapes.db" or a file's path, or "postgresql+psycopg://user@host/name". Several processes may write
    at once; a method that writes returns when it is committed, and one that is killed leaves nothing half done. With
    `create` False the database must be there. Every method raises DatabaseError where it cannot be read or written.
    """

    def __init__(self, url: str | os.PathLike[str], *, create: bool = True) -> None:
        self._store = Store(url, create=create)
        self._estimates = Estimates(self._store)

    @property
    def name(self) -> str:
        """The URL, without a password."""
        return self._store.name

    @property
    def store(self) -> Store:
        """Its transactions, for what else is kept in it."""
        return self._store

    def close(self) -> None:
        """Close the connections; the database is opened again when it is used."""
        self._store.close()

    def __enter__(self) -> ShapeDatabase:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- writing -----------------------------------------------------------------------------------------------------

    @old_arguments(cut="config", ahead="prepacked")
    def add(
        self,
        workload: Workload,
        config: Config | Tiling,
        cost: float,
        *,
        target: Target,
        kind: str = "initial",
        energy_pj: float | None = None,
        epilogue: str = "",
        prepacked: bool = False,
        decided_cost: float | None = None,
    ) -> None:
        """Keep a measured shape: `cost` in seconds, on an accelerator in cycles. `config` may be the decision itself.
        `decided_cost` is what the formulas' own decision cost, measured beside it.

        Of a shape that is there the cheaper cut stays; a newer cost of the same configuration replaces the older.
        `epilogue` names what is fused behind, `prepacked` says that weights are prepacked: both are part of the key. A
        matrix engine takes a pointwise convolution as a product: there it is kept, and found, as that one.
        DatabaseError for a cost that the CPU cannot have.
        """
        hardware = hardware_of(target)
        workload = as_scheduled(workload, hardware)
        entry = Entry(
            workload=workload,
            config=_config(config, workload, hardware),
            cost=cost,
            kind=kind,
            energy_pj=energy_pj,
            epilogue=epilogue,
            prepacked=prepacked,
            decided_cost=decided_cost,
        )
        self.add_many([entry], target=hardware)

    def add_many(self, entries: Iterable[Entry], *, target: Target) -> None:
        """Keep many measured shapes, all of them or, after an error, none. A cost that the CPU cannot have is
        refused."""
        hardware = hardware_of(target)
        found = list(entries)
        if hardware.cpu is not None:
            for entry in found:
                refuse_impossible(entry, hardware.cpu)
        self._store.write(lambda connection: put_entries(connection, found, hardware))

    def import_(self, path: str | os.PathLike[str]) -> int:
        """Add what `export` wrote, all of it or nothing; how many entries it holds. DatabaseError names the line that
        is wrong, such as a cost that no such CPU can have."""
        try:
            with open(path, "rb") as file:
                lines = Lines(file, str(path), _this_cpu())
        except OSError as error:
            raise DatabaseError(
                f"{path} cannot be read: {error.strerror}; accepted: a file that `db export` wrote"
            ) from None
        return self._store.write(lines.put)

    @old_arguments(ahead="prepacked")
    def generate(
        self,
        *,
        target: Target,
        shapes: Iterable[Workload] = (),
        random: RandomShapes | Sequence[RandomShapes] = (),
        limit: int = LIMIT,
        factor: int = FACTOR,
        tolerance: float = TOLERANCE,
        threshold: float | None = THRESHOLD,
        candidates: int = MOST,
        prepacked: bool = False,
        measurer: Measurer | None = None,
        progress: Callable[[GenerationProgress], None] | None = None,
        seconds: float | None = None,
    ) -> GenerationReport:
        """Measure shapes on `target`, the `candidates` best predicted cuts of each, keep the cheapest configuration of
        those that cost at most `threshold` times the roofline's least, and reduce them to boundary shapes.

        `shapes` are workloads, such as those of models; `random` draws others in stated ranges. `limit` is the most
        boundary shapes of each, `factor` what an axis is divided by at each step, `tolerance` how far costs may be from
        their proportion to sizes. `measurer` is the target's own where it is left out. `progress` is told of every
        measurement. After so many `seconds` no further shape is begun. Called again with the same arguments it goes on
        where it was ended; `plan` chooses shapes that serve many.
        """
        hardware = hardware_of(target)
        workloads = _asked(hardware, shapes, random)
        settings = Settings(
            threshold=threshold,
            candidates=candidates,
            prepacked=prepacked,
            reduction=Reduction(factor=factor, tolerance=tolerance, limit=limit),
        )
        with contextlib.ExitStack() as stack:
            if measurer is None:
                measurer = stack.enter_context(contextlib.closing(measurer_for_shapes(hardware)))
            return Generation(self.store, hardware, workloads, settings, measurer, progress, seconds).run()

    @staticmethod
    def plan(
        budget: int,
        *,
        target: Target,
        shapes: Iterable[Workload] = (),
        random: RandomShapes | Sequence[RandomShapes] = (),
    ) -> Cover:
        """At most `budget` shapes to generate a database from, so that it serves most of `shapes` and of `random` ones,
        as multiples or as neighbours, and how many that is expected to be. Nothing is measured."""
        return cover(_asked(hardware_of(target), shapes, random), budget)

    # ---- reading -----------------------------------------------------------------------------------------------------

    @old_arguments(ahead="prepacked")
    def match(
        self, workload: Workload, *, target: Target, order: str = "steps", epilogue: str = "", prepacked: bool = False
    ) -> Hit | None:
        """The entry that serves a shape, None where there is none: then the formulas decide. `Hit.chosen` says whether
        its configuration is taken, or the formulas' own decision, which is estimated to be cheaper, and `Hit.choice`
        why.

        order "steps": the first of the four steps of matching that finds any, of several the lowest estimate;
        "estimate": the lowest estimate of all steps.
        """
        hardware = hardware_of(target)
        asked: dict[str, Any] = {"order": order, "epilogue": epilogue, "prepacked": prepacked, "limit": _MOST_TRIED}
        found = self.matches(workload, target=hardware, **asked)
        scheduled = as_scheduled(workload, hardware)
        hit = choose(found, scheduled, hardware, prepacked=prepacked)
        return hit and dataclasses.replace(
            hit, told=functools.partial(self._estimates.of_hit, workload=scheduled, hardware=hardware)
        )

    @old_arguments(ahead="prepacked")
    def estimate(
        self, workload: Workload, *, target: Target, epilogue: str = "", prepacked: bool = False
    ) -> Estimate | None:
        """What a shape is estimated to cost as it is computed with this database, and within which interval: with the
        configuration of the entry that serves it, or by the formulas' own decision, corrected by what was measured of
        the operator's nearest shapes, multiples or not. None where nothing of the operator was measured on `target` in
        these types."""
        hardware = hardware_of(target)
        hit = self.match(workload, target=hardware, epilogue=epilogue, prepacked=prepacked)
        if hit is not None and hit.chosen == "entry" and hit.estimated is not None:
            return hit.estimated
        scheduled = as_scheduled(workload, hardware)
        key = key_of(scheduled, epilogue=epilogue, prepacked=prepacked)
        return self._estimates.of_decision(scheduled, hardware, key)

    @old_arguments(ahead="prepacked")
    def matches(
        self,
        workload: Workload,
        *,
        target: Target,
        order: str = "steps",
        epilogue: str = "",
        prepacked: bool = False,
        limit: int = 8,
    ) -> list[Hit]:
        """Up to `limit` entries that serve a shape, in the order of their steps or estimates; `match` takes one."""
        if order not in ORDERS:
            raise DatabaseError(f"order = {order!r}, accepted: {', '.join(map(repr, ORDERS))}")
        with self._store.read() as connection:
            wanted = _wanted(connection, workload, hardware_of(target), epilogue, prepacked)
            return hits(connection, wanted, order, limit) if wanted else []

    @old_arguments(ahead="prepacked")
    def nearest(
        self, workload: Workload, *, target: Target, epilogue: str = "", prepacked: bool = False, limit: int = 4
    ) -> list[Entry]:
        """Up to `limit` entries of the same key, those first whose axes differ least, multiples or not."""
        with self._store.read() as connection:
            wanted = _wanted(connection, workload, hardware_of(target), epilogue, prepacked)
            return nearest(connection, wanted, limit) if wanted else []

    def config_for(
        self, workload: Workload, hardware: Hardware, prepacked: bool = False, epilogue: str = ""
    ) -> Config | None:
        """The configuration of the match, for schedules; None where there is none, or the formulas' own decision is
        cheaper. `prepacked`: weights are prepacked. Where nothing with this `epilogue` serves, what was measured
        without one does: that it is cheap is then a guess, as its configuration alone is taken."""
        for behind in dict.fromkeys((epilogue, "")):
            hit = self.match(workload, target=hardware, epilogue=behind, prepacked=prepacked)
            if hit is not None and hit.choice is not None and hit.choice.config is not None:
                return hit.choice.config if hit.choice.taken else None
        return None

    def ranges(
        self, workload: GemmWorkload, *, target: Target, epilogue: str = "", prepacked: bool = False, limit: int = 16
    ) -> list[Entry]:
        """Up to `limit` entries of ranges of rows of products of the same key, those first whose columns and summed
        elements differ least from the workload's; how many rows that has says nothing. DatabaseError for what is no
        product."""
        if not isinstance(workload, GemmWorkload):
            raise DatabaseError(f"{type(workload).__name__} has no ranges of rows; accepted: GemmWorkload")
        with self._store.read() as connection:
            wanted = _wanted(connection, workload, hardware_of(target), epilogue, prepacked)
            return of_ranges(connection, wanted, limit) if wanted else []

    def match_rows(
        self,
        workload: GemmWorkload,
        rows: Range | tuple[int, int],
        *,
        target: Target,
        epilogue: str = "",
        prepacked: bool = False,
    ) -> Entry | None:
        """The entry that serves a product of all numbers of `rows`, as (1, 512): of the smallest range that covers
        them. Its configuration is taken if it was faster than the formulas' decision there, beyond noise: `Entry.rows`
        tells. None where there is no such entry."""
        wanted = Range.of("rows", rows)
        found = self.ranges(workload, target=target, epilogue=epilogue, prepacked=prepacked, limit=_MOST_RANGES)
        return serving(found, workload, wanted)

    def open_config_for(
        self, workload: GemmWorkload, hardware: Hardware, rows: Range, prepacked: bool = False, epilogue: str = ""
    ) -> tuple[Config, str] | None:
        """The configuration of the entry that serves a product of open rows, and why it is taken, for schedules; None
        where none does, or it was not faster than the formulas' decision within these rows. Where nothing with this
        `epilogue` serves, what was measured without one does."""
        for behind in dict.fromkeys((epilogue, "")):
            entry = self.match_rows(workload, rows, target=hardware, epilogue=behind, prepacked=prepacked)
            measured = None if entry is None or entry.rows is None else entry.rows.within(rows)
            if entry is not None and measured is not None:
                why = f"{KNOWN}: for {rows} rows {measured}"
                return (entry.config, why) if measured.won else None
        return None

    def entries(self, *, target: Target | None = None, kind: str | None = None) -> Iterator[tuple[Fingerprint, Entry]]:
        """All entries with where they were measured, or those of one machine or kind, in the order of their keys."""
        if kind not in (None, *KINDS):
            raise DatabaseError(f"kind = {kind!r}, accepted: {', '.join(map(repr, KINDS))} or None")
        query = sa.select(FINGERPRINTS.c.record.label("machine"), KEYS.c.record.label("key"), ENTRIES)
        query = query.join_from(ENTRIES, KEYS).join(FINGERPRINTS)
        if kind is not None:
            query = query.where(ENTRIES.c.kind == kind)
        if target is not None:
            query = query.where(FINGERPRINTS.c.digest == fingerprint_of(hardware_of(target)).digest)
        query = query.order_by(KEYS.c.fingerprint_id, KEYS.c.id, ENTRIES.c.id)
        machines: dict[str, Fingerprint] = {}
        keys: dict[str, ShapeKey] = {}
        with self._store.read() as connection:
            for row in connection.execution_options(yield_per=_CHUNK).execute(query):
                if row.machine not in machines:
                    machines[row.machine] = Fingerprint.from_dict(plain_json(row.machine))
                if row.key not in keys:
                    keys[row.key] = ShapeKey.from_dict(plain_json(row.key))
                yield machines[row.machine], entry_of(row, keys[row.key])

    def holdings(self) -> list[Holding]:
        """The machines that entries are of, with how many."""
        counted = [sa.func.count().filter(ENTRIES.c.kind == kind).label(kind) for kind in KINDS]
        query = sa.select(FINGERPRINTS.c.record, *counted).select_from(FINGERPRINTS).outerjoin(KEYS).outerjoin(ENTRIES)
        query = query.group_by(FINGERPRINTS.c.id, FINGERPRINTS.c.record)
        with self._store.read() as connection:
            rows = connection.execute(query.order_by(FINGERPRINTS.c.id)).all()
        return [
            Holding(
                fingerprint=Fingerprint.from_dict(plain_json(row.record)),
                initial=row.initial,
                boundary=row.boundary,
                ranges=getattr(row, RANGE),
            )
            for row in rows
        ]

    def export(self, path: str | os.PathLike[str]) -> int:
        """Write all entries to `path` as JSON lines, the whole file or none; how many there are. OSError where it
        cannot be written, or is there already."""
        if Path(path).exists():  # of a pipe or a device too
            raise FileExistsError(f"{path} is there already; accepted: a path where nothing is")
        with atomic_file(path) as file, self._store.read() as connection:
            return write_lines(connection, file)

    def check(self) -> CheckReport:
        """Look at every row: the file, the links between tables, each entry's figures."""
        with self._store.read() as connection:
            return check(connection)


def _this_cpu() -> dict[str, Cpu]:
    """This CPU by its fingerprint; nothing where it is of an architecture that is not described."""
    try:
        here = hardware_of("llvm")
    except HardwareError:
        return {}
    return {} if here.cpu is None else {fingerprint_of(here).digest: here.cpu}


def _asked(
    hardware: Hardware, shapes: Iterable[Workload], random: RandomShapes | Sequence[RandomShapes]
) -> list[Workload]:
    """Shapes as they are scheduled on a machine, and random ones."""
    drawn = [random] if isinstance(random, RandomShapes) else random
    found = [*shapes, *(workload for some in drawn for workload in some.workloads(hardware))]
    return [as_scheduled(workload, hardware) for workload in found]


def _wanted(
    connection: sa.Connection, workload: Workload, hardware: Hardware, epilogue: str, prepacked: bool
) -> Wanted | None:
    """The shape as it is looked for, None where nothing of its key is there."""
    workload = as_scheduled(workload, hardware)
    key = key_of(workload, epilogue=epilogue, prepacked=prepacked)
    query = sa.select(KEYS.c.id, KEYS.c.padding).join(FINGERPRINTS)
    row = connection.execute(
        query.where(FINGERPRINTS.c.digest == fingerprint_of(hardware).digest, KEYS.c.digest == key.digest)
    ).first()
    if row is None:
        return None
    padding, extents = Padding.from_list(plain_json(row.padding), key), extents_of(workload)
    return Wanted(
        key=key,
        key_id=row.id,
        extents=extents,
        counts=padding.counts(key, extents),
        padded=tuple(map(padding.pads, key.axes)),
        size=padding.size(key, workload, extents),
    )


def _config(config: Any, workload: Workload, hardware: Hardware) -> Config:
    return (
        config_of(config, workload, hardware) if isinstance(config, GemmTiling | ConvTiling | LevelsTiling) else config
    )
