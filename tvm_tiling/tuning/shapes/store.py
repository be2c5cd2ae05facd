"""The connection to a database, SQLite in a file or PostgreSQL: opening, transactions, and errors as one sentence.

SQLite uses a write-ahead log, waits for other writers, and takes the write lock at the start of a transaction, so that
several processes can write at once and a killed one leaves all committed data intact.
"""

from __future__ import annotations

import contextlib
import os
import random
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import URL, make_url

from ...atomic_file import refuse_unwritable
from ...errors import DatabaseError
from ...plain_text import TextError
from .schema import ABOUT, METADATA, MIGRATIONS, SCHEMA

WAIT = 30.0  # seconds for another writer
TRIES = 6
_LOCK = 7_316_001  # PostgreSQL's id of the lock held while tables are created
_AGAIN = ("40001", "40P01")  # PostgreSQL's states of a transaction that lost to another one and may be retried
_T = TypeVar("_T")


class Store:
    """An open database of shapes: created if it does not exist, migrated to the current schema if it is older.

    url: "sqlite:///file", the path of a file, or "postgresql+psycopg://user@host/name". With `create` False, the
    database must exist. DatabaseError if it cannot be opened, is corrupted, contains something else or is newer; it is
    then left unchanged.
    """

    def __init__(self, url: str | os.PathLike[str], *, create: bool = True) -> None:
        self.url = _parsed(url)
        self.sqlite = self.url.get_backend_name() == "sqlite"
        self.name = self.url.render_as_string(hide_password=True)
        if self.sqlite and self.url.database not in (None, "", ":memory:"):
            _refuse_place(Path(str(self.url.database)), create)
        self._process = os.getpid()
        with self._errors():
            self._engine = self._make_engine()
            self._retry(lambda: self._prepare(create))

    # ---- transactions ------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def read(self) -> Iterator[sa.Connection]:
        """A read-only transaction, which sees a consistent snapshot."""
        with self._errors(), self._own_engine().connect() as connection, connection.begin():
            yield connection

    def write(self, action: Callable[[sa.Connection], _T]) -> _T:
        """Run `action` in one transaction, retried if another writer had precedence. Returns once committed."""

        def once() -> _T:
            with self._own_engine().connect().execution_options(writes=True) as connection, connection.begin():
                return action(connection)

        with self._errors():
            return self._retry(once)

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()

    def _own_engine(self) -> sa.Engine:
        if os.getpid() != self._process:  # a connection must not be shared with the parent process
            self._engine.dispose(close=False)
            self._process = os.getpid()
        return self._engine

    @staticmethod
    def _retry(action: Callable[[], _T]) -> _T:
        for attempt in range(TRIES):
            try:
                return action()
            except sa.exc.DBAPIError as error:
                if attempt == TRIES - 1 or not _passing(error):
                    raise
                time.sleep(random.uniform(0.01, 0.05) * 2**attempt)
        raise AssertionError("not reached")

    # ---- opening -----------------------------------------------------------------------------------------------------

    def _make_engine(self) -> sa.Engine:
        try:
            if not self.sqlite:
                # A database without an encoding (SQL_ASCII) returns bytes unless the client requests text.
                return sa.create_engine(self.url, connect_args={"connect_timeout": 10, "client_encoding": "utf8"})
            engine = sa.create_engine(self.url, connect_args={"timeout": WAIT})
        except ModuleNotFoundError as error:
            raise DatabaseError(
                f"{self.name} needs the package {error.name!r}; use pip install 'tvm-tiling[postgres]', or "
                "sqlite:///file"
            ) from None

        @sa.event.listens_for(engine, "connect")
        def _connected(connection: sqlite3.Connection, _: Any) -> None:
            connection.isolation_level = None  # transactions begin as below, not when the driver decides
            connection.execute("PRAGMA foreign_keys = ON")
            connection.execute("PRAGMA synchronous = FULL")

        @sa.event.listens_for(engine, "begin")
        def _begun(connection: sa.Connection) -> None:
            writes = connection.get_execution_options().get("writes", False)
            connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

        return engine

    def _prepare(self, create: bool) -> None:
        """Create or migrate the tables to the current schema. What exists is checked before anything is changed."""
        with self._engine.connect() as connection, connection.begin():
            found = self._schema(connection)
        if found == SCHEMA:
            return
        if found is None and not create:
            raise DatabaseError(f"{self.name} contains no shapes; expected a database written by tvm-tiling")
        if found is None and self.sqlite:
            with self._engine.connect() as connection:
                driver: Any = connection.connection.driver_connection
                driver.execute("PRAGMA journal_mode = WAL")
        with self._engine.connect().execution_options(writes=True) as connection, connection.begin():
            if not self.sqlite:
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
            self._bring_up(connection)

    def _bring_up(self, connection: sa.Connection) -> None:
        found = self._schema(connection)  # another process may have been first
        if found is None:
            METADATA.create_all(connection)
            connection.execute(ABOUT.insert().values(id=1, schema=SCHEMA))
            return
        for version in range(found, SCHEMA):
            MIGRATIONS[version](connection)
        connection.execute(ABOUT.update().values(schema=SCHEMA))

    def _schema(self, connection: sa.Connection) -> int | None:
        """Return the version of the tables, or None if there are none."""
        tables = set(sa.inspect(connection).get_table_names())
        if ABOUT.name not in tables:
            if tables and self.sqlite:
                raise DatabaseError(
                    f"{self.name} contains other tables, {', '.join(sorted(tables)[:4])}; expected a "
                    "database of shapes, or a new file"
                )
            if shared := tables & set(METADATA.tables):
                raise DatabaseError(
                    f"{self.name} has tables {', '.join(sorted(shared))} of another application; expected a "
                    "database without them"
                )
            return None
        version = connection.execute(sa.select(ABOUT.c.schema)).scalar_one_or_none()
        if not isinstance(version, int) or version < 1:
            raise DatabaseError(f"{self.name} is corrupted: schema {version!r}; expected 1 to {SCHEMA}")
        if version > SCHEMA:
            raise DatabaseError(
                f"{self.name} has schema {version}, written by a newer tvm-tiling; expected schemas up to {SCHEMA}, "
                "or a newer tvm-tiling"
            )
        return version

    # ---- errors ------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """Convert driver errors to a DatabaseError of one sentence."""
        try:
            yield
        except sa.exc.DBAPIError as error:
            raise DatabaseError(self._sentence(str(error.orig).strip())) from None
        except sqlite3.Error as error:
            raise DatabaseError(self._sentence(str(error))) from None
        except sa.exc.SQLAlchemyError as error:
            raise DatabaseError(self._sentence(str(error))) from None
        except (
            UnicodeError,
            OverflowError,
            TextError,
        ) as error:  # SQLite does not enforce column types
            raise DatabaseError(f"{self.name} is corrupted: {error}; expected a file written by tvm-tiling") from None

    def _sentence(self, reason: str) -> str:
        lowered = reason.lower()
        first = reason.splitlines()[0] if reason else "no reason given"
        if "not a database" in lowered or "malformed" in lowered:
            return f"{self.name} is corrupted or not a SQLite database ({first}); expected a file written by tvm-tiling"
        if "locked" in lowered and self.sqlite:
            return (
                f"{self.name} has been locked by another process for more than {WAIT:.0f} seconds; expected try "
                "again later"
            )
        if "readonly" in lowered or "unable to open" in lowered:
            return f"{self.name} cannot be written ({first}); expected a writable file and directory"
        if "full" in lowered:
            return f"{self.name} cannot grow ({first}); expected free space on its disk"
        return f"{self.name}: {first}"


