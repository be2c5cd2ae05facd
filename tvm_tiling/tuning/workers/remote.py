"""Measurement by the workers behind a TVM tracker, on all of its machines that share a key.

If a worker is lost, its job is given to another one; a job that loses three workers is given up, since it may be the
cause. Workers on a machine other than the one requested are not used. Workers that join the tracker during a search are
used from its next batch.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from functools import partial
from itertools import count
from queue import SimpleQueue
from typing import Any

from ...hardware.description import Hardware
from ...model.workers import Result, Workers
from ..measuring.incumbents import Incumbents, TrialFailed
from ..measuring.measurer import Job, Measured, SideBySide
from ..measuring.paired_benchmark import Alone, PairedResult
from ..measuring.runner import Address, RunnerError
from ..shapes.fingerprint import fingerprint_of
from .tracker import statuses, workers_at
from .transport import MOST_SESSIONS, Transport
from .wire import Answer, Failed, Question, Simulated, answer_of

FIRST_SECONDS = 60.0  # until the first worker is ready
ANSWER_SECONDS = 120.0  # a build and a paired benchmark, each with its own shorter limit on the worker
ALONE_SECONDS = 15.0  # how long a job waits for another worker after the last one is gone
LOOK_SECONDS = 2.0  # how often the tracker is asked for new workers
TRIES = 3
_LOOK_AGAIN = 0.02  # seconds between looks whether the first worker is ready


class WorkerLost(RuntimeError):
    """The worker will not answer; the message says why."""


class RemoteMeasurer:
    """The Measurer of a tracker's workers. RunnerError if the tracker cannot be reached or has no workers of the key.

    `workers` is the maximum number of sessions open or being opened at a time: this many jobs are measured in parallel.
    """

    def __init__(self, address: Address, hardware: Hardware, *, answer_seconds: float = ANSWER_SECONDS) -> None:
        self.address, self._limit = address, answer_seconds
        self.workers = workers_at(address)
        self._incumbents = Incumbents()
        self._numbers = count()
        self._lock = threading.Lock()
        self._asked: dict[int, tuple[Transport, Future[str]]] = {}
        self._live: dict[Transport, int] = {}  # sessions that are open and responsive
        self._stuck: set[int] = set()  # numbers of questions that timed out
        self._refusals: list[str] = []
        self._changed = threading.Condition(self._lock)
        self._fingerprint = json.dumps(fingerprint_of(hardware).to_dict())
        self._sessions: dict[Transport, int] = {}  # sessions that are open, or waiting for a worker
        self._transports: list[Transport] = []
        self._known = self._places()
        self._closed = threading.Event()
        self._open(self.workers)
        try:
            self._wait_for_one()
        except BaseException:
            self.close()
            raise
        threading.Thread(target=self._watch, daemon=True).start()

    def measure(self, jobs: Sequence[Job]) -> Iterator[Measured]:
        """Yield one Measured for each of `jobs`, in order of completion. RunnerError when no worker is left for
        them."""
        ready: SimpleQueue[Result[Measured]] = SimpleQueue()

        def measure_one(job: Job) -> None:
            result: Result[Measured] = Result()
            result.compute(lambda: self._measured(job))
            ready.put(result)

        threads = Workers(self.workers)
        try:
            for job in jobs:
                threads.add(0, partial(measure_one, job))
            for _ in jobs:
                yield ready.get().get()
        finally:
            threads.abandon()

    def compare(self, first: Job, second: Job) -> SideBySide | str:
        """Return the alternating comparison of both by one worker, or the reason for a failure."""
        return self._incumbents.side_by_side(first, second, self._hold)

    def close(self) -> None:
        """End the sessions; the workers remain available to others."""
        with self._lock:
            self._closed.set()
        for transport in self._transports:
            transport.close()

    def live(self) -> list[int]:
        """Return the number of open sessions of each process that carries some."""
        with self._lock:
            return list(self._live.values())

    # ---- sessions ----------------------------------------------------------------------------------------------------

    def _places(self) -> set[str]:
        """Return the addresses of the tracker's workers of the key."""
        return {worker.address for worker in statuses(self.address) if worker.key == self.address.key}

    def _open(self, sessions: int) -> None:
        """Request `sessions` more sessions: first from processes with spare capacity, then from new ones."""
        for transport in self._transports:
            more = min(sessions, MOST_SESSIONS - transport.sessions)
            if more > 0:
                with contextlib.suppress(OSError):  # that process has ended
                    transport.grow(more)
                    self._sessions[transport] += more
                    sessions -= more
        while sessions > 0:
            size = min(sessions, MOST_SESSIONS)
            transport = Transport(self.address, self._fingerprint, size, self._heard)
            self._transports.append(transport)
            self._sessions[transport] = self._sessions.get(transport, 0) + size
            sessions -= size

    def _watch(self) -> None:
        """Open sessions for new workers. If a worker has ended, its session already waits for the next one."""
        while not self._closed.wait(LOOK_SECONDS):
            with contextlib.suppress(RunnerError):
                places = self._places()
                with self._changed:
                    if self._closed.is_set():
                        return
                    come, self._known = len(places - self._known), self._known | places
                    waiting_for = len(places) - sum(self._sessions.values())
                    self._open(min(come, waiting_for))
                    self.workers = max(self.workers, sum(self._sessions.values()))

    # ---- one job -----------------------------------------------------------------------------------------------------

    def _measured(self, job: Job) -> Measured:
        if job.hardware.cpu is not None:
            return self._incumbents.measured(job, self._hold)
        start = time.monotonic()
        try:
            found = self._answer(Question(job, None, False))
        except TrialFailed as error:
            return Measured(job=job, reason=str(error), seconds_spent=time.monotonic() - start)
        assert isinstance(found, Simulated)
        spent = time.monotonic() - start
        return Measured(job=job, cost=found.cycles, energy_pj=found.energy_pj, seconds_spent=spent)

    def _hold(self, candidate: Job, incumbent: Job | None, thorough: bool) -> Alone | PairedResult:
        found = self._answer(Question(candidate, incumbent, thorough))
        assert isinstance(found, Alone | PairedResult)
        return found

    def _answer(self, question: Question) -> Answer:
        """Return the answer of a worker. TrialFailed if the job failed there, or if several workers were lost over
        it."""
        text, reasons = question.to_json(), []
        for _ in range(TRIES):
            try:
                found = answer_of(self._asking(text))
            except WorkerLost as error:
                reasons.append(str(error))
                continue
            if isinstance(found, Failed):
                raise TrialFailed(found.reason)
            return found
        raise TrialFailed(f"{TRIES} workers were lost over it; the last: {reasons[-1]}")

    def _asking(self, text: str) -> str:
        transport, number, future = self._put()
        try:
            transport.ask(number, text)
            return future.result(self._limit)
        except FutureTimeout:  # before OSError, of which it is a subclass from Python 3.11
            with self._changed:  # its session is unusable until it answers
                self._live[transport] -= 1
                self._stuck.add(number)
            raise WorkerLost(f"no answer for {self._limit:g} s") from None
        except OSError:
            raise WorkerLost("the process with its session ended") from None
        finally:
            with self._changed:
                self._asked.pop(number, None)
                self._changed.notify_all()

    def _put(self) -> tuple[Transport, int, Future[str]]:
        """Return a place in the carrier with the most free sessions, waiting for one if necessary."""
        alone_since: float | None = None
        with self._changed:
            while True:
                if self._closed.is_set():
                    raise RunnerError(f"runner {self.address}: the measurement was ended")
                busy = dict.fromkeys(self._live, 0)
                for transport, _ in self._asked.values():
                    busy[transport] = busy.get(transport, 0) + 1
                free = {
                    transport: live - busy[transport]
                    for transport, live in self._live.items()
                    if live > busy[transport]
                }
                if free:
                    chosen = max(free, key=lambda transport: free[transport])
                    number, future = next(self._numbers), Future[str]()
                    self._asked[number] = chosen, future
                    return chosen, number, future
                if any(self._live.values()):
                    alone_since = None
                else:
                    alone_since = alone_since or time.monotonic()
                    if time.monotonic() - alone_since > ALONE_SECONDS:
                        raise RunnerError(f"runner {self.address}: all workers were lost; measurements so far are kept")
                self._changed.wait(1.0)

    # ---- events of carriers ------------------------------------------------------------------------------------------

    def _heard(self, transport: Transport, event: dict[str, Any]) -> None:
        future: Future[str] | None = None
        outcome: str | Exception = ""
        with self._changed:
            if "up" in event:
                self._live[transport] = self._live.get(transport, 0) + 1
            elif "refused" in event:
                self._refusals.append(event["refused"])
                self._sessions[transport] = self._sessions.get(transport, 0) - 1
            elif "answer" in event:
                number, outcome = event["answer"], event["text"]
                if number in self._stuck:
                    self._stuck.remove(number)
                    self._live[transport] += 1
                future = self._waiting_for(number)
            elif "lost" in event:
                number, outcome = event["lost"], WorkerLost(event["reason"])
                if number in self._stuck:
                    self._stuck.remove(number)
                else:
                    self._live[transport] -= 1
                future = self._waiting_for(number)
            else:
                self._live[transport] = self._sessions[transport] = 0
                for own, waiting in self._asked.values():
                    if own is transport:
                        _settle(waiting, WorkerLost("the process with its session ended"))
            self._changed.notify_all()
        if future is not None:
            _settle(future, outcome)

    def _waiting_for(self, number: int) -> Future[str] | None:
        return self._asked[number][1] if number in self._asked else None

    def _wait_for_one(self) -> None:
        until = time.monotonic() + FIRST_SECONDS
        while True:
            with self._lock:
                if any(self._live.values()):
                    return
                if len(self._refusals) == self.workers:
                    raise RunnerError(f"runner {self.address}: no worker supports this target: {self._refusals[0]}")
            if time.monotonic() > until:
                raise RunnerError(
                    f"runner {self.address}: none of {self.workers} workers was free for {FIRST_SECONDS:g} s"
                )
            time.sleep(_LOOK_AGAIN)


def _settle(future: Future[str], outcome: str | Exception) -> None:
    if future.done():
        return
    if isinstance(outcome, Exception):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)
