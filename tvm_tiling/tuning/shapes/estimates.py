"""Estimated costs of shapes that were never measured, with their uncertainty, from measurements of others.

The nearest measured costs of the same operator and types on the machine, multiples or not, correct the analytical
prediction for the shape (:mod:`tvm_tiling.tuning.shapes.correction`). Both costs of an entry are used: that of its own
configuration, and that of the analytical decision for its shape.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator

import sqlalchemy as sa

from ...decide.configs.config import Config
from ...errors import TilingError
from ...hardware.description import Hardware
from ...plain_text import plain_json
from .choice import decision_for, predicted_cost
from .correction import Correction, Known
from .entries import EXTENTS, Entry, entry_of
from .estimate import Basis, Estimate, interval
from .fingerprint import fingerprint_of
from .key import ShapeKey, Workload, extents_of, key_of
from .matching import LAST_OF_SAME, Hit
from .nearness import comparable
from .schema import ENTRIES, FINGERPRINTS, KEYS, RANGE
from .store import Store

MOST_KNOWN = 96  # most entries that an estimate is based on


class Estimates:
    """Computes the estimates of one database, and caches the predictions for its entries."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[tuple[str, Entry], list[Known]] = {}
        self._latest: tuple[list[Known], Correction] | None = None

    def of_hit(self, hit: Hit, workload: Workload, hardware: Hardware) -> Estimate | None:
        """Return the estimate for the entry's configuration; None if the machine does not support it."""
        config = hit.choice.config if hit.choice is not None else None
        if config is None:
            return None
        entry = hit.entry
        key = key_of(entry.workload, epilogue=entry.epilogue, prepacked=entry.prepacked)
        correction = self._correction(hardware, key, workload)
        if correction is None:  # there is no prediction, not even for the entry itself
            return None
        predicted = predicted_cost(config, workload, hardware, prepacked=key.prepacked)
        cost, spread = correction.at(workload, config, predicted)
        if hit.proportional:
            # If the scaled cost and the estimate from the others differ, either may be right: widen the interval.
            cost, spread = hit.scaled, math.hypot(spread, math.log(cost / hit.scaled))
        basis: Basis = "entry" if hit.step <= LAST_OF_SAME else "multiple"
        return Estimate(cost=cost, interval=interval(cost, spread), config=config, basis=basis, known=correction.known)

    def of_decision(self, workload: Workload, hardware: Hardware, key: ShapeKey) -> Estimate | None:
        """Return the estimate for the analytical decision; None if nothing of the operator was measured."""
        correction = self._correction(hardware, key, workload)
        if correction is None:
            return None
        config = decision_for(workload, hardware, prepacked=key.prepacked)
        predicted = predicted_cost(config, workload, hardware, prepacked=key.prepacked)
        cost, spread = correction.at(workload, config, predicted)
        return Estimate(
            cost=cost, interval=interval(cost, spread), config=config, basis="neighbours", known=correction.known
        )

    def _correction(self, hardware: Hardware, key: ShapeKey, workload: Workload) -> Correction | None:
        known = [one for entry in self._nearest(hardware, key, workload) for one in self._costs(entry, hardware)]
        if not known:
            return None
        if self._latest is None or self._latest[0] != known:
            self._latest = known, Correction(known, processor=hardware.cpu is not None)
        return self._latest[1]

    def _nearest(self, hardware: Hardware, key: ShapeKey, workload: Workload) -> list[Entry]:
        """Return the entries of the operator in the same types that are nearest by the ratios of their axes."""
        query = sa.select(KEYS.c.id, KEYS.c.record).join(FINGERPRINTS)
        query = query.where(FINGERPRINTS.c.digest == fingerprint_of(hardware).digest)
        with self._store.read() as connection:
            keys = {row.id: ShapeKey.from_dict(plain_json(row.record)) for row in connection.execute(query)}
            alike = {number: own for number, own in keys.items() if comparable(own) == comparable(key)}
            if not alike:
                return []
            away: sa.ColumnElement[float] = sa.literal(0.0)
            for column, extent in zip(EXTENTS, extents_of(workload), strict=False):
                away = away + sa.func.abs(column - extent) * 1.0 / (column + extent)
            # Entries with other kernels and strides rank after equally near entries of the same key.
            same = [number for number, own in alike.items() if own == key]
            away = away + sa.case((ENTRIES.c.key_id.in_(same), 0.0), else_=1.0)
            found = sa.select(ENTRIES).where(ENTRIES.c.key_id.in_(list(alike)), ENTRIES.c.kind != RANGE)
            rows = connection.execute(found.order_by(away, ENTRIES.c.id).limit(MOST_KNOWN)).all()
        return sorted((entry_of(row, alike[row.key_id]) for row in rows), key=lambda entry: str(entry.workload))

    def _costs(self, entry: Entry, hardware: Hardware) -> list[Known]:
        """Return both costs of an entry with their predictions, if available."""
        asked = fingerprint_of(hardware).digest, entry
        if asked not in self._known:
            self._known[asked] = list(_known_of(entry, hardware))
        return self._known[asked]


def _known_of(entry: Entry, hardware: Hardware) -> Iterator[Known]:
    def known(config: Config, cost: float) -> Known:
        predicted = predicted_cost(config, entry.workload, hardware, prepacked=entry.prepacked)
        return Known(entry.workload, config, predicted, cost)

    with contextlib.suppress(TilingError):
        yield known(entry.config, entry.cost)
    if entry.decided_cost is not None:
        with contextlib.suppress(TilingError):
            decision = decision_for(entry.workload, hardware, prepacked=entry.prepacked)
            if decision != entry.config:
                yield known(decision, entry.decided_cost)
