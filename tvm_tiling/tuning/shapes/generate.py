"""Generation of a database: shapes are measured with their candidate configurations, then reduced to boundary shapes.

The plan is stored in the database first, and measurements as they arrive: the same generation, started again, continues
where it was interrupted. An initial shape and its boundary shapes are stored together.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from ...decide.configs.config import Config
from ...errors import DatabaseError, TilingError, WorkloadError
from ...hardware.description import Hardware
from ...plain_text import plain_json
from ..least_cost import least_cost
from ..measuring.measurer import Job, Measured, Measurer
from .boundary import Reduction, boundary_shapes, proportional_axes
from .candidates import MOST, candidates
from .entries import Entry, compact, config_from_text, put_entries, text
from .fingerprint import fingerprint_of
from .kept_config import kept_config
from .key import ShapeKey, Workload, extents_of, key_of, workload_from_dict
from .schema import JOBS, MEASUREMENTS
from .store import Store

THRESHOLD = 4.0  # most cost of a stored shape, as a multiple of the lower bound
OPEN, DONE, DEAR, FAILED = "open", "done", "dear", "failed"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How shapes are measured and reduced.

    `threshold` is the maximum cost of a shape to be stored, as a multiple of the roofline bound; None: no limit.
    `candidates` configurations of each shape are measured. `prepacked`: weights are prepacked. `reduction` defines how
    boundary shapes are found.
    """

    threshold: float | None = THRESHOLD
    candidates: int = MOST
    prepacked: bool = False
    reduction: Reduction = field(default_factory=Reduction)

    def __post_init__(self) -> None:
        if self.threshold is not None and not (isinstance(self.threshold, int | float) and self.threshold > 0):
            raise DatabaseError(f"threshold = {self.threshold!r}; expected None or a number above 0")
        if type(self.candidates) is not int or self.candidates < 1:
            raise DatabaseError(f"candidates = {self.candidates!r}; expected a whole number of at least 1")


@dataclass(frozen=True, kw_only=True)
class GenerationProgress:
    """The progress of a generation: shapes done out of the total, measurements and boundary shapes of this session, and
    the shape being measured."""

    done: int
    of: int
    measured: int
    boundary: int
    shape: str


@dataclass(frozen=True, kw_only=True)
class GenerationReport:
    """The outcome of a generation, including earlier sessions.

    `initial` shapes were stored, with `boundary` shapes; `dear` shapes cost more than the threshold; `failed` shapes
    could not be measured, for the reasons given; `left` were not started before the time limit. `measured` counts the
    measurements of this session, `earlier` the shapes of other sessions.
    """

    shapes: int
    initial: int
    boundary: int
    dear: int
    failed: tuple[tuple[str, str], ...]
    measured: int
    earlier: int
    left: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {**dataclasses.asdict(self), "failed": [list(pair) for pair in self.failed]}


