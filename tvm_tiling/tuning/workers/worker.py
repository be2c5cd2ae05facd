"""A worker behind a TVM tracker: registers as free, and serves one session after another by TVM's RPC.

It speaks the protocol of TVM's own server (tvm/rpc/server.py), but serves sessions in the process itself rather than in
a fork: what was started for measuring remains for the next session, and sessions of several workers can be threads of
one process. Programs that crash do so in child processes (local.py), never here.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import socket
import struct
import threading
import time
from collections.abc import Callable
from typing import Any

import tvm_ffi
from tvm.rpc import _ffi_api, base

from ...errors import TilingError
from ...measure import first_line
from ..shapes.generate import shape_text
from .wire import HOLD, SUPPORTS, Failed, Question, answer_of

_log = logging.getLogger(__name__)

Reply = Callable[[str], str]
PING_SECONDS = 2.0
TELL_SECONDS = 2.0  # delay until the tracker knows what a worker does
KEY_SECONDS = 6.0  # after which a key that a session was given but did not use is replaced
RETRY_SECONDS = 1.0
HANDSHAKE_SECONDS = 30.0
LOOPBACK = "127.0.0.1"


def provide(hold: Reply, supports: Reply) -> None:
    """Register the functions that sessions call, for all workers of this process."""
    tvm_ffi.register_global_func(HOLD, hold, override=True)
    tvm_ffi.register_global_func(SUPPORTS, supports, override=True)


class _Here(threading.local):
    """The worker whose session this thread serves."""

    worker: Worker | None = None


_here = _Here()


def told_of(hold: Reply) -> Reply:
    """Return `hold` wrapped so that the worker reports its current operator to the tracker."""

    def answered(text: str) -> str:
        worker = _here.worker
        if worker is None:
            return hold(text)
        worker.begins(_operator(text))
        answer = ""
        try:
            answer = hold(text)
            return answer
        finally:
            worker.answers(failed=not answer or isinstance(answer_of(answer), Failed))

    return answered


def _operator(text: str) -> str:
    try:
        return shape_text(Question.from_json(text).candidate.workload)
    except TilingError:
        return ""


class Worker:
    """One registration at a tracker. `host` is the address it listens on; sessions from other machines need one that
    they can reach."""

    def __init__(self, tracker: tuple[str, int], key: str, host: str = LOOPBACK) -> None:
        self._tracker, self._key, self._host = tracker, key, host
        self._listener = socket.create_server((host, 0), backlog=8)
        self.port: int = self._listener.getsockname()[1]
        self._ended = threading.Event()
        self._lock = threading.Lock()  # guards the connection to the tracker, on which requests and replies alternate
        self._doing: dict[str, Any] = {"process": os.getpid(), "busy": False, "operator": "", "trials": 0, "failed": 0}

    def begins(self, operator: str) -> None:
        """Report that it measures a configuration of that operator."""
        self._doing["operator"] = operator

    def answers(self, *, failed: bool) -> None:
        """Report that it has answered, with a cost or a failure."""
        self._doing["operator"] = ""
        self._doing["trials"] += 1
        self._doing["failed"] += failed

    def serve(self) -> None:
        """Serve sessions until `end` is called, reconnecting to the tracker if the connection is lost."""
        while not self._ended.is_set():
            try:
                with self._at_tracker() as connection:
                    gone = threading.Event()
                    telling = threading.Thread(target=self._keep_telling, args=(connection, gone), daemon=True)
                    telling.start()
                    try:
                        while not self._ended.is_set():
                            self._serve_one(connection)
                    finally:
                        gone.set()
            except OSError:
                self._ended.wait(RETRY_SECONDS)

    def end(self) -> None:
        """Accept no further sessions."""
        self._ended.set()
        self._listener.close()

    @contextlib.contextmanager
    def _at_tracker(self) -> Any:
        with socket.create_connection(self._tracker, timeout=HANDSHAKE_SECONDS) as connection:
            greet_tracker(connection)
            connection.settimeout(None)
            self._tell(connection)
            yield connection

    def _tell(self, tracker: socket.socket) -> None:
        about = {"key": f"server:{self._key}", "addr": self._address, **self._doing}
        with self._lock:
            _told(tracker, [base.TrackerCode.UPDATE_INFO, about])

    def _keep_telling(self, tracker: socket.socket, gone: threading.Event) -> None:
        """Report what the worker does whenever it has changed, outside the trials."""
        told = dict(self._doing)
        with contextlib.suppress(OSError):  # the serving thread notices as well
            while not gone.wait(TELL_SECONDS) and not self._ended.is_set():
                if told != self._doing:
                    told = dict(self._doing)
                    self._tell(tracker)

    @property
    def _address(self) -> tuple[str | None, int]:
        """The address for sessions; without a host, the tracker uses the address that it sees."""
        return (None if self._host in ("0.0.0.0", "::") else self._host), self.port

    def _serve_one(self, tracker: socket.socket) -> None:
        session = self._accepted(tracker)
        if session is None:
            return
        _here.worker, self._doing["busy"] = self, True
        try:
            _ffi_api.ServerLoop(session.fileno())
        except Exception as error:  # data from an unknown client may fail in any way; the next session is served
            _log.warning("a session ended with an error: %s", first_line(error))
        finally:
            _here.worker, self._doing["busy"] = None, False
        session.detach()  # the loop has closed it

    def _accepted(self, tracker: socket.socket) -> socket.socket | None:
        """Return the next session with the key that the tracker gave it, or None when this worker is to end."""
        key = self._put(tracker)
        unused_since = None
        while not self._ended.is_set():
            ready, _, _ = select.select([self._listener], [], [], PING_SECONDS)
            if not ready:
                with self._lock:
                    pending = _asked(tracker, [base.TrackerCode.GET_PENDING_MATCHKEYS])
                now = time.monotonic()
                unused_since = None if key in pending else unused_since or now
                if unused_since is not None and now - unused_since > KEY_SECONDS:
                    key, unused_since = self._put(tracker), None
                continue
            session, _ = self._listener.accept()
            with contextlib.suppress(OSError):
                if self._is_ours(session, key):
                    return session
            session.close()
        return None

    def _put(self, tracker: socket.socket) -> str:
        """Register this worker as free under a unique key."""
        key: str = base.random_key(self._key)
        with self._lock:
            _told(tracker, [base.TrackerCode.PUT, self._key, (self.port, key), self._address[0]])
        return key

    def _is_ours(self, session: socket.socket, key: str) -> bool:
        session.settimeout(HANDSHAKE_SECONDS)
        if _number(session) != base.RPC_MAGIC:
            return False
        words = base.recvall(session, _number(session)).decode().split()
        if not words or words[0] != f"client:{key}":
            session.sendall(struct.pack("<i", base.RPC_CODE_MISMATCH))
            return False
        own = f"server:{self._key}".encode()
        session.sendall(struct.pack("<ii", base.RPC_CODE_SUCCESS, len(own)) + own)
        session.settimeout(None)
        return True


def greet_tracker(connection: socket.socket) -> None:
    """Start the conversation with a tracker. OSError for any other server."""
    connection.sendall(struct.pack("<i", base.RPC_TRACKER_MAGIC))
    if _number(connection) != base.RPC_TRACKER_MAGIC:
        raise OSError("the server is not a TVM tracker")


def _number(connection: socket.socket) -> int:
    found: int = struct.unpack("<i", base.recvall(connection, 4))[0]
    return found


def _asked(connection: socket.socket, question: list[Any]) -> Any:
    base.sendjson(connection, question)
    return base.recvjson(connection)


def _told(connection: socket.socket, statement: list[Any]) -> None:
    if _asked(connection, statement) != base.TrackerCode.SUCCESS:
        raise OSError("the tracker refused")
