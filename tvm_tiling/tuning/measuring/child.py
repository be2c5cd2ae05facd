"""Persistent child processes: each runs one function on message after message, isolated from its parent.

A child that crashes, hangs or is killed loses only its current message; the next message starts a new one. Children end
when their parent does, however it ended: a thread of theirs waits for the pipe to close.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import pickle
import select
import signal
import socket
import struct
import tempfile
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, BinaryIO

from .template import Template, TemplateLost

_LENGTH = struct.Struct("<Q")
LAST_WORDS = 4096  # bytes of a child's standard error that are read
END_SECONDS = 5.0  # how long to wait for a child to end


class ChildLost(RuntimeError):
    """The child ended, or was ended, before it answered; the message says how."""


class ChildFailed(RuntimeError):
    """The function of the child raised; the message is its error in one line."""


class Child:
    """A process that runs `entry`, the dotted name of a function ("package.module:name"), on each message.

    Not thread-safe. The process, a fork of `template`, is started by the first `ask`.
    """

    def __init__(self, entry: str, doing: str, template: Template) -> None:
        """`doing` completes the sentence "killed by SIGSEGV while ..."."""
        self.entry, self.doing = entry, doing
        self._template = template
        self._channel: socket.socket | None = None
        self._errors: BinaryIO | None = None
        self.pid: int | None = None  # the process, None if none runs

    def _start(self) -> socket.socket:
        """Return the channel to the process, starting it if necessary."""
        if self._channel is None:
            self._errors = tempfile.TemporaryFile()  # noqa: SIM115
            self._channel, theirs = socket.socketpair()
            with theirs:
                self.pid = self._template.fork(f"{__name__}:main", theirs, self._errors.fileno())
            _write(self._channel, self.entry)
        return self._channel

    def ask(self, message: Any, timeout: float) -> Any:
        """Return the function's answer. ChildFailed if it raised, ChildLost if the child ended or took more than
        `timeout` seconds."""
        try:
            channel = self._start()
            until = time.monotonic() + timeout
            _write(channel, message)
            header = self._read(channel, _LENGTH.size, until)
            answer = self._read(channel, _LENGTH.unpack(header)[0], until)
        except TimeoutError:
            self.close()
            raise ChildLost(f"timed out after {timeout:g} s while {self.doing}") from None
        except (EOFError, ConnectionError):
            raise ChildLost(f"{self._end()} while {self.doing}") from None
        except TemplateLost as error:
            self.close()
            raise ChildLost(f"{error} before {self.doing}") from None
        except BaseException:
            self.close()  # the pipe may contain a partial answer
            raise
        failed, value = pickle.loads(answer)
        if failed:
            raise ChildFailed(value)
        return value

    @staticmethod
    def _read(channel: socket.socket, size: int, until: float) -> bytes:
        found = bytearray()
        while len(found) < size:
            ready, _, _ = select.select([channel], [], [], max(0.0, until - time.monotonic()))
            if not ready:
                raise TimeoutError
            piece = channel.recv(size - len(found))
            if not piece:
                raise EOFError
            found += piece
        return bytes(found)

    def _end(self) -> str:
        """Return how the process ended, and the last line of its standard error."""
        assert self.pid is not None and self._errors is not None
        code = self._template.end_of(self.pid, END_SECONDS)
        end = "ended"
        if code is not None:
            end = f"killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        self._errors.seek(max(0, self._errors.seek(0, os.SEEK_END) - LAST_WORDS))
        words = self._errors.read().decode(errors="replace").strip().splitlines()
        self.close()
        return f"{end} ({words[-1].strip()})" if words else end

    def close(self) -> None:
        """End the process."""
        if self.pid is not None:
            self._template.kill(self.pid)
            self.pid = None
        for held in (self._channel, self._errors):
            if held is not None:
                held.close()
        self._channel = self._errors = None


def _write(channel: socket.socket, message: Any) -> None:
    data = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    channel.sendall(_LENGTH.pack(len(data)) + data)


# ---- in the child ----------------------------------------------------------------------------------------------------


def main(channel: socket.socket) -> None:
    """Answer messages of the parent, the first of which names the function, until it is gone."""
    messages: SimpleQueue[Any] = SimpleQueue()
    threading.Thread(target=_receive, args=(channel, messages), daemon=True).start()
    module, name = messages.get().split(":")
    function: Callable[[Any], Any] = getattr(importlib.import_module(module), name)
    while True:
        message = messages.get()
        try:
            answer: tuple[bool, Any] = (False, function(message))
        except Exception as error:
            answer = (True, _in_one_line(error))
        _write(channel, answer)


def _receive(channel: socket.socket, messages: SimpleQueue[Any]) -> None:
    with contextlib.suppress(OSError), channel.makefile("rb") as pipe:
        while len(header := pipe.read(_LENGTH.size)) == _LENGTH.size:
            messages.put(pickle.loads(pipe.read(_LENGTH.unpack(header)[0])))
    os._exit(0)


def _in_one_line(error: Exception) -> str:
    """Return the type of an error and the last line of its text, where TVM says what is wrong."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[-1]}" if lines else type(error).__name__
