"""Threads that compile: the order of jobs, errors, and Ctrl-C at any time."""

from __future__ import annotations

import _thread
import threading
import time

import pytest
from interrupts import ends_with, interrupted_at_each_call

from tvm_tiling.model.workers import Result, Workers


def test_the_most_important_job_first_and_equal_ones_in_order():
    done, workers, started, go = [], Workers(1), threading.Event(), threading.Event()
    last = Result()

    def first() -> None:
        started.set()
        go.wait()

    workers.add(0, first)
    started.wait()
    for order, name in ((5, "e"), (-1, "a"), (2, "b"), (2, "c"), (3, "d")):
        workers.add(order, lambda name=name: done.append(name))
    workers.add(9, lambda: last.compute(lambda: b"end"))
    go.set()
    assert last.get() == b"end"
    workers.end()
    assert done == list("abcde")


def test_as_many_threads_as_jobs_need():
    inside, most, lock = 0, 0, threading.Lock()
    results = [Result() for _ in range(9)]

    def job(result: Result) -> None:
        nonlocal inside, most
        with lock:
            inside += 1
            most = max(most, inside)
        time.sleep(0.01)
        with lock:
            inside -= 1
        result.compute(bytes)

    workers = Workers(3)
    for result in results:
        workers.add(0, lambda result=result: job(result))
    for result in results:
        result.get()
    workers.end()
    assert most == 3


def test_the_error_of_a_job_is_raised_for_all_that_wait():
    result = Result()
    result.compute(lambda: int("no"))
    for _ in range(2):
        with pytest.raises(ValueError, match="invalid literal"):
            result.get()


def test_the_end_waits_for_jobs_in_progress_and_returns_the_others():
    done, workers, started = [], Workers(1), threading.Event()

    def long() -> None:
        started.set()
        time.sleep(0.05)
        done.append("long")

    workers.add(0, long)
    workers.add(1, lambda: done.append("not begun"))
    started.wait()
    (left,) = workers.end()
    assert done == ["long"]
    left()
    assert done == ["long", "not begun"]


def test_ctrl_c_at_any_time_leaves_no_thread():
    before = _thread._count()

    def used() -> None:
        workers, results = Workers(2), [Result() for _ in range(3)]
        try:
            for result in results:
                workers.add(0, lambda result=result: result.compute(bytes))
            for result in results:
                result.get()
        finally:
            workers.end()

    def check() -> None:
        assert ends_with(before)

    assert interrupted_at_each_call(used, check) > 30