class Generation:
    """One generation: the shapes and settings that identify it, and what remains of it."""

    def __init__(
        self,
        store: Store,
        hardware: Hardware,
        workloads: Iterable[Workload],
        settings: Settings,
        measurer: Measurer,
        progress: Callable[[GenerationProgress], None] | None = None,
        seconds: float | None = None,
    ) -> None:
        if seconds is not None and not (isinstance(seconds, int | float) and seconds > 0):
            raise DatabaseError(f"seconds = {seconds!r}; expected None or a number above 0")
        self._end_at = math.inf if seconds is None else time.monotonic() + seconds
        self._store, self._hardware, self._settings, self._measurer = store, hardware, settings, measurer
        self._progress = progress
        found = list(dict.fromkeys(workloads))
        for workload in found:
            extents_of(workload)  # raises for shapes that cannot be stored
        self._plan = self._digest(found)
        self._measured, self._boundary = 0, 0
        self._store.write(lambda connection: self._put_jobs(connection, found))

    def run(self) -> GenerationReport:
        """Measure what remains. Completed measurements are kept, whatever ends the run."""
        with self._store.read() as connection:
            jobs = connection.execute(sa.select(JOBS).where(JOBS.c.plan == self._plan).order_by(JOBS.c.number)).all()
        left = [job for job in jobs if job.state == OPEN]
        for number, job in enumerate(left, start=len(jobs) - len(left)):
            if time.monotonic() > self._end_at:
                break
            workload = workload_from_dict(plain_json(job.workload))
            show = functools.partial(self._show, number, len(jobs))
            show(workload)
            self._shape(job.id, workload, show)
        return self._report(len(jobs) - len(left))

    # ---- the plan ----------------------------------------------------------------------------------------------------

    def _digest(self, workloads: Sequence[Workload]) -> str:
        settings = dataclasses.asdict(self._settings)
        # Under its original name, so that generations started by earlier versions continue.
        settings["ahead"] = settings.pop("prepacked")
        plan = {
            "fingerprint": fingerprint_of(self._hardware).digest,
            "shapes": [workload.to_dict() for workload in workloads],
            "settings": settings,
        }
        return hashlib.sha256(compact(plan).encode()).hexdigest()[:32]

    def _put_jobs(self, connection: sa.Connection, workloads: Sequence[Workload]) -> None:
        known = connection.execute(sa.select(JOBS.c.id).where(JOBS.c.plan == self._plan).limit(1)).first()
        if known is None and workloads:
            blank = {"plan": self._plan, "state": OPEN, "reason": "", "boundary": 0}
            rows = [
                {**blank, "number": number, "workload": compact(workload.to_dict())}
                for number, workload in enumerate(workloads)
            ]
            connection.execute(JOBS.insert(), rows)

    # ---- one shape ---------------------------------------------------------------------------------------------------

    def _shape(self, job: int, workload: Workload, show: Callable[[Workload], None]) -> None:
        """Measure a shape and what it is reduced to, and store both with the end of its job."""
        memory = _Memory(self._store, job)
        try:
            configs = candidates(
                workload, self._hardware, limit=self._settings.candidates, prepacked=self._settings.prepacked
            ).configs
        except TilingError as error:
            self._end(job, FAILED, str(error), [])
            return
        results = self._measure(memory, [(workload, config) for config in configs])
        measured = [result for result in results if result.cost is not None]
        if not measured:
            self._end(job, FAILED, next((result.reason or "" for result in results), "no candidates"), [])
            return
        best = min(measured, key=lambda result: result.cost or 0.0)
        decided = results[0].cost  # the decision's own configuration is the first candidate
        initial = dataclasses.replace(self._entry(best, "initial"), decided_cost=decided)
        if (least := self._too_dear(workload, initial.cost)) is not None:
            self._end(job, DEAR, f"{initial.cost:.6g} is {initial.cost / least:.3g} times the roofline bound", [])
            return
        key = key_of(workload, prepacked=self._settings.prepacked)
        energy: dict[tuple[int, ...], float | None] = {}

        def measure(extents: tuple[int, ...]) -> float | None:
            if extents == extents_of(workload):
                return initial.cost
            smaller = _workload(key, extents)
            if smaller is None:
                return None
            show(smaller)
            found = self._measure(memory, [(smaller, self._kept(initial, smaller))])[0]
            energy[extents] = found.energy_pj
            return found.cost

        entries, holding = [], set()
        for extents, cost in boundary_shapes(extents_of(workload), measure, self._settings.reduction):
            smaller = key.workload(extents)
            shorter = _shorter(key, extents_of(workload), extents)
            holding |= set(shorter) if len(shorter) == 1 else set()
            entries.append(
                dataclasses.replace(
                    initial,
                    workload=smaller,
                    cost=cost,
                    decided_cost=self._decided(memory, smaller, self._kept(initial, smaller), cost),
                    kind="boundary",
                    energy_pj=energy[extents],
                    proportional=shorter,
                )
            )
        self._boundary += len(entries)
        held = tuple(axis for axis in key.axes if axis in holding)
        entries.insert(0, dataclasses.replace(initial, proportional=held))
        reduced = {axis for entry in entries for axis in entry.proportional}
        growth = {axis: self._growth(key, workload, axis, initial.cost, measure) for axis in reduced}
        self._end(job, DONE, "", [self._in_range(entry, initial, growth) for entry in entries])

    def _kept(self, initial: Entry, workload: Workload) -> Config:
        """Return the configuration of an initial shape for a smaller one."""
        return kept_config(initial, workload, self._hardware, prepacked=self._settings.prepacked) or initial.config

    def _decided(self, memory: _Memory, workload: Workload, kept: Config, cost: float) -> float | None:
        """Return the cost of the analytical decision for a shape, comparable with `kept`, which costs `cost`; None if
        there is no decision or it fails. On a CPU, both are measured consecutively and compared, since costs from
        different times also differ by the load of the machine."""
        prepacked = self._settings.prepacked
        try:
            own = candidates(workload, self._hardware, limit=1, prepacked=prepacked).configs[0]
        except TilingError:
            return None
        if own == kept:
            return cost
        first, second = (
            Job(workload=workload, config=config, hardware=self._hardware, prepacked=prepacked)
            for config in (kept, own)
        )
        if self._hardware.cpu is None or memory.of(second) is not None:
            return self._measure(memory, [(workload, own)])[0].cost
        costs = {found.job: found.cost for found in self._measurer.measure([first, second])}
        self._measured += len(costs)
        beside, decided = costs.get(first), costs.get(second)
        if beside is None or decided is None:
            return None
        memory.keep([Measured(job=second, cost=cost * decided / beside)])
        return cost * decided / beside

    def _growth(
        self,
        key: ShapeKey,
        workload: Workload,
        axis: str,
        cost: float,
        measure: Callable[[tuple[int, ...]], float | None],
    ) -> float | None:
        """Return the relative deviation from twice the cost when an axis is doubled: another operand may then no longer
        stay resident, or complete sums are split. None if it cannot be measured."""
        doubled = tuple(
            2 * extent if own == axis else extent for own, extent in zip(key.axes, extents_of(workload), strict=True)
        )
        found = measure(doubled)
        return None if found is None else found / cost / 2 - 1

    def _in_range(self, entry: Entry, initial: Entry, growth: Mapping[str, float | None]) -> Entry:
        """Return the entry with only those proportional axes along which it may be extended."""
        sizes = math.prod(extents_of(initial.workload)) / math.prod(extents_of(entry.workload))
        own = {axis: share for axis in entry.proportional if (share := growth[axis]) is not None}
        tolerance = self._settings.reduction.tolerance
        found = proportional_axes(own, tolerance, entry.cost * sizes / initial.cost - 1)
        return dataclasses.replace(entry, proportional=tuple(axis for axis in entry.proportional if axis in found))

    def _too_dear(self, workload: Workload, cost: float) -> float | None:
        """Return the lower bound of a shape if `cost` exceeds the threshold, otherwise None."""
        if self._settings.threshold is None:
            return None
        least = least_cost(workload, self._hardware)
        return least if cost > least * self._settings.threshold else None

    def _entry(self, measured: Measured, kind: str) -> Entry:
        job = measured.job
        assert measured.cost is not None
        return Entry(
            workload=job.workload,
            config=job.config,
            cost=measured.cost,
            kind=kind,
            energy_pj=measured.energy_pj,
            prepacked=job.prepacked,
        )

    def _measure(self, memory: _Memory, wanted: Sequence[tuple[Workload, Config]]) -> list[Measured]:
        """Return results in the order requested; earlier measurements are reused."""
        job_of = functools.partial(Job, hardware=self._hardware, prepacked=self._settings.prepacked)
        jobs = [job_of(workload=workload, config=config) for workload, config in wanted]
        results = {job: found for job in jobs if (found := memory.of(job)) is not None}
        new = [job for job in jobs if job not in results]
        fresh = []
        try:
            for measured in self._measurer.measure(new) if new else ():
                fresh.append(measured)
        finally:
            memory.keep(fresh)
            self._measured += len(fresh)
        results.update((measured.job, measured) for measured in fresh)
        return [results.get(job) or Measured(job=job, reason="not measured") for job in jobs]

    def _end(self, job: int, state: str, reason: str, entries: Sequence[Entry]) -> None:
        """Store the entries of a shape and the end of its job, both or neither."""

        def end(connection: sa.Connection) -> None:
            put_entries(connection, entries, self._hardware)
            connection.execute(MEASUREMENTS.delete().where(MEASUREMENTS.c.job_id == job))
            ended = {"state": state, "reason": reason, "boundary": max(0, len(entries) - 1)}
            connection.execute(JOBS.update().where(JOBS.c.id == job).values(**ended))

        self._store.write(end)

    # ---- reporting ---------------------------------------------------------------------------------------------------

    def _show(self, done: int, of: int, workload: Workload) -> None:
        if self._progress is not None:
            self._progress(
                GenerationProgress(
                    done=done, of=of, measured=self._measured, boundary=self._boundary, shape=shape_text(workload)
                )
            )

    def _report(self, earlier: int) -> GenerationReport:
        with self._store.read() as connection:
            rows = connection.execute(sa.select(JOBS).where(JOBS.c.plan == self._plan).order_by(JOBS.c.number)).all()
        failed = [row for row in rows if row.state == FAILED]
        return GenerationReport(
            shapes=len(rows),
            initial=sum(row.state == DONE for row in rows),
            boundary=sum(row.boundary for row in rows),
            dear=sum(row.state == DEAR for row in rows),
            failed=tuple((shape_text(workload_from_dict(plain_json(row.workload))), row.reason) for row in failed),
            measured=self._measured,
            earlier=earlier,
            left=sum(row.state == OPEN for row in rows),
        )


