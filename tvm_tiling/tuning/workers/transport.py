"""Sessions with workers, several per carrier process: TVM supports 32 sessions in a process.

The parent writes numbered questions, or requests for more sessions, to the carrier's input, and reads events from its
output, all as lines of JSON: a session was opened ("up") or refused ("refused"), a question was answered ("answer"), a
worker was lost over one ("lost"). One thread per session takes the next question; after a loss it asks the tracker for
another worker, such as one that was restarted.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from ..measuring.lean_tvm import without_torch
from ..measuring.runner import Address
from .wire import HOLD, SUPPORTS

MOST_SESSIONS = 28  # below TVM's 32, leaving some for lost sessions that are not yet closed
CONNECT_TRIES = 5  # a worker that the tracker still lists may be gone; another one is then requested
CONNECT_SECONDS = 1.0  # between tries
Heard = Callable[["Transport", dict[str, Any]], None]


class Transport:
    """A process with up to `sessions` sessions; `heard` is called with events in a separate thread."""

    def __init__(self, address: Address, fingerprint: str, sessions: int, heard: Heard) -> None:
        self.sessions = sessions
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                f"from {__name__} import main; main()",
                *(str(address), fingerprint, str(sessions)),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._lock = threading.Lock()
        self._heard = heard
        threading.Thread(target=self._listen, daemon=True).start()

    def ask(self, number: int, question: str) -> None:
        """Send a question; the answer is an event. OSError if the process is gone."""
        self._say([number, question])

    def grow(self, sessions: int) -> None:
        """Open `sessions` more sessions. OSError if the process is gone."""
        self.sessions += sessions
        self._say([sessions, None])

    def _say(self, words: list[Any]) -> None:
        assert self._process.stdin is not None
        with self._lock:
            self._process.stdin.write(json.dumps(words) + "\n")
            self._process.stdin.flush()

    def close(self) -> None:
        """End the process and its sessions."""
        self._process.kill()
        self._process.wait()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._heard(self, json.loads(line))
        self._heard(self, {"gone": True})


# ---- in the carrier --------------------------------------------------------------------------------------------------


def main() -> None:
    """Carry sessions until the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    without_torch()
    address, fingerprint, sessions = Address.parse(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    lock = threading.Lock()

    def say(event: dict[str, Any]) -> None:
        with lock:
            output.write(json.dumps(event) + "\n")
            output.flush()

    import tvm.rpc  # noqa: F401  once, before the threads do

    questions: SimpleQueue[tuple[int, str]] = SimpleQueue()

    def carry(sessions: int) -> None:
        for _ in range(sessions):
            threading.Thread(target=_carry, args=(address, fingerprint, questions, say), daemon=True).start()

    carry(sessions)
    for line in sys.stdin:
        number, question = json.loads(line)
        if question is None:
            carry(number)
        else:
            questions.put((number, question))
    os._exit(0)


def _carry(
    address: Address, fingerprint: str, questions: SimpleQueue[tuple[int, str]], say: Callable[[dict[str, Any]], None]
) -> None:
    """Serve one session after another, until a worker refuses or the tracker is gone."""
    failed = 0
    while True:
        try:
            session = _session(address)
            refused = str(session.get_function(SUPPORTS)(fingerprint))
        except Exception as error:
            failed += 1
            if failed < CONNECT_TRIES:
                time.sleep(CONNECT_SECONDS)
                continue
            say({"refused": f"no session with a worker: {_last_line(error)}"})
            return
        failed = 0
        if refused:
            say({"refused": refused})
            return
        hold = session.get_function(HOLD)
        say({"up": True})
        while True:
            number, question = questions.get()
            try:
                answer = str(hold(question))
            except Exception as error:
                say({"lost": number, "reason": _last_line(error)})
                break
            say({"answer": number, "text": answer})


def _session(address: Address) -> Any:
    """Open a session with the next free worker, waiting for one."""
    from tvm.rpc import base, client

    from .worker import greet_tracker

    with socket.create_connection((address.host, address.port), timeout=10) as tracker:
        greet_tracker(tracker)
        tracker.settimeout(None)
        base.sendjson(tracker, [base.TrackerCode.REQUEST, address.key, "", 1])
        _, (host, port, key) = base.recvjson(tracker)
        return client.connect(host, port, key)


def _last_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