def _passing(error: sa.exc.DBAPIError) -> bool:
    """Return whether the same transaction may succeed when retried."""
    reason = str(error.orig).lower()
    if isinstance(error.orig, sqlite3.OperationalError):
        return "locked" in reason or "busy" in reason
    return getattr(error.orig, "sqlstate", None) in _AGAIN


def _parsed(url: str | os.PathLike[str]) -> URL:
    text = os.fspath(url)
    if "://" not in text:
        return URL.create("sqlite", database=text)
    try:
        parsed = make_url(text)
    except (sa.exc.ArgumentError, ValueError):
        parsed = None
    if parsed is None or parsed.get_backend_name() not in ("sqlite", "postgresql"):
        kind = text.partition("://")[0]
        raise DatabaseError(
            f"unknown database URL {kind}://...; expected sqlite:///file, a file's path, or "
            "postgresql+psycopg://user@host/name"
        )
    return parsed.set(drivername="postgresql+psycopg") if parsed.drivername == "postgresql" else parsed


def _refuse_place(path: Path, create: bool) -> None:
    """Raise DatabaseError if no database can be stored at `path`."""
    if path.is_file():
        if not os.access(path, os.W_OK):
            raise DatabaseError(f"{path} cannot be written; expected a writable file")
        return
    if path.is_dir():
        raise DatabaseError(f"{path} is a directory; expected the file of a database of shapes")
    if not create and not path.exists():
        raise DatabaseError(f"{path} does not exist; expected the file of a database of shapes")
    try:
        refuse_unwritable(path)
    except OSError as error:
        raise DatabaseError(str(error)) from None
