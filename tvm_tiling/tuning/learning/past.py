"""Measurements of earlier sessions on a machine, of any shape, for a cost model to learn from."""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa

from ...decide.configs.config import Config
from ...hardware.description import Hardware
from ...plain_text import plain_json
from ...sizes import APART
from ..shapes.database import ShapeDatabase
from ..shapes.fingerprint import fingerprint_of
from ..shapes.key import ShapeKey, Workload
from ..shapes.schema import FINGERPRINTS, KEYS, TRIALS


@dataclass(frozen=True, kw_only=True)
class PastTrial:
    """A measured configuration with its cost in seconds, or cycles on an accelerator. `prepacked`: its weights were
    packed before timing; `epilogue` names the fused epilogue."""

    workload: Workload
    prepacked: bool
    epilogue: str
    config: Config
    cost: float


def past_trials(database: ShapeDatabase, hardware: Hardware, limit: int) -> list[PastTrial]:
    """Return the newest `limit` successful trials on a machine, newest first, of all shapes with an entry. Trials over
    ranges of rows are excluded."""
    query = (
        sa.select(KEYS.c.record, TRIALS.c.shape, TRIALS.c.cut, TRIALS.c.cost)
        .join(FINGERPRINTS, FINGERPRINTS.c.digest == TRIALS.c.fingerprint)
        .join(KEYS, sa.and_(KEYS.c.fingerprint_id == FINGERPRINTS.c.id, KEYS.c.digest == TRIALS.c.key))
        .where(TRIALS.c.fingerprint == fingerprint_of(hardware).digest, TRIALS.c.cost.is_not(None))
        .where(TRIALS.c.shape.not_like(f"%{APART}%"))
        .order_by(TRIALS.c.id.desc())
        .limit(limit)
    )
    with database.store.read() as connection:
        rows = connection.execute(query).all()
    keys = {record: ShapeKey.from_dict(plain_json(record)) for record in {row.record for row in rows}}
    shapes = {
        (row.record, row.shape): keys[row.record].workload([int(extent) for extent in row.shape.split("x")])
        for row in rows
    }
    return [
        PastTrial(
            workload=shapes[row.record, row.shape],
            prepacked=keys[row.record].prepacked,
            epilogue=keys[row.record].epilogue,
            config=Config.from_dict(plain_json(row.cut)),
            cost=row.cost,
        )
        for row in rows
    ]
