"""A PostgreSQL server for a test, on a socket in a folder that is removed afterwards."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

SYSTEM = "/usr/lib/postgresql"


def program(name: str) -> str:
    """Return the path of one of PostgreSQL's programs; skip the test if it is missing."""
    found = shutil.which(name)
    for path in sorted(Path(SYSTEM).glob(f"*/bin/{name}"), reverse=True) if Path(SYSTEM).is_dir() else ():
        found = found or str(path)
    if found is None:
        pytest.skip(f"PostgreSQL's {name} is not installed")
    return found


@contextlib.contextmanager
def server() -> Iterator[str]:
    """Yield the URL of a new, empty database. The server stops at the end."""
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    initdb, postgres = program("initdb"), program("postgres")
    folder = Path(tempfile.mkdtemp(prefix="tvm-tiling-pg-"))
    user = _user()
    try:
        if user:
            shutil.chown(folder, user)
        as_user = {"user": user} if user else {}
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": folder}
        # Without an encoding, like a server that was set up without a locale.
        options = ["-U", "tester", "--auth=trust", "--no-sync", "--locale=C", "--encoding=SQL_ASCII"]
        made = subprocess.run([initdb, "-D", folder / "data", *options], **quiet, **as_user)
        if made.returncode:
            pytest.skip("PostgreSQL's initdb does not work here")
        command = [postgres, "-D", folder / "data", "-k", folder, "-h", "", "-p", "5432"]
        process = subprocess.Popen(command, **quiet, **as_user)
        try:
            _wait(folder, process)
            yield f"postgresql+psycopg://tester@/postgres?host={quote(str(folder), safe='')}"
        finally:
            process.terminate()
            process.wait(30)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _user() -> str | None:
    """The user that runs it: PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name).pw_name
    pytest.skip("PostgreSQL does not run as root, and there is no other user")


def _wait(folder: Path, process: subprocess.Popen) -> None:
    import time

    import psycopg

    for _ in range(200):
        with contextlib.suppress(psycopg.OperationalError):
            psycopg.connect(host=str(folder), user="tester", dbname="postgres").close()
            return
        if process.poll() is not None:
            pytest.skip("PostgreSQL does not start here")
        time.sleep(0.05)
    pytest.skip("PostgreSQL does not answer")
