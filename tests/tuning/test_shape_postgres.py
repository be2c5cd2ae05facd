"""The same database on a real PostgreSQL server, which the test starts."""

from __future__ import annotations

import random

import pytest
import sqlalchemy as sa
from kills import check_writers, finish_generation, kill_adders, kill_generation
from postgres_server import server
from shapes import CPU, PLAIN, VTA, config, conv, gemm

from tvm_tiling.errors import DatabaseError
from tvm_tiling.tuning.shapes.database import ShapeDatabase
from tvm_tiling.tuning.shapes.entries import Entry


@pytest.fixture(scope="module")
def postgres():
    with server() as url:
        yield url


@pytest.fixture
def url(postgres):
    """An empty database of its own."""
    name = f"t{random.getrandbits(48):x}"
    engine = sa.create_engine(postgres, isolation_level="AUTOCOMMIT", connect_args={"client_encoding": "utf8"})
    with engine.connect() as connection:
        connection.execute(sa.text(f"CREATE DATABASE {name}"))
    yield postgres.replace("/postgres?", f"/{name}?")
    with engine.connect() as connection:
        connection.execute(sa.text(f"DROP DATABASE {name} WITH (FORCE)"))
    engine.dispose()


def test_steps_ties_and_estimates_are_those_of_sqlite(url):
    rng = random.Random(5)
    sizes = (1, 2, 4, 8, 12, 16, 24, 48)
    with ShapeDatabase(url) as db, ShapeDatabase("sqlite://") as sqlite:
        for target in (PLAIN, VTA):
            entries = [
                Entry(
                    workload=gemm(*(rng.choice(sizes) for _ in range(3))),
                    config=config(rng.randint(1, 9)),
                    cost=rng.randint(1, 10**6),
                    kind=rng.choice(("initial", "boundary")),
                )
                for _ in range(120)
            ]
            for own in (db, sqlite):
                own.add_many(entries, target=target)
        steps = set()
        for _ in range(30):
            wanted = gemm(*(rng.choice(sizes) * rng.randint(1, 3) for _ in range(3)))
            for order in ("steps", "estimate"):
                for target in (PLAIN, VTA):
                    hits = [own.matches(wanted, target=target, order=order, limit=20) for own in (db, sqlite)]
                    assert hits[0] == hits[1]
                    steps |= {hit.step for hit in hits[0]}
            assert db.nearest(wanted, target=PLAIN)[:1] != [] and len(db.nearest(wanted, target=PLAIN)) == 4
        assert steps == {1, 2, 3, 4}
        assert db.check().ok and db.check().entries == sqlite.check().entries


def test_estimates_from_neighbours_are_those_of_sqlite(url):
    shapes = [gemm(m, 64, k) for m in (32, 96) for k in (64, 160)]
    with ShapeDatabase(url) as db, ShapeDatabase("sqlite://") as sqlite:
        for own in (db, sqlite):
            own.generate(target=VTA, shapes=shapes, limit=1, candidates=1, threshold=None)
        for wanted in (gemm(50, 70, 30), gemm(192, 128, 64), gemm(32, 64, 64)):
            found = db.estimate(wanted, target=VTA)
            assert found is not None and found == sqlite.estimate(wanted, target=VTA)


def test_export_and_import_between_both(url, tmp_path):
    with ShapeDatabase(url) as db, ShapeDatabase("sqlite://") as sqlite:
        db.add(gemm(64, 64, 64), config(), 100, target=PLAIN)
        db.add(conv(14, 32, 32), config(op="conv"), 1.5e-6, target=CPU, kind="boundary", epilogue="relu")
        assert db.export(tmp_path / "x.jsonl") == 2 and sqlite.import_(tmp_path / "x.jsonl") == 2
        assert sorted(map(str, sqlite.entries())) == sorted(map(str, db.entries()))
        assert db.import_(tmp_path / "x.jsonl") == 2 and db.check().entries == 2
        assert [(held.initial, held.boundary) for held in db.holdings()] == [(1, 0), (0, 1)]


def test_a_newer_schema_is_refused(url):
    ShapeDatabase(url).close()
    engine = sa.create_engine(url, connect_args={"client_encoding": "utf8"})
    with engine.begin() as connection:
        connection.execute(sa.text("UPDATE tvm_tiling_about SET schema = 99"))
    engine.dispose()
    with pytest.raises(DatabaseError, match="schema 99, written by a newer tvm-tiling"):
        ShapeDatabase(url)


def test_a_server_that_does_not_answer(url):
    with pytest.raises(DatabaseError) as error:
        ShapeDatabase("postgresql://me:secret@/postgres?host=/nowhere/at/all")
    assert "secret" not in str(error.value) and "\n" not in str(error.value)


def test_four_writers_at_once_lose_nothing_on_a_server(url):
    check_writers(url, 4, 40)


def test_killed_writers_and_generations_on_a_server(url):
    kill_adders(url, 3, seed=3)
    kill_generation(url, 3, seed=4)
    finish_generation(url)
