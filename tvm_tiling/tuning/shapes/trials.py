"""Trials in the database: every measured configuration, so that an interrupted search continues where it was.

Entries, the best configuration of each shape, serve other shapes; trials are the record of a search, including
failures.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import sqlalchemy as sa

from ...decide.configs.config import Config
from ...hardware.description import Hardware
from ...plain_text import plain_json
from ...sizes import Range
from ...workload import GemmWorkload
from ..measuring.measurer import Job, Measured
from .database import ShapeDatabase
from .entries import Entry, compact, put_entries, shape_of
from .fingerprint import fingerprint_of
from .key import Workload, key_of
from .schema import TRIALS

Subject: TypeAlias = tuple[Hardware, Workload, bool, str]
"""Machine, operator, whether its weights are prepacked, and its epilogue; for fixed numbers of rows only."""

FLUSH_SECONDS = 0.2  # history that a killed process may lose


class TrialLog:
    """The trials in a database. Results are written at most FLUSH_SECONDS later when more arrive, and at the end of a
    `with` block; the best configuration of every shape then becomes an entry."""

    def __init__(self, database: ShapeDatabase) -> None:
        self.database = database
        self.seconds = 0.0  # spent in the database
        self._waiting: list[Measured] = []
        self._written = time.monotonic()
        self._best: dict[Subject, Entry] = {}
        self._decided: dict[Subject, float] = {}

    def past(
        self,
        workload: Workload,
        hardware: Hardware,
        *,
        prepacked: bool = False,
        epilogue: str = "",
        rows: Range | None = None,
    ) -> dict[Config, float | None]:
        """Return the costs of the configurations measured for a shape, or for a range of `rows`, the latest of each;
        None for those that failed."""
        where = _place(workload, hardware, prepacked, epilogue, rows)
        query = sa.select(TRIALS.c.cut, TRIALS.c.cost).order_by(TRIALS.c.id)
        query = query.where(*(TRIALS.c[name] == value for name, value in where.items()))
        with self.database.store.read() as connection:
            return {Config.from_dict(plain_json(row.cut)): row.cost for row in connection.execute(query)}

    def add(self, measured: Measured) -> None:
        """Store one result."""
        self._waiting.append(measured)
        if time.monotonic() - self._written > FLUSH_SECONDS:
            self.flush()

    def decided(self, measured: Measured) -> None:
        """Record the cost of the analytical decision for a shape, which is stored with entries of that shape."""
        if measured.cost is None or measured.job.rows is not None:
            return
        subject = _subject(measured.job)
        self._decided[subject] = measured.cost
        if subject in self._best:
            entry = replace(self._best[subject], decided_cost=measured.cost)
            self.database.add_many([entry], target=measured.job.hardware)
            self._best[subject] = entry

    def keep(self, measured: Measured) -> None:
        """Make an entry of a result that is not a new trial."""
        self._write([], [measured])

    def entry(
        self, workload: Workload, hardware: Hardware, *, prepacked: bool = False, epilogue: str = ""
    ) -> Entry | None:
        """Return the entry of exactly this shape, or None."""
        found = self.database.matches(workload, target=hardware, epilogue=epilogue, prepacked=prepacked)
        return next((hit.entry for hit in found if hit.step == 1 and hit.entry.workload == workload), None)

    def range_entry(self, job: Job) -> Entry | None:
        """Return the entry of exactly the rows of a job, or None."""
        workload = job.workload
        if not isinstance(workload, GemmWorkload) or job.rows is None:
            return None
        about: dict[str, Any] = {"target": job.hardware, "epilogue": job.epilogue, "prepacked": job.prepacked}
        entry = self.database.match_rows(workload, job.rows, **about)
        return entry if entry is not None and entry.rows is not None and entry.rows.rows == job.rows else None

    def settle(self, costs: Sequence[tuple[Job, float]], *, decided: float, disturbed: float) -> Entry:
        """Make entries of the costs of configurations of one shape in one session, `decided` being that of the
        analytical decision. Each replaces an existing entry if it is cheaper. Return the entry of the last of
        `costs`."""
        for job, cost in costs:
            entry = Entry(
                workload=job.workload,
                config=job.config,
                cost=cost,
                epilogue=job.epilogue,
                prepacked=job.prepacked,
                decided_cost=decided,
                disturbed=disturbed,
            )
            self.database.add_many([entry], target=job.hardware)
            self._best[_subject(job)] = entry
        return entry

    def flush(self) -> None:
        """Write pending results in one transaction."""
        start = time.monotonic()
        if self._waiting:
            self._write([_row(measured) for measured in self._waiting], self._waiting)
            self._waiting = []
        self._written = time.monotonic()
        self.seconds += self._written - start

    def _write(self, rows: Sequence[dict[str, Any]], results: Sequence[Measured]) -> None:
        """Write trials, and entries of those `results` that are better than all before them, atomically."""
        better: dict[Subject, Entry] = {}
        for measured in results:
            if measured.job.rows is not None:  # the search decides when these become entries
                continue
            job, cost, subject = measured.job, measured.cost, _subject(measured.job)
            best = better.get(subject) or self._best.get(subject)
            if cost is not None and (best is None or cost < best.cost):
                better[subject] = Entry(
                    workload=job.workload,
                    config=job.config,
                    cost=cost,
                    energy_pj=measured.energy_pj,
                    epilogue=job.epilogue,
                    prepacked=job.prepacked,
                    decided_cost=self._decided.get(subject),
                )

        def write(connection: sa.Connection) -> None:
            if rows:
                connection.execute(TRIALS.insert(), list(rows))
            for hardware in {subject[0] for subject in better}:
                put_entries(connection, [own for subject, own in better.items() if subject[0] == hardware], hardware)

        self.database.store.write(write)
        self._best.update(better)

    def __enter__(self) -> TrialLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.flush()


def _subject(job: Job) -> Subject:
    return job.hardware, job.workload, job.prepacked, job.epilogue


@functools.lru_cache(maxsize=256)
def _place(
    workload: Workload, hardware: Hardware, prepacked: bool, epilogue: str, rows: Range | None
) -> dict[str, str]:
    return {
        "fingerprint": fingerprint_of(hardware).digest,
        "key": key_of(workload, epilogue=epilogue, prepacked=prepacked).digest,
        "shape": shape_of(workload, rows),
    }


def _row(measured: Measured) -> dict[str, Any]:
    job = measured.job
    return {
        **_place(job.workload, job.hardware, job.prepacked, job.epilogue, job.rows),
        "cut": compact(job.config.to_dict()),
        "cost": measured.cost,
        "spread": measured.spread,
        "reason": measured.reason,
    }
