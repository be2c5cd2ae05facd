"""A template process that imports modules once; other processes are forks of it that start in milliseconds.

Imports dominate the start of a measuring process and use a single core; a crashed process is replaced without repeating
them. The template runs only the loop that forks, so a fork cannot interrupt anything.
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

# Entry points of the children that measure on this CPU (child.py).
BUILDING = "tvm_tiling.tuning.measuring.building:answer"
TIMING = "tvm_tiling.tuning.measuring.timing:answer"

_MOST = 4096  # bytes of a request or a reply
_POLL = 0.005


class TemplateLost(RuntimeError):
    """The template ended, and with it the status of its forks."""


class Template:
    """A process with `modules` imported. It ends when this process does, and is restarted if it was lost.

    Thread-safe.
    """

    def __init__(self, modules: Sequence[str]) -> None:
        self._modules = tuple(modules)
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._closed = False

    @classmethod
    def of(cls, *entries: str) -> Template:
        """Return a template that imports the modules of these functions ("package.module:name")."""
        return cls([entry.partition(":")[0] for entry in entries])

    def start(self) -> None:
        """Start the process if it does not run. It imports in the background."""
        with self._lock:
            self._start()

    def fork(self, entry: str, channel: socket.socket, errors: int) -> int:
        """Fork a process that calls `entry` ("package.module:name") with its copy of `channel` and ends when that
        returns; its output goes to the file `errors`. Return its process id."""
        request, files = {"fork": entry}, [channel.fileno(), errors]
        try:
            found = self._ask(request, files)
        except TemplateLost:
            found = self._ask(request, files)  # retry with a new template
        return int(found["pid"])

    def end_of(self, pid: int, seconds: float) -> int | None:
        """Wait up to `seconds` for a fork to end. Return its exit code or minus its signal, or None if it still runs or
        its status is lost."""
        until = time.monotonic() + seconds
        while True:
            try:
                found = self._ask({"end_of": pid})
            except TemplateLost:
                return None
            code: int | None = found["code"]
            if code is not None or "lost" in found or time.monotonic() > until:
                return code
            time.sleep(_POLL)

    def kill(self, pid: int) -> None:
        """Kill a fork and wait for it."""
        with contextlib.suppress(TemplateLost):
            self._ask({"kill": pid})

    def close(self) -> None:
        """End the template, but not its forks; it is not restarted."""
        with self._lock:
            self._closed = True
            self._close()

    def _start(self) -> socket.socket:
        if self._closed:
            raise TemplateLost("the template process was closed")
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
                self._close()  # a reply may be pending
                raise
            if not reply:
                self._close()
                raise TemplateLost("the template process ended unexpectedly")
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
    """Import, then fork on request, until the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    lean_tvm()
    gc.disable()  # nothing imported is garbage
    for module in sys.argv[2:]:
        # Importing a module may fail in any way. The fork that needs it imports it again and has a channel to report
        # the error.
        with contextlib.suppress(Exception):
            importlib.import_module(module)
    gc.freeze()
    gc.enable()
    has_no_pool()
    # The only threads are those of NumPy's BLAS library, which is fork-safe.
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
    except ChildProcessError:  # no fork of this template, or waited for before
        return {"code": None, "lost": True}
    return {"code": os.waitstatus_to_exitcode(status) if ended else None}


def _become(entry: str, channel: int, errors: int) -> None:
    """Run as the fork; never returns."""
    code = 1
    try:
        for output in (1, 2):
            os.dup2(errors, output)
        os.close(errors)
        module, name = entry.split(":")
        function: Callable[[socket.socket], None] = getattr(importlib.import_module(module), name)
        function(socket.socket(fileno=channel))
        code = 0
    except BaseException:  # of any kind: it is printed, and the fork exits below with code 1
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
