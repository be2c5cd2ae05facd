"""Ensures that no model run is in progress while the process forks or exits.

A forked child has all memory of its parent but only one of its threads. A lock held by another thread, for instance in
TVM's memory pools, stays locked in the child forever. And when a process exits, Python stops daemon threads as they
return from TVM, by unwinding C++ frames that do not allow it: the process ends with SIGABRT. So runs that start
meanwhile wait at a gate, and a fork or exit waits until those in progress are done. An open gate costs a run nothing:
closing it replaces the functions that start runs.
"""

from __future__ import annotations

import atexit
import inspect
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

LONGEST = 10.0  # seconds to wait for runs and compilations in progress
STEP = 0.0005

_folders: set[str] = set()  # directories of the classes with entrances
_entrances: list[tuple[type, str, Callable[..., Any]]] = []
_one = threading.RLock()  # only one thread forks or ends the process
_opened = threading.Event()
_opened.set()
_holder = 0  # the thread that closed the gate, which may pass


def entrance(owner: type, name: str) -> None:
    """Make threads wait in the method `name` of a class while the gate is closed."""
    _entrances.append((owner, name, getattr(owner, name)))
    _folders.add(str(Path(inspect.getfile(owner)).parent) + os.sep)


def _behind_gate(method: Callable[..., Any]) -> Callable[..., Any]:
    def entered(*args: Any) -> Any:
        _wait_at_the_gate()
        return method(*args)

    return entered


def _wait_at_the_gate() -> None:
    while threading.get_ident() != _holder and not _opened.is_set():
        _opened.wait()


def _close() -> None:
    """Prevent runs from starting, and wait for those of other threads."""
    global _holder, _opened
    _one.acquire()
    _holder, _opened = threading.get_ident(), threading.Event()
    for owner, name, method in _entrances:
        setattr(owner, name, _behind_gate(method))
    until = time.monotonic() + LONGEST
    while _others_are_inside() and time.monotonic() < until:
        time.sleep(STEP)


def _open() -> None:
    for owner, name, method in _entrances:
        setattr(owner, name, method)
    _opened.set()
    _one.release()


def _open_in_child() -> None:
    global _one, _opened
    for owner, name, method in _entrances:
        setattr(owner, name, method)
    # The parent's threads, which could wait for these or release them, do not exist here.
    _one, _opened = threading.RLock(), threading.Event()
    _opened.set()


def _others_are_inside() -> bool:
    """Return whether another thread is in a function of a directory with an entrance, and not waiting at the gate."""
    own, folders = threading.get_ident(), tuple(_folders)
    for thread, top in sys._current_frames().items():
        frame = None if thread == own else top
        while frame is not None and frame.f_code is not _wait_at_the_gate.__code__:
            if frame.f_code.co_filename.startswith(folders):
                return True
            frame = frame.f_back
    return False


atexit.register(_close)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_close, after_in_parent=_open, after_in_child=_open_in_child)
