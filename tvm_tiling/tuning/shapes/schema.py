"""The tables of a database of shapes, their version, and the migrations from older versions."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import sqlalchemy as sa

from .key import MOST_AXES

SCHEMA = 7
RANGE = "range"  # the kind of an entry for a range of numbers of rows
KINDS = ("initial", "boundary", RANGE)

METADATA = sa.MetaData()
_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")  # SQLite auto-increments only this type

ABOUT = sa.Table(
    "tvm_tiling_about",
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("schema", sa.Integer, nullable=False),
)

FINGERPRINTS = sa.Table(
    "fingerprints",
    METADATA,
    sa.Column("id", _ID, primary_key=True),
    sa.Column("digest", sa.String(16), nullable=False, unique=True),
    sa.Column("record", sa.Text, nullable=False),
)

# What operators on one machine have in common, and how it pads them.
KEYS = sa.Table(
    "shape_keys",
    METADATA,
    sa.Column("id", _ID, primary_key=True),
    sa.Column("fingerprint_id", sa.ForeignKey("fingerprints.id"), nullable=False),
    sa.Column("digest", sa.String(32), nullable=False),
    sa.Column("record", sa.Text, nullable=False),
    sa.Column("padding", sa.Text, nullable=False),
    sa.UniqueConstraint("fingerprint_id", "digest"),
)

# `shape` is the extents as text, and `e0`, `e1`, ... as numbers; `a0`, `a1`, ... are the same in the units that the
# machine pads to; `rate` is cost per unit, so that the lowest rate is the lowest estimate for any shape. `decided_cost`
# is the cost of the analytical configuration; `disturbed`, where both were timed in one session, the share of that time
# that other processes disturbed. `proportional` lists axes separated by spaces. `measured_rows` belongs to entries of a
# range of rows: its ends, the measured sizes and the speedups at them; their other figures are means, and their axes
# hold the smallest number of rows.
ENTRIES = sa.Table(
    "entries",
    METADATA,
    sa.Column("id", _ID, primary_key=True),
    sa.Column("key_id", sa.ForeignKey("shape_keys.id"), nullable=False),
    sa.Column("kind", sa.String(8), nullable=False),
    sa.Column("shape", sa.String(128), nullable=False),
    *(sa.Column(f"a{axis}", sa.BigInteger, nullable=False) for axis in range(MOST_AXES)),
    sa.Column("rate", sa.Double, nullable=False),
    sa.Column("cost", sa.Double, nullable=False),
    sa.Column("energy_pj", sa.Double),
    sa.Column("cut", sa.Text, nullable=False),
    sa.Column("proportional", sa.String(32), nullable=False, server_default=""),
    sa.Column("decided_cost", sa.Double),
    sa.Column("disturbed", sa.Double),
    *(sa.Column(f"e{axis}", sa.BigInteger, nullable=False, server_default="1") for axis in range(MOST_AXES)),
    sa.Column("measured_rows", sa.Text),
    sa.UniqueConstraint("key_id", "kind", "shape"),
)
sa.Index("entries_by_axes", *(ENTRIES.c[name] for name in ("key_id", "kind", "a0", "a1", "a2", "a3", "rate")))

sa.Index("entries_by_extents", *(ENTRIES.c[name] for name in ("key_id", "kind", "e0", "e1", "e2", "e3", "rate")))

# The shapes that a generation is to measure, one row each. `plan` is the digest of all shapes and settings, so that the
# same generation continues where it was interrupted.
JOBS = sa.Table(
    "generation_jobs",
    METADATA,
    sa.Column("id", _ID, primary_key=True),
    sa.Column("plan", sa.String(32), nullable=False),
    sa.Column("number", sa.Integer, nullable=False),
    sa.Column("workload", sa.Text, nullable=False),
    sa.Column("state", sa.String(8), nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("boundary", sa.Integer, nullable=False),
    sa.UniqueConstraint("plan", "number"),
)

# Measurements of unfinished jobs, so that they need not be repeated.
MEASUREMENTS = sa.Table(
    "generation_measurements",
    METADATA,
    sa.Column("id", _ID, primary_key=True),
    sa.Column("job_id", sa.ForeignKey("generation_jobs.id"), nullable=False, index=True),
    sa.Column("shape", sa.String(128), nullable=False),
    sa.Column("cut", sa.Text, nullable=False),
    sa.Column("cost", sa.Double),
    sa.Column("energy_pj", sa.Double),
    sa.Column("reason", sa.Text, nullable=False),
)

# Every configuration that a search measured, including failures, so that an interrupted search continues.
TRIALS = sa.Table(
    "trials",
    METADATA,
    sa.Column("id", _ID, primary_key=True),
    sa.Column("fingerprint", sa.String(16), nullable=False),
    sa.Column("key", sa.String(32), nullable=False),
    sa.Column("shape", sa.String(128), nullable=False),
    sa.Column("cut", sa.Text, nullable=False),
    sa.Column("cost", sa.Double),
    sa.Column("spread", sa.Double, nullable=False),
    sa.Column("reason", sa.Text),
)
sa.Index("trials_by_shape", TRIALS.c.fingerprint, TRIALS.c.key, TRIALS.c.shape)

Migration = Callable[[sa.Connection], None]


def _add_generation(connection: sa.Connection) -> None:
    """Migrate to schema 2, which stores unfinished generations."""
    METADATA.create_all(connection, tables=[JOBS, MEASUREMENTS])


def _add_proportional(connection: sa.Connection) -> None:
    """Migrate to schema 3, which stores the axes along which an entry's cost was observed to be proportional."""
    connection.execute(sa.text("ALTER TABLE entries ADD COLUMN proportional VARCHAR(32) NOT NULL DEFAULT ''"))


