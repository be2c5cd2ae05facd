"""A tracker and workers on this machine, each in its own process, for experiments and for other machines to join."""

from __future__ import annotations

import functools
import importlib.util
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ...figures import quantity
from ..measuring.lean_tvm import without_torch
from ..measuring.local import LocalBench
from ..measuring.runner import Address, RunnerError
from .answering import Measuring, Predicting
from .tracker import workers_at

LOOPBACK = "127.0.0.1"
START_SECONDS = 60.0
SOON = 30.0  # seconds: a worker that ends earlier has not started to work
MOST_SOON = 3  # consecutive early ends after which a worker is not restarted
THREADS = 28  # predicting workers per process; TVM supports 32 sessions in each


class Fleet:
    """A tracker with workers: `measuring` processes that use this machine, or `predicting` ones that answer by
    prediction after `delay` seconds. RunnerError if they do not start."""

    def __init__(
        self,
        *,
        key: str = "cpu",
        measuring: int = 0,
        predicting: int = 0,
        delay: float = 0.0,
        host: str = LOOPBACK,
        port: int = 0,
        per_process: int = THREADS,
    ) -> None:
        """`host` and `port` are the tracker's; port 0 is any free one. `per_process`: predicting workers per
        process."""
        if importlib.util.find_spec("tornado") is None:
            raise RunnerError("fleet: TVM's tracker needs tornado; use pip install 'tvm-tiling[rpc]'")
        try:
            listener = socket.create_server((host, port), backlog=1024)
        except OSError as error:
            raise RunnerError(
                f"fleet: cannot start a tracker at {host}:{port} ({error.strerror or error}); expected a "
                "free port of this machine"
            ) from None
        self._begun: list[_Begun] = []
        with listener:
            self.address = Address(host, listener.getsockname()[1], key)
            self.tracker = _started("tracker_main", str(listener.fileno()), keep=(listener.fileno(),))
        try:
            sizes = [per_process] * (predicting // per_process) + [predicting % per_process]
            starts = [lambda: join(self.address)] * measuring
            starts += [functools.partial(self._predicting, size, delay) for size in sizes if size]
            for start in starts:
                self._begun.append(_Begun(start, start(), time.monotonic()))
            self._wait(measuring + predicting)
        except BaseException:
            self.close()
            raise

    @property
    def workers(self) -> list[subprocess.Popen[bytes]]:
        """The processes of the workers."""
        return [begun.process for begun in self._begun]

    @property
    def processes(self) -> list[subprocess.Popen[bytes]]:
        """The process of the tracker and those of the workers."""
        return [self.tracker, *self.workers]

    def keep_up(self) -> list[str]:
        """Restart workers that have ended. Return a sentence for each; the others are not disturbed. RunnerError if the
        tracker has ended, or a worker keeps ending as soon as it is started."""
        if self.tracker.poll() is not None:
            raise RunnerError(f"fleet: the tracker {ending(self.tracker)}, so the workers can no longer be found")
        told = []
        for number, begun in enumerate(self._begun, start=1):
            if begun.process.poll() is None:
                continue
            what = f"worker {number} (process {begun.process.pid}) {ending(begun.process)}"
            begun.soon = begun.soon + 1 if time.monotonic() - begun.since < SOON else 0
            if begun.soon >= MOST_SOON:
                raise RunnerError(f"fleet: {what}, {MOST_SOON} times in a row immediately after its start")
            if begun.process.stdin is not None:
                begun.process.stdin.close()
            begun.process, begun.since = begun.start(), time.monotonic()
            told.append(f"{what}; process {begun.process.pid} replaces it")
        return told

    def _predicting(self, size: int, delay: float) -> subprocess.Popen[bytes]:
        return _started("predicting_main", str(self.address), str(size), str(delay))

    def _wait(self, wanted: int) -> None:
        until = time.monotonic() + START_SECONDS
        while wanted:
            try:
                if workers_at(self.address) >= wanted:
                    return
            except RunnerError:
                pass
            if time.monotonic() > until or any(process.poll() is not None for process in self.processes):
                raise RunnerError(f"fleet: not all of {quantity(wanted, 'worker')} registered at {self.address}")
            time.sleep(0.05)

    def close(self) -> None:
        """End all processes."""
        end(self.processes)
        for process in self.processes:
            if process.stdin is not None:
                process.stdin.close()

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass
class _Begun:
    """The process of a worker, how to start it, when it was started, and how often in a row it ended early."""

    start: Callable[[], subprocess.Popen[bytes]]
    process: subprocess.Popen[bytes]
    since: float
    soon: int = 0


def end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """End processes, by force those that have not ended after 5 seconds: one that is just starting may lose the
    signal."""
    for process in processes:
        process.terminate()
    for process in processes:
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def ending(process: subprocess.Popen[bytes]) -> str:
    """Return how a process ended."""
    code = process.returncode
    if code is not None and code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"ended with code {code}"


def join(address: Address, host: str = LOOPBACK) -> subprocess.Popen[bytes]:
    """Start a process that measures on this machine for a tracker; `host` is its address for sessions."""
    return _started("measuring_main", str(address), host)


def _started(function: str, *arguments: str, keep: tuple[int, ...] = ()) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", f"from {__name__} import {function}; {function}()", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=keep,
    )


# ---- in the processes ------------------------------------------------------------------------------------------------


def _prepare() -> None:
    """End with the parent, and cleanly on SIGTERM; leave Ctrl-C to the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    threading.Thread(target=_end_with_parent, daemon=True).start()
    without_torch()


def _end_with_parent() -> None:
    sys.stdin.buffer.read()
    os.kill(os.getpid(), signal.SIGTERM)


def tracker_main() -> None:
    """Run a tracker on a socket that is already listening, so that early clients wait."""
    import asyncio

    _prepare()
    from tvm.rpc.tracker import TrackerServerHandler

    asyncio.set_event_loop(asyncio.new_event_loop())
    TrackerServerHandler(socket.socket(fileno=int(sys.argv[1])), "never stopped by a client").run()


def measuring_main() -> None:
    """Measure on this machine for a tracker."""
    _prepare()
    address, host = Address.parse(sys.argv[1]), sys.argv[2]
    bench = LocalBench()
    bench.start()
    try:
        answers = Measuring(bench)
        _serve([address], answers, host)
    finally:
        bench.close()


def predicting_main() -> None:
    """Answer by prediction, with the requested number of workers, one thread each."""
    _prepare()
    address, workers, delay = Address.parse(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    _serve([address] * workers, Predicting(delay), LOOPBACK)


def _serve(addresses: list[Address], answers: Any, host: str) -> None:
    from .worker import Worker, provide, told_of

    provide(told_of(answers.hold), answers.supports)
    workers = [Worker((address.host, address.port), address.key, host) for address in addresses]
    threads = [threading.Thread(target=worker.serve, daemon=True) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
