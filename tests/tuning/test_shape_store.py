"""Opening databases: new, older, newer, corrupted, foreign, read-only; and which stay unmodified."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys

import pytest
import sqlalchemy as sa
from shapes import PLAIN, VTA, config, gemm

from tvm_tiling.errors import DatabaseError
from tvm_tiling.tuning.measuring.measurer import Job, Measured
from tvm_tiling.tuning.shapes import schema, store
from tvm_tiling.tuning.shapes.database import ShapeDatabase
from tvm_tiling.tuning.shapes.trials import TrialLog


def made(path):
    with ShapeDatabase(path) as db:
        db.add(gemm(64, 64, 64), config(), 100, target=PLAIN)
    return path


def refused(path, **options):
    """The message with which a file is refused, which must stay unmodified."""
    before = path.read_bytes()
    with pytest.raises(DatabaseError) as error:
        ShapeDatabase(path, **options)
    assert path.read_bytes() == before
    assert str(error.value).count("\n") == 0
    return str(error.value)


def test_urls_and_paths(tmp_path):
    made(tmp_path / "x.db")
    for url in (f"sqlite:///{tmp_path}/x.db", str(tmp_path / "x.db"), tmp_path / "x.db"):
        with ShapeDatabase(url) as db:
            assert db.match(gemm(64, 64, 64), target=PLAIN).entry.cost == 100


def test_an_empty_file_becomes_a_database(tmp_path):
    (tmp_path / "x.db").touch()
    made(tmp_path / "x.db")
    with ShapeDatabase(tmp_path / "x.db") as db:
        assert db.match(gemm(64, 64, 64), target=PLAIN).entry.cost == 100


def test_in_memory():
    with ShapeDatabase("sqlite://") as db:
        db.add(gemm(64, 64, 64), config(), 100, target=PLAIN)
        assert db.match(gemm(64, 64, 128), target=PLAIN).estimate == 200


@pytest.mark.parametrize("url", ["mysql://host/name", "://", "sqlite3:///x.db", "postgresql+nothing://x/y"])
def test_urls_of_something_else(url):
    with pytest.raises(DatabaseError, match=r"expected|nothing"):
        ShapeDatabase(url)


def test_no_password_in_names_and_errors(monkeypatch):
    with pytest.raises(DatabaseError) as error:
        ShapeDatabase("postgresql+psycopg://me:secret@127.0.0.1:1/none")
    assert "secret" not in str(error.value) and "127.0.0.1" in str(error.value)


def test_a_corrupted_file(tmp_path):
    path = tmp_path / "x.db"
    path.write_bytes(b"this is no database at all, but it is long enough to be one" * 100)
    assert "is corrupted or not a SQLite database" in refused(path)


def test_a_file_whose_pages_are_corrupted_is_found_by_check_or_refused(tmp_path):
    path = made(tmp_path / "x.db")
    with ShapeDatabase(path) as db:
        db.add_many((entry for _, entry in list(db.entries())), target=PLAIN)
    content = bytearray(path.read_bytes())
    size = len(content)
    content[size // 2 : size // 2 + 4096] = os.urandom(4096)
    path.write_bytes(bytes(content))
    try:
        with ShapeDatabase(path) as db:
            assert not db.check().ok
    except DatabaseError as error:
        assert "corrupted" in str(error)


def test_a_database_of_something_else(tmp_path):
    path = tmp_path / "x.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE films (title TEXT)")
    connection.close()
    assert "contains other tables, films" in refused(path)


def test_a_newer_schema(tmp_path):
    path = made(tmp_path / "x.db")
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE tvm_tiling_about SET schema = 99")
    connection.close()
    message = refused(path)
    assert "schema 99, written by a newer tvm-tiling" in message and f"up to {schema.SCHEMA}" in message


def test_a_schema_that_is_none(tmp_path):
    path = made(tmp_path / "x.db")
    with sqlite3.connect(path) as connection:
        connection.execute("DELETE FROM tvm_tiling_about")
    connection.close()
    assert "is corrupted: schema None" in refused(path)


def test_what_is_not_there_where_nothing_is_to_be_made(tmp_path):
    with pytest.raises(DatabaseError, match="does not exist"):
        ShapeDatabase(tmp_path / "x.db", create=False)
    assert not list(tmp_path.iterdir())
    (tmp_path / "y.db").touch()
    assert "contains no shapes" in refused(tmp_path / "y.db", create=False)


def test_places_where_no_file_can_be(tmp_path):
    (tmp_path / "file").write_text("a file")
    for place in (tmp_path, tmp_path / "no folder" / "x.db", tmp_path / "file" / "x.db"):
        with pytest.raises(DatabaseError, match=r"cannot be written|is a directory; expected the file"):
            ShapeDatabase(place)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_file_that_may_not_be_written(tmp_path):
    path = made(tmp_path / "x.db")
    path.chmod(0o444)
    if os.access(path, os.W_OK):
        pytest.skip("this user may write to everything")
    assert "cannot be written" in refused(path)


def test_an_older_schema_is_brought_up_in_one_transaction(tmp_path, monkeypatch):
    path = made(tmp_path / "x.db")
    steps = []

    def first(connection):
        steps.append(1)
        connection.execute(sa.text("ALTER TABLE entries ADD COLUMN note TEXT"))

    def second(connection):
        steps.append(2)
        connection.execute(sa.text("UPDATE entries SET note = 'kept'"))

    now = schema.SCHEMA
    monkeypatch.setattr(store, "SCHEMA", now + 2)
    monkeypatch.setattr(store, "MIGRATIONS", {**schema.MIGRATIONS, now: first, now + 1: second})
    with ShapeDatabase(path) as db:
        assert db.match(gemm(64, 64, 64), target=PLAIN).entry.cost == 100
    assert steps == [1, 2]
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT note FROM entries").fetchall() == [("kept",)]
        assert connection.execute("SELECT schema FROM tvm_tiling_about").fetchall() == [(now + 2,)]
    connection.close()


def test_a_migration_that_fails_leaves_the_older_schema(tmp_path, monkeypatch):
    path = made(tmp_path / "x.db")
    now = schema.SCHEMA

    def breaks(connection):
        connection.execute(sa.text("ALTER TABLE entries ADD COLUMN note TEXT"))
        connection.execute(sa.text("SELECT 1 FROM nowhere"))

    monkeypatch.setattr(store, "SCHEMA", now + 1)
    monkeypatch.setattr(store, "MIGRATIONS", {**schema.MIGRATIONS, now: breaks})
    with pytest.raises(DatabaseError, match="nowhere"):
        ShapeDatabase(path)
    monkeypatch.undo()
    with sqlite3.connect(path) as connection:
        columns = [row[1] for row in connection.execute("PRAGMA table_info(entries)")]
        assert "note" not in columns
        assert connection.execute("SELECT schema FROM tvm_tiling_about").fetchall() == [(now,)]
    connection.close()
    with ShapeDatabase(path) as db:
        assert db.check().ok


def without_schema_7(connection):
    connection.execute("ALTER TABLE entries DROP COLUMN measured_rows")


def without_schema_6(connection):
    without_schema_7(connection)
    connection.execute("ALTER TABLE entries DROP COLUMN disturbed")


def without_schema_5(connection):
    without_schema_6(connection)
    connection.execute("DROP INDEX entries_by_extents")
    for name in ("decided_cost", *(f"e{axis}" for axis in range(6))):
        connection.execute(f"ALTER TABLE entries DROP COLUMN {name}")


def test_schema_1_is_brought_up(tmp_path):
    """It contained no generations and trials, nor the axes along which costs are proportional."""
    path = made(tmp_path / "x.db")
    with sqlite3.connect(path) as connection:
        connection.execute("DROP TABLE trials")
        connection.execute("DROP TABLE generation_measurements")
        connection.execute("DROP TABLE generation_jobs")
        connection.execute("ALTER TABLE entries DROP COLUMN proportional")
        without_schema_5(connection)
        connection.execute("UPDATE tvm_tiling_about SET schema = 1")
    connection.close()
    with ShapeDatabase(path) as db:
        assert db.match(gemm(64, 64, 64), target=PLAIN).entry.cost == 100
        assert db.generate(target=VTA, shapes=[]).shapes == 0 and db.check().ok


@pytest.mark.parametrize("tuned", [False, True])
def test_schema_3_is_brought_up(tmp_path, tuned):
    """Its trials were in a table of the first search, or missing."""
    shape, path = gemm(64, 64, 64), made(tmp_path / "x.db")
    trial = Measured(job=Job(workload=shape, config=config(), hardware=PLAIN), cost=100.0)
    with ShapeDatabase(path) as db, TrialLog(db) as log:
        log.add(trial)
    with sqlite3.connect(path) as connection:
        if not tuned:
            connection.execute("DROP TABLE trials")
        without_schema_5(connection)
        connection.execute("UPDATE tvm_tiling_about SET schema = 3")
    connection.close()
    with ShapeDatabase(path) as db, TrialLog(db) as log:
        assert log.past(shape, PLAIN) == ({config(): 100.0} if tuned else {})
        log.add(trial)
    with ShapeDatabase(path) as db:
        assert TrialLog(db).past(shape, PLAIN) == {config(): 100.0} and db.check().ok
    with sqlite3.connect(path) as connection:
        indices = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'index'")}
    connection.close()
    assert "trials_by_shape" in indices


def test_schema_5_is_brought_up(tmp_path):
    """It did not record how much other processes disturbed the session of an entry's costs."""
    path = made(tmp_path / "x.db")
    with sqlite3.connect(path) as connection:
        without_schema_6(connection)
        connection.execute("UPDATE tvm_tiling_about SET schema = 5")
    connection.close()
    shape = gemm(64, 64, 64)
    with ShapeDatabase(path) as db, TrialLog(db) as log:
        old = log.entry(shape, PLAIN)
        assert (old.cost, old.disturbed, old.doubtful) == (100, None, False)
        job = Job(workload=shape, config=config(), hardware=PLAIN)
        kept = log.settle([(job, 90.0)], decided=99.0, disturbed=0.75)
        assert log.entry(shape, PLAIN) == kept and kept.doubtful and db.check().ok


