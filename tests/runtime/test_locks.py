"""Locks and the data that they protect, in threads and in processes forked while another thread holds them."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from interrupts import interrupted_at_each_call

from tvm_tiling.model import run_many
from tvm_tiling.model.accel import segments
from tvm_tiling.runtime import launcher
from tvm_tiling.runtime.locks import ForkSafeLock

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
DEADLOCK = 10  # seconds after which a child is ended


@contextmanager
def held_by_another_thread(lock) -> Iterator[None]:
    taken, over = threading.Event(), threading.Event()

    def hold() -> None:
        with lock.current:
            taken.set()
            over.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    taken.wait()
    try:
        yield
    finally:
        over.set()
        thread.join()


def in_child(act: Callable[[], object]) -> int:
    """Return the status of a forked process: 0 if `act` is true there, a signal if it waits forever."""
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(DEADLOCK)
        status = 2
        try:
            status = 0 if act() else 1
        finally:
            os._exit(status)
    return os.waitpid(child, 0)[1]


def is_free(lock) -> bool:
    free = lock.current.acquire(blocking=False)
    if free:
        lock.current.release()
    return free


def is_free_for_others(lock) -> bool:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(is_free, lock).result()


@needs_fork
def test_a_child_finds_a_lock_free_that_another_thread_held():
    lock = ForkSafeLock()
    with held_by_another_thread(lock):
        assert in_child(lambda: is_free(lock)) == 0
        assert not is_free(lock)  # the parent's is held as before
    assert is_free(lock)


@needs_fork
def test_the_thread_that_forks_keeps_its_lock():
    lock = ForkSafeLock()
    with lock.current:
        assert in_child(lambda: not is_free_for_others(lock)) == 0


def test_ctrl_c_leaves_no_lock_held():
    """At every call that Python's code makes within the block or on the way to it."""
    lock = ForkSafeLock()

    def used() -> None:
        with lock.current:
            len("")

    assert interrupted_at_each_call(used, lambda: is_free_for_others(lock) or pytest.fail("held")) >= 2


def test_one_thread_at_a_time():
    lock, inside, most = ForkSafeLock(), 0, 0

    def work() -> None:
        nonlocal inside, most
        for _ in range(20):
            with lock.current:
                inside += 1
                most = max(most, inside)
                time.sleep(0.0002)
                inside -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1


@needs_fork
@pytest.mark.parametrize("lock", [launcher._lock, run_many._lock, segments._lock], ids=["launcher", "many", "segments"])
def test_locks_of_modules_are_free_in_a_child(lock):
    with held_by_another_thread(lock):
        assert in_child(lambda: is_free(lock)) == 0


@needs_fork
def test_a_child_makes_segments_while_the_parent_does():
    with held_by_another_thread(segments._lock):
        assert in_child(lambda: segments._register(1_000_000) is None) == 0


def test_threads_register_a_segment_once(monkeypatch):
    registered = []

    def slow(name, function, override):
        time.sleep(0.02)
        registered.append(name)

    monkeypatch.setattr(segments.tvm_ffi, "register_global_func", slow)
    monkeypatch.setattr(segments, "_REGISTERED", set())
    threads = [threading.Thread(target=segments._register, args=(7,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert registered == [f"{segments.SEGMENT}7"]