class _Memory:
    """The measurements of a job, from this session or an interrupted earlier one."""

    def __init__(self, store: Store, job: int) -> None:
        self._store, self._job = store, job
        query = sa.select(MEASUREMENTS).where(MEASUREMENTS.c.job_id == job)
        with store.read() as connection:
            rows = connection.execute(query).all()
        self._known = {(row.shape, config_from_text(row.cut)): row for row in rows}

    def of(self, job: Job) -> Measured | None:
        """Return the result of an earlier measurement."""
        row = self._known.get((text(extents_of(job.workload)), job.config))
        if row is None:
            return None
        return Measured(job=job, cost=row.cost, energy_pj=row.energy_pj, reason=row.reason or None)

    def keep(self, results: Sequence[Measured]) -> None:
        """Write results, so that they need not be measured again."""
        rows = [
            {
                "job_id": self._job,
                "shape": text(extents_of(result.job.workload)),
                "cut": compact(result.job.config.to_dict()),
                "cost": result.cost,
                "energy_pj": result.energy_pj,
                "reason": result.reason or "",
            }
            for result in results
        ]
        if rows:
            self._store.write(lambda connection: connection.execute(MEASUREMENTS.insert(), rows))


def _workload(key: ShapeKey, extents: tuple[int, ...]) -> Workload | None:
    try:
        return key.workload(extents)
    except WorkloadError:
        return None


def _shorter(key: ShapeKey, initial: tuple[int, ...], extents: tuple[int, ...]) -> tuple[str, ...]:
    """Return the axes along which a shape was reduced."""
    return tuple(axis for axis, own, less in zip(key.axes, initial, extents, strict=True) if less < own)


def shape_text(workload: Workload) -> str:
    """Return a shape in readable form: the operator, its axes, and the kernel and stride of a convolution."""
    key = key_of(workload)
    extents = {axis: getattr(workload, axis) for axis in sorted(key.axes)}
    needed = ("m", "n", "k") if key.op == "gemm" else ()
    axes = [f"{axis}={extent}" for axis, extent in extents.items() if extent > 1 or axis in needed]
    fixed = [f"{name}={_plain(value)}" for name, value in key.fixed if name in ("kh", "kw", "stride", "groups")]
    return " ".join([key.op, *axes, *fixed, key.dtype])


def _plain(value: Any) -> str:
    """A value as the command line accepts it."""
    return ",".join(map(str, value)) if isinstance(value, tuple | list) else str(value)
