"""Processes that run the same network with one library each, in turns, so that their threads do not disturb each other.

A process that loads a library, or the network in it, may crash or hang: its row then says so, and the others continue.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from tvm_tiling.measure import Condition, Side, StopRule, Timing, first_line, timed
from tvm_tiling.runtime.threads import own_core

from .network_files import Network
from .peers.network import NetworkPeer

REST = 0.12  # seconds between the sides: longer than the threads of any library spin
CONVERT, LOAD, RUN = "convert", "load", "run"


@dataclass
class Player:
    """One library with the network in its own process. `seconds`: medians of its turns; `failure`: why it has none;
    `far`: the largest error of its outputs relative to the largest element."""

    peer: type[NetworkPeer]
    network: Network
    cores: int
    failure: str = ""
    far: float = float("nan")
    seconds: list[float] = field(default_factory=list)
    disturbed: float = 0.0

    def __post_init__(self) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._pipe, theirs = spawn.Pipe()
        self._process = spawn.Process(target=_serve, args=(theirs, self.peer, self.network, self.cores), daemon=False)
        self._process.start()
        theirs.close()

    def ask(self, what: Any, seconds: float) -> Any:
        """Return the process's answer; None if there is none within `seconds` seconds, and `failure` then has the
        reason."""
        if self.failure:
            return None
        try:
            self._pipe.send(what)
            if not self._pipe.poll(seconds):
                self.failure = f"no answer to {what} in {seconds:.0f} s"
                return None
            answer = self._pipe.recv()
        except (EOFError, OSError):
            self._process.join(5)
            self.failure = f"its process ended with {self._process.exitcode}"
            return None
        if isinstance(answer, str):
            self.failure = answer
            return None
        return answer

    def turn(self, seconds: float) -> float | None:
        """Return the median run time, in seconds, of one turn of about `seconds` seconds."""
        timing = self.ask((RUN, seconds), 60 + 20 * seconds)
        if timing is None:
            return None
        self.seconds.append(timing.median)
        self.disturbed = max(self.disturbed, timing.disturbed_share)
        return float(timing.median)

    def close(self) -> None:
        """End the process."""
        with contextlib.suppress(OSError):
            self._pipe.close()
        self._process.join(5)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


def take_turns(players: Sequence[Player], rounds: int, seconds: float) -> None:
    """Run all that have not failed, `rounds` times for `seconds` each, one after the other; odd rounds run in reverse
    order."""
    for number in range(rounds):
        for player in players if number % 2 == 0 else list(reversed(players)):
            if not player.failure:
                player.turn(seconds)
                time.sleep(REST)


# ---- in the process --------------------------------------------------------------------------------------------------


def _serve(pipe: Connection, peer: type[NetworkPeer], network: Network, cores: int) -> None:
    """Answer until the other end is closed. A failure is answered by a sentence. Output of libraries goes to a file."""
    network.folder.mkdir(parents=True, exist_ok=True)
    with open(network.folder / f"{peer.name}.log", "w") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    run: Any = None
    while True:
        try:
            asked = pipe.recv()
        except EOFError:
            return
        try:
            if asked == CONVERT:
                peer.convert(network)
                answer: Any = True
            elif asked == LOAD:
                start = time.perf_counter()
                run = peer.load(network, cores)
                far = distance(run(), network.outputs())
                answer = (time.perf_counter() - start, far)
            else:
                answer = _timed(run, asked[1])
        except BaseException as error:  # a converter may raise anything, even SystemExit
            answer = f"{type(error).__name__}: {first_line(error)}"[:300]
        pipe.send(answer)


def _timed(run: Any, seconds: float) -> Timing:
    run()
    rule = StopRule(least_pairs=3, most_pairs=10_000, most_seconds=seconds, spread=0.0)
    return timed(Side(run, own_core), rule, Condition())


def distance(found: Sequence[Any], expected: Sequence[np.ndarray]) -> float:
    """Return the largest difference of any output relative to its largest element; shapes may differ by axes of size
    1."""
    if len(found) != len(expected):
        return float("inf")
    worst = 0.0
    for one, right in zip(found, expected, strict=True):
        one = np.asarray(one, np.float64)
        if one.size != right.size:
            return float("inf")
        scale = max(float(np.abs(right).max()), 1e-30)
        gap = float(np.abs(one.reshape(right.shape) - right).max()) / scale
        worst = max(worst, gap) if gap == gap else float("inf")
    return worst