def test_corrupted_trials_are_found(tmp_path):
    path = made(tmp_path / "x.db")
    good = Measured(job=Job(workload=gemm(64, 64, 64), config=config(), hardware=PLAIN), reason="it did not run")
    with ShapeDatabase(path) as db, TrialLog(db) as log:
        log.add(good)
        log.add(good)
        log.flush()
        assert db.check().ok
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE trials SET cut = 'no configuration' WHERE id = 1")
        connection.execute("UPDATE trials SET cost = -1 WHERE id = 2")
    connection.close()
    with ShapeDatabase(path) as db:
        first, second = db.check().problems
    assert first.startswith("trial 1: config") and second.startswith("trial 2: cost = -1.0; expected")


def test_every_older_schema_has_a_migration():
    assert set(schema.MIGRATIONS) == set(range(1, schema.SCHEMA))


def test_a_writer_that_another_one_holds_up(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "WAIT", 0.05)
    monkeypatch.setattr(store, "TRIES", 2)
    path = made(tmp_path / "x.db")
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with ShapeDatabase(path) as db:
        with pytest.raises(DatabaseError, match="locked by another process"):
            db.add(gemm(8, 8, 8), config(), 1, target=PLAIN)
        assert db.match(gemm(64, 64, 64), target=PLAIN)  # readers wait for no writer
        holder.execute("ROLLBACK")
        db.add(gemm(8, 8, 8), config(), 1, target=PLAIN)
        assert db.check().entries == 2
    holder.close()


