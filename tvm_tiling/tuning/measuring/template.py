"""A process that imports once what others need, and becomes them: each is a fork of it, there in milliseconds.

Imports are most of what a measuring process costs to start, and one core's work; a process that has crashed is replaced
without them. Nothing runs in the template but the loop that forks, so there is nothing that a fork could break.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from ...runtime.threads import has_no_pool
from .lean_tvm import lean_tvm

# What measures on this CPU: functions of children (child.py).
BUILDING = "tvm_tiling.tuning.measuring.building:answer"
TIMING = "tvm_tiling.tuning.measuring.timing:answer"

_MOST = 4096  # bytes of a request or a reply
_POLL = 0.005


class TemplateLost(RuntimeError):
    """The template ended, and with it what it knew of its forks."""


class Template:
    """A process with `modules` imported. It ends when this process does, and is started again where it was lost.

    May be asked from several threads.
    """

    def __init__(self, modules: Sequence[str]) -> None:
        self._modules = tuple(modules)
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._closed = False

    @classmethod
    def of(cls, *entries: str) -> Template:
        """One that has imported what holds these functions ("package.module:name")."""
        return cls([entry.partition(":")[0] for entry in entries])

    def start(self) -> None:
        """Start it if there is none. It imports while the caller goes on."""
        with self._lock:
            self._start()

    def fork(self, entry: str, channel: socket.socket, errors: int) -> int:
        """A new process that calls `entry` ("package.module:name") with its copy of `channel` and ends when that
        returns; what it writes goes to the file `errors`. Its number."""
        request, files = {"fork": entry}, [channel.fileno(), errors]
        try:
            found = self._ask(request, files)
        except TemplateLost:
            found = self._ask(request, files)  # of a new template
        return int(found["pid"])

    def end_of(self, pid: int, seconds: float) -> int | None:
        """How a fork ended, its exit code or minus its signal, waited for so long; None where it has not, or nobody
        knows any more."""
        until = time.monotonic() + seconds
        while True:
            try:
                code: int | None = self._ask({"end_of": pid})["code"]
            except TemplateLost:
                return None
            if code is not None or time.monotonic() > until:
                return code
            time.sleep(_POLL)

    def kill(self, pid: int) -> None:
        """End a fork, and wait for it."""
        with contextlib.suppress(TemplateLost):
            self._ask({"kill": pid})

    def close(self) -> None:
        """End the template, not its forks; it is not started again."""
        with self._lock:
            self._closed = True
            self._close()

    def _start(self) -> socket.socket:
        if self._closed:
            raise TemplateLost("the process that others are forks of was ended")
        if self._control is not None:
            return self._control
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", f"from {__name__} import main; main()", str(theirs.fileno()), *self._modules],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        self._control = ours
        return ours

    def _ask(self, request: dict[str, Any], files: Sequence[int] = ()) -> dict[str, Any]:
        with self._lock:
            control = self._start()
            try:
                socket.send_fds(control, [json.dumps(request).encode()], list(files))
                reply = control.recv(_MOST)
            except OSError:
                reply = b""
            except BaseException:
                self._close()  # a reply may be under way
                raise
            if not reply:
                self._close()
                raise TemplateLost("the process that others are forks of ended")
            found: dict[str, Any] = json.loads(reply)
            return found

    def _close(self) -> None:
        process, control = self._process, self._control
        self._process = self._control = None
        if control is not None:
            control.close()
        if process is not None:
            process.kill()
            process.wait()


# ---- in the template -------------------------------------------------------------------------------------------------


def main() -> None:
    """Import, then fork as asked, until the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    lean_tvm()
    gc.disable()  # nothing of what is imported is garbage
    for module in sys.argv[2:]:
        # A module may fail in any way. The fork that needs it imports it again, and has a channel to say what is wrong.
        with contextlib.suppress(Exception):
            importlib.import_module(module)
    gc.freeze()
    gc.enable()
    has_no_pool()
    # Of threads there are only those of NumPy's library, which knows how to fork.
    warnings.filterwarnings("ignore", category=DeprecationWarning, message=".*multi-threaded.*")
    control = socket.socket(fileno=int(sys.argv[1]))
    while True:
        request, files, _, _ = socket.recv_fds(control, _MOST, 2)
        if not request:
            return
        control.sendall(json.dumps(_reply(json.loads(request), files, control)).encode())


def _reply(request: dict[str, Any], files: Sequence[int], control: socket.socket) -> dict[str, Any]:
    if "fork" in request:
        channel, errors = files
        pid = os.fork()
        if not pid:
            control.close()
            _become(request["fork"], channel, errors)
        os.close(channel)
        os.close(errors)
        return {"pid": pid}
    pid = request.get("end_of") or request["kill"]
    try:
        if "kill" in request and os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            os.kill(pid, signal.SIGKILL)
        ended, status = os.waitpid(pid, 0 if "kill" in request else os.WNOHANG)
    except ChildProcessError:
        return {"code": None}
    return {"code": os.waitstatus_to_exitcode(status) if ended else None}


def _become(entry: str, channel: int, errors: int) -> None:
    """Be the fork: never returns."""
    code = 1
    try:
        for output in (1, 2):
            os.dup2(errors, output)
        os.close(errors)
        module, name = entry.split(":")
        function: Callable[[socket.socket], None] = getattr(importlib.import_module(module), name)
        function(socket.socket(fileno=channel))
        code = 0
    except BaseException:  # of whatever kind: it is told, and the fork ends below with code 1
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
