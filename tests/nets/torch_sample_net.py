"""Samples judged in processes of their own, and the command of the nets that are made of samples."""

from __future__ import annotations

import argparse
import json
import select
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

WORKER = Path(__file__).with_name("torch_sample_worker.py")
TOGETHER = 16  # samples of a job
SECONDS = 300.0  # for a job
GIGABYTES = 8.0  # for a process
BAD = ("wrong", "raw error", "died", "too long", "too large")
SERVED = ("right", "left", "traced")
WAYS = ("export", "compile")


class Ended(Exception):
    """The process gave no answer: it died, or was ended because it took too long or too much memory."""


class Worker:
    """A process that judges, started anew when it has ended."""

    def __init__(self, seconds: float = SECONDS, gigabytes: float = GIGABYTES) -> None:
        self.process: subprocess.Popen[str] | None = None
        self._seconds, self._bytes = seconds, gigabytes * 2**30

    def answer(self, job: dict[str, Any]) -> dict[str, Any]:
        """The answer to a job. Raises Ended."""
        if self.process is None:
            self.process = subprocess.Popen(
                [sys.executable, str(WORKER)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(json.dumps(job) + "\n")
        self.process.stdin.flush()
        why = self._watched(self.process)
        line = "" if why else self.process.stdout.readline()
        if not line:
            self.close()
            raise Ended(why or "died")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _watched(self, process: subprocess.Popen[str]) -> str:
        """Wait for an answer, or the end of the process; which limit it passed, empty where none."""
        until, seen = time.monotonic() + self._seconds, psutil.Process(process.pid)
        while not select.select([process.stdout], [], [], 0.2)[0]:
            if time.monotonic() > until:
                return "too long"
            if seen.memory_info().rss > self._bytes:
                return "too large"
        return ""

    def close(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


@dataclass
class Tally:
    """Outcomes of the samples of one name, type and way: each a kind, what was said, and the size of the sample."""

    name: str
    dtype: str
    way: str
    outcomes: list[tuple[str, str, int]] = field(default_factory=list)

    @property
    def counts(self) -> Counter[str]:
        return Counter(kind for kind, _, _ in self.outcomes)

    @property
    def bad(self) -> list[tuple[str, str, int]]:
        return [outcome for outcome in self.outcomes if outcome[0] in BAD]

    def smallest(self) -> dict[str, tuple[int, str]]:
        """Of each kind but right, how many there are and what was said of the smallest sample; bad ones first."""
        found: dict[str, tuple[int, str]] = {}
        for kind, said, _ in sorted(self.outcomes, key=lambda outcome: (outcome[0] not in BAD, outcome[2])):
            if kind != "right":
                found.setdefault(kind, (self.counts[kind], said))
        return found


def tallies(
    worker: Worker,
    source: str,
    names: Sequence[str],
    dtypes: Sequence[str],
    ways: Sequence[str],
    seed: int,
    limit: int | None,
    only: int | None = None,
) -> Iterator[Tally]:
    """The outcomes of everything of a source for every type that it takes. `only`: of this sample alone."""
    for name in names:
        for dtype in dtypes:
            for way in ways:
                job = {"source": source, "name": name, "dtype": dtype, "seed": seed, "limit": limit, "way": way}
                tally = Tally(name, dtype, way, list(_outcomes(worker, job, only)))
                if tally.outcomes:
                    yield tally


def _outcomes(worker: Worker, job: dict[str, Any], only: int | None) -> Iterator[tuple[str, str, int]]:
    try:
        count = worker.answer({**job, "only": []})["samples"]
    except Ended as end:
        yield str(end), "its samples are not made", 0
        return
    places = list(range(count)) if only is None else [only]
    for first in range(0, len(places), TOGETHER):
        yield from _outcomes_of(worker, job, places[first : first + TOGETHER])


def _outcomes_of(worker: Worker, job: dict[str, Any], places: list[int]) -> Iterator[tuple[str, str, int]]:
    """Of several together; of each alone where the process ends."""
    try:
        yield from map(tuple, worker.answer({**job, "only": places})["outcomes"])
    except Ended as end:
        if len(places) == 1:
            yield str(end), f"sample {places[0]}", 0
            return
        for place in places:
            yield from _outcomes_of(worker, job, [place])


def served(found: Counter[str]) -> float:
    """The share of outcomes that are right, by themselves or with PyTorch's help, among those that PyTorch exports."""
    counted = found.total() - found["unexportable"]
    return sum(found[kind] for kind in SERVED) / counted if counted else 1.0


def rates(found: Counter[str]) -> str:
    """Counts of outcomes in words, with the share that is served."""
    exported = found.total() - found["unexportable"]
    return f"{100 * served(found):.1f} percent of {exported} served; {_listed(found)}"


def command(
    source: str,
    description: str | None,
    listed: Callable[[], Sequence[str]],
    dtypes: Sequence[str],
    ways: Sequence[str],
) -> int:
    """The command of a net; its exit code."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--names", help="with commas between them, or @file with one a line; all without it")
    parser.add_argument("--dtypes", default=",".join(dtypes))
    parser.add_argument("--ways", default=",".join(ways))
    parser.add_argument("--every", type=int, default=1, help="take every n-th name")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=int, help="samples of a name and type, spread over all; all without it")
    parser.add_argument("--only", type=int, help="the number of one sample of these")
    parser.add_argument("--seconds", type=float, default=SECONDS, help=f"for a job of up to {TOGETHER} samples")
    parser.add_argument("--gigabytes", type=float, default=GIGABYTES, help="for the process that judges")
    parser.add_argument("--characters", type=int, default=400, help="printed of a message")
    parser.add_argument("--out", type=Path, help="a file of JSON lines")
    options = parser.parse_args()
    if options.names is None:
        names = list(listed())
    else:
        names = Path(options.names[1:]).read_text().split() if options.names[0] == "@" else options.names.split(",")
    names, start = names[:: options.every], time.perf_counter()
    worker, totals = Worker(options.seconds, options.gigabytes), dict[str, Counter[str]]()
    wanted = options.dtypes.split(","), options.ways.split(",")
    for tally in tallies(worker, source, names, *wanted, options.seed, options.limit, options.only):
        totals.setdefault(f"{tally.dtype}, {tally.way}", Counter()).update(tally.counts)
        print(f"{tally.name} {tally.dtype}, {tally.way}: {_listed(tally.counts)}", flush=True)
        for kind, (_, said) in tally.smallest().items():
            print(f"    {kind}, the smallest: {' '.join(said.split())[: options.characters]}", flush=True)
        if options.out:
            with options.out.open("a") as file:
                lines = [{"name": tally.name, "dtype": tally.dtype, "way": tally.way, "outcomes": tally.outcomes}]
                file.writelines(json.dumps(line) + "\n" for line in lines)
    worker.close()
    print(f"seed {options.seed}, {time.perf_counter() - start:.0f} s")
    for kind, counts in totals.items():
        print(f"{kind}: {rates(counts)}")
    return 1 if any(counts[bad] for counts in totals.values() for bad in BAD) else 0


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))