def test_a_process_that_is_forked_has_connections_of_its_own(tmp_path):
    path = made(tmp_path / "x.db")
    with ShapeDatabase(path) as db:
        assert db.match(gemm(64, 64, 64), target=PLAIN)
        child = os.fork()
        if not child:
            try:
                db.add(gemm(32, 32, 32), config(), 5, target=PLAIN)
                os._exit(0)
            except BaseException:
                os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        assert db.match(gemm(32, 32, 32), target=PLAIN).entry.cost == 5
        assert db.check().ok


def test_the_database_needs_no_tvm():
    code = (
        "import sys, tvm_tiling as tt\n"
        "db = tt.ShapeDatabase('sqlite://')\n"
        "w, hw = tt.GemmWorkload(m=8, n=8, k=8, dtype='int8'), 'vsim/vta'\n"
        "from tvm_tiling.decide.configs.config import Config\n"
        "db.add(w, Config.of('gemm', 'matrix', {'tile_m': 8}), 5, target=hw)\n"
        "assert db.match(w, target=hw).step == 1 and db.check().ok\n"
        "assert not {'tvm', 'tvm_ffi'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")


def test_schema_6_is_brought_up(tmp_path):
    """It had no entries of ranges."""
    path = made(tmp_path / "x.db")
    with sqlite3.connect(path) as connection:
        without_schema_7(connection)
        connection.execute("UPDATE tvm_tiling_about SET schema = 6")
    connection.close()
    with ShapeDatabase(path) as db:
        assert db.match(gemm(64, 64, 64), target=PLAIN).entry.cost == 100
        assert db.holdings()[0].ranges == 0 and db.check().ok