def _add_trials(connection: sa.Connection) -> None:
    """Migrate to schema 4, which stores trials. Earlier searches created this table themselves; an existing one is
    kept."""
    METADATA.create_all(connection, tables=[TRIALS])


def _add_extents(connection: sa.Connection) -> None:
    """Migrate to schema 5, which stores extents as numbers, to find shapes that are multiples in elements and not in
    padded units, and the cost of the analytical decision."""
    connection.execute(sa.text("ALTER TABLE entries ADD COLUMN decided_cost DOUBLE PRECISION"))
    extents = [f"e{axis}" for axis in range(MOST_AXES)]
    for name in extents:
        connection.execute(sa.text(f"ALTER TABLE entries ADD COLUMN {name} BIGINT NOT NULL DEFAULT 1"))
    change = ENTRIES.update().where(ENTRIES.c.id == sa.bindparam("row"))
    change = change.values({name: sa.bindparam(f"new_{name}") for name in extents})
    rows = connection.execute(sa.select(ENTRIES.c.id, ENTRIES.c.shape)).all()
    changes = []
    for row in rows:
        parts = str(row.shape).split("x")
        if len(parts) > MOST_AXES or not all(part.isdecimal() and len(part) < 17 for part in parts):
            continue  # `db check` reports it
        known = dict(zip(extents, map(int, parts), strict=False))
        changes.append({"row": row.id, **{f"new_{name}": known.get(name, 1) for name in extents}})
    if changes:
        connection.execute(change, changes)
    by_extents = next(index for index in ENTRIES.indexes if index.name == "entries_by_extents")
    by_extents.create(connection)


def _add_disturbed(connection: sa.Connection) -> None:
    """Migrate to schema 6, which stores how much other work disturbed the comparison of an entry with the decision."""
    connection.execute(sa.text("ALTER TABLE entries ADD COLUMN disturbed DOUBLE PRECISION"))


def _add_ranges(connection: sa.Connection) -> None:
    """Migrate to schema 7, which stores entries for ranges of rows."""
    connection.execute(sa.text("ALTER TABLE entries ADD COLUMN measured_rows TEXT"))


# From one schema to the next. Each runs in one transaction with the update of the version.
MIGRATIONS: Mapping[int, Migration] = {
    1: _add_generation,
    2: _add_proportional,
    3: _add_trials,
    4: _add_extents,
    5: _add_disturbed,
    6: _add_ranges,
}
