"""The database of measured shapes: measurements are stored and serve their multiples."""

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
_MOST_RANGES = 64  # entries of ranges that are searched for one that covers the rows
_MOST_TRIED = 8  # hits of a match whose configurations are tried on the machine


@dataclass(frozen=True, kw_only=True)
class Holding:
    """The number of entries that a database has of one machine, by kind; `ranges` are entries for ranges of rows."""

    fingerprint: Fingerprint
    initial: int
    boundary: int
    ranges: int = 0


class ShapeDatabase:
    """Measured shapes with their configurations and costs, by the machine that they were measured on.

    url: "sqlite:///shapes.db" or the path of a file, or "postgresql+psycopg://user@host/name". Several processes may
    write at once; a method that writes returns once committed, and a killed process leaves nothing half-written. With
    `create` False, the database must exist. Every method raises DatabaseError if it cannot be read or written.

    In all methods, `target` is the machine, as in tiling_schedule; `epilogue` names the epilogue fused to the
    `workload` ("" for none), and `prepacked` says that its weights are prepacked. All of them are part of the key of an
    entry.
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
        """Its transactions, for other data stored in it."""
        return self._store

    def close(self) -> None:
        """Close the connections; the database is reopened on use."""
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
        """Store a measured shape, `workload`: `cost` in seconds, or in cycles on an accelerator, with `energy_pj` if it
        is known. `config` may be the decision itself. `kind` is "initial", or "boundary" for a shape that an initial
        one was reduced to. `decided_cost` is the cost of the analytical decision, measured in the same session.

        If the shape is already stored, the cheaper configuration is kept; a newer cost of the same configuration
        replaces the older one. A pointwise convolution on a matrix engine is stored, and found, as a matrix
        multiplication. Raises DatabaseError for a cost that the CPU cannot achieve.
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
        """Store many measured shapes, `entries`: all of them or, after an error, none. Raises DatabaseError for a cost
        that the CPU cannot achieve.
        """
        hardware = hardware_of(target)
        found = list(entries)
        if hardware.cpu is not None:
            for entry in found:
                refuse_impossible(entry, hardware.cpu)
        self._store.write(lambda connection: put_entries(connection, found, hardware))

    def import_(self, path: str | os.PathLike[str]) -> int:
        """Add the contents of an exported file, all or nothing. Return the number of entries. DatabaseError names the
        invalid line, for example one with a cost that no such CPU can achieve."""
        try:
            with open(path, "rb") as file:
                lines = Lines(file, str(path), _this_cpu())
        except OSError as error:
            raise DatabaseError(
                f"{path} cannot be read: {error.strerror}; expected a file written by `db export`"
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
        """Measure shapes on `target`, the `candidates` best predicted configurations of each, keep the cheapest if it
        costs at most `threshold` times the roofline bound, and reduce the shape to boundary shapes.

        `shapes` are workloads, for example those of models; `random` draws others from given ranges. `limit` is the
        maximum number of boundary shapes of each, `factor` what an axis is divided by at each step, `tolerance` the
        maximum deviation of costs from proportionality. `measurer` defaults to that of the target. `progress` is called
        after every measurement. After `seconds`, no further shape is started. Called again with the same arguments, it
        continues where it was interrupted; `plan` selects shapes that serve many.
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
        """Return at most `budget` shapes to generate a database from, such that it serves most of `shapes` and of
        `random` ones, as multiples or as neighbours, with the expected number served. Nothing is measured."""
        return cover(_asked(hardware_of(target), shapes, random), budget)

    # ---- reading -----------------------------------------------------------------------------------------------------

    @old_arguments(ahead="prepacked")
    def match(
        self, workload: Workload, *, target: Target, order: str = "steps", epilogue: str = "", prepacked: bool = False
    ) -> Hit | None:
        """Return the entry that serves the shape of `workload`, or None, in which case the analytical decision applies.
        `Hit.chosen` says whether its configuration is taken, or the analytical decision because it is estimated to be
        cheaper, and `Hit.choice` why.

        order "steps": the first of the four matching steps that finds any entry, and the lowest estimate among several;
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
        """Return the estimated cost of `workload` as computed with this database, with its interval: for the
        configuration of the entry that serves it, or for the analytical decision, corrected by the measurements of the
        operator's nearest shapes, multiples or not. None if nothing of the operator was measured on `target` in these
        types.
        """
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
        """Return up to `limit` entries that serve `workload`, in the order of their steps or estimates; `match` takes
        one.
        """
        if order not in ORDERS:
            raise DatabaseError(f"order = {order!r}; expected {', '.join(map(repr, ORDERS))}")
        with self._store.read() as connection:
            wanted = _wanted(connection, workload, hardware_of(target), epilogue, prepacked)
            return hits(connection, wanted, order, limit) if wanted else []

    @old_arguments(ahead="prepacked")
    def nearest(
        self, workload: Workload, *, target: Target, epilogue: str = "", prepacked: bool = False, limit: int = 4
    ) -> list[Entry]:
        """Return up to `limit` entries of the same key as `workload`, nearest first by the differences of their axes,
        multiples or not.
        """
        with self._store.read() as connection:
            wanted = _wanted(connection, workload, hardware_of(target), epilogue, prepacked)
            return nearest(connection, wanted, limit) if wanted else []

    def config_for(
        self, workload: Workload, hardware: Hardware, prepacked: bool = False, epilogue: str = ""
    ) -> Config | None:
        """Return the configuration of the match for `workload` on `hardware`, for schedules; None if there is none or
        the analytical decision is cheaper. If no entry with this `epilogue` applies, one without an epilogue does: only
        its configuration is used, so its cost is then a guess.
        """
        for behind in dict.fromkeys((epilogue, "")):
            hit = self.match(workload, target=hardware, epilogue=behind, prepacked=prepacked)
            if hit is not None and hit.choice is not None and hit.choice.config is not None:
                return hit.choice.config if hit.choice.taken else None
        return None

    def ranges(
        self, workload: GemmWorkload, *, target: Target, epilogue: str = "", prepacked: bool = False, limit: int = 16
    ) -> list[Entry]:
        """Return up to `limit` entries for ranges of rows of matrix multiplications with the same key, nearest first by
        columns and K; the number of rows of the workload is ignored. DatabaseError for other operators."""
        if not isinstance(workload, GemmWorkload):
            raise DatabaseError(f"{type(workload).__name__} has no ranges of rows; expected GemmWorkload")
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
        """Return the entry that serves a matrix multiplication for all `rows`, as (1, 512): that of the smallest range
        that covers them. Its configuration is taken if it was faster than the analytical decision there, beyond noise,
        as `Entry.rows` says. None if there is no such entry."""
        wanted = Range.of("rows", rows)
        found = self.ranges(workload, target=target, epilogue=epilogue, prepacked=prepacked, limit=_MOST_RANGES)
        return serving(found, workload, wanted)

    def open_config_for(
        self, workload: GemmWorkload, hardware: Hardware, rows: Range, prepacked: bool = False, epilogue: str = ""
    ) -> tuple[Config, str] | None:
        """Return the configuration of the entry that serves a matrix multiplication with a dynamic number of rows, and
        why it is taken, for schedules on `hardware`; None if there is no entry, or it was not faster than the
        analytical decision within these rows. If no entry with this `epilogue` applies, one without an epilogue does.
        """
        for behind in dict.fromkeys((epilogue, "")):
            entry = self.match_rows(workload, rows, target=hardware, epilogue=behind, prepacked=prepacked)
            measured = None if entry is None or entry.rows is None else entry.rows.within(rows)
            if entry is not None and measured is not None:
                why = f"{KNOWN}: for {rows} rows {measured}"
                return (entry.config, why) if measured.won else None
        return None

    def entries(self, *, target: Target | None = None, kind: str | None = None) -> Iterator[tuple[Fingerprint, Entry]]:
        """Yield all entries with the machine that they were measured on, or those of one machine (`target`) or `kind`,
        in the order of their keys.
        """
        if kind not in (None, *KINDS):
            raise DatabaseError(f"kind = {kind!r}; expected {', '.join(map(repr, KINDS))} or None")
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
        """Return the machines that have entries, with the number of entries of each kind."""
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
        """Write all entries to `path` as JSON lines, atomically. Return their number. OSError if the file cannot be
        written or already exists."""
        if Path(path).exists():  # also if it is a pipe or a device
            raise FileExistsError(f"{path} already exists; expected a new path")
        with atomic_file(path) as file, self._store.read() as connection:
            return write_lines(connection, file)

    def check(self) -> CheckReport:
        """Check the file, the references between tables and the figures of each entry; return the problems found."""
        with self._store.read() as connection:
            return check(connection)


def _this_cpu() -> dict[str, Cpu]:
    """Return this CPU by its fingerprint; empty for an unknown architecture."""
    try:
        here = hardware_of("llvm")
    except HardwareError:
        return {}
    return {} if here.cpu is None else {fingerprint_of(here).digest: here.cpu}


def _asked(
    hardware: Hardware, shapes: Iterable[Workload], random: RandomShapes | Sequence[RandomShapes]
) -> list[Workload]:
    """Return shapes as they are scheduled on a machine, followed by random ones."""
    drawn = [random] if isinstance(random, RandomShapes) else random
    found = [*shapes, *(workload for some in drawn for workload in some.workloads(hardware))]
    return [as_scheduled(workload, hardware) for workload in found]


def _wanted(
    connection: sa.Connection, workload: Workload, hardware: Hardware, epilogue: str, prepacked: bool
) -> Wanted | None:
    """Return the shape in the form used for lookup, or None if nothing with its key is stored."""
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
