"""Samples checked in separate processes, and the command line of the nets that consist of samples."""

from __future__ import annotations

import argparse
import itertools
import json
import select
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil

WORKER = Path(__file__).with_name("torch_sample_worker.py")
TOGETHER = 16  # samples of a job
SECONDS = 300.0  # for a job
GIGABYTES = 8.0  # for a process
BAD = ("wrong", "internal error", "died", "too long", "too large")
SERVED = ("right", "left", "traced")
WAYS = ("export", "compile")


class Ended(Exception):
    """The process gave no answer: it died, or was ended because it exceeded a limit of time or memory."""


class Worker:
    """A process that checks samples, restarted when it has ended."""

    def __init__(self, seconds: float = SECONDS, gigabytes: float = GIGABYTES) -> None:
        self.process: subprocess.Popen[str] | None = None
        self._seconds, self._bytes = seconds, gigabytes * 2**30
        self._ended = 0.0

    @property
    def processor_seconds(self) -> float:
        """Processor time of all processes so far; for those that ended, without the job in which they ended."""
        return self._ended + self._running

    @property
    def _running(self) -> float:
        try:
            return sum(psutil.Process(self.process.pid).cpu_times()) if self.process else 0.0
        except psutil.Error:
            return 0.0

    def answer(self, job: dict[str, Any]) -> Any:
        """Return the answer to a job. Raises Ended."""
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
        return json.loads(line)

    def _watched(self, process: subprocess.Popen[str]) -> str:
        """Wait for an answer, or the end of the process; return the exceeded limit, empty if none."""
        until, seen = time.monotonic() + self._seconds, psutil.Process(process.pid)
        while not select.select([process.stdout], [], [], 0.2)[0]:
            if time.monotonic() > until:
                return "too long"
            if seen.memory_info().rss > self._bytes:
                return "too large"
        return ""

    def close(self) -> None:
        if self.process is not None:
            self._ended += self._running
            self.process.kill()
            self.process.wait()
            self.process = None


@dataclass
class Tally:
    """Outcomes of the samples of one name, type and way: each a kind, the message, and the size of the sample."""

    name: str
    dtype: str
    way: str
    outcomes: list[tuple[str, str, int]] = field(default_factory=list)
    seconds: float = 0.0  # of processor time

    @property
    def counts(self) -> Counter[str]:
        return Counter(kind for kind, _, _ in self.outcomes)

    @property
    def bad(self) -> list[tuple[str, str, int]]:
        return [outcome for outcome in self.outcomes if outcome[0] in BAD]

    def smallest(self) -> dict[str, tuple[int, str]]:
        """Return for each kind except right the number and the message of the smallest sample; bad ones first."""
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
    done: Collection[tuple[str, str, str]] = (),
) -> Iterator[Tally]:
    """Yield the outcomes of a source for every type, except for names, types and ways that are `done`; none if a name
    has no sample of a type. `only`: of this sample alone."""
    given = {"source": source, "seed": seed, "limit": limit}
    for way, dtype in itertools.product(ways, dtypes):
        waiting: list[tuple[Tally, int]] = []  # samples for the next job
        open_tallies: list[Tally] = []  # whose samples are not all checked, in order
        for name in names:
            if (name, dtype, way) in done:
                continue
            start = worker.processor_seconds
            tally = Tally(name, dtype, way)
            open_tallies.append(tally)
            try:
                count = worker.answer({**given, "count": [name, dtype]})
            except Ended as end:
                tally.outcomes.append((str(end), "its samples are not made", 0))
                count = 0
            tally.seconds += worker.processor_seconds - start
            waiting += [(tally, place) for place in (range(count) if only is None else [only])]
            while len(waiting) >= TOGETHER:
                _judge(worker, {**given, "way": way}, waiting[:TOGETHER])
                waiting = waiting[TOGETHER:]
                while open_tallies and not any(tally is open_tallies[0] for tally, _ in waiting):
                    yield open_tallies.pop(0)
        if waiting:
            _judge(worker, {**given, "way": way}, waiting)
        yield from open_tallies


def _judge(worker: Worker, job: dict[str, Any], samples: Sequence[tuple[Tally, int]]) -> None:
    """Check samples together, individually if the process ends, and add their outcomes to their tallies."""
    start = worker.processor_seconds
    for (tally, _), outcome in zip(samples, _outcomes_of(worker, job, samples), strict=True):
        if outcome is not None:
            tally.outcomes.append(outcome)
    share = (worker.processor_seconds - start) / len(samples)
    for tally, _ in samples:
        tally.seconds = round(tally.seconds + share, 3)


def known_tallies(lines: Iterable[str]) -> list[Tally]:
    """Return what the lines of a file of outcomes contain."""
    return [Tally(**json.loads(line)) for line in lines]


def _outcomes_of(
    worker: Worker, job: dict[str, Any], samples: Sequence[tuple[Tally, int]]
) -> list[tuple[str, str, int] | None]:
    """Check several together; individually if the process ends. None: PyTorch itself refuses the sample."""
    try:
        found = worker.answer({**job, "samples": [(tally.name, tally.dtype, place) for tally, place in samples]})
        return [None if outcome is None else tuple(outcome) for outcome in found]
    except Ended as end:
        if len(samples) == 1:
            return [(str(end), f"sample {samples[0][1]}", 0)]
        return [outcome for sample in samples for outcome in _outcomes_of(worker, job, [sample])]


def served(found: Counter[str]) -> float:
    """Return the share of right outcomes, including those with PyTorch's help, among the samples that PyTorch
    exports."""
    counted = found.total() - found["unexportable"]
    return sum(found[kind] for kind in SERVED) / counted if counted else 1.0


def rates(found: Counter[str]) -> str:
    """Describe counts of outcomes, with the supported share."""
    exported = found.total() - found["unexportable"]
    return f"{100 * served(found):.1f} percent of {exported} served; {_listed(found)}"


def command(
    source: str,
    description: str | None,
    listed: Callable[[], Sequence[str]],
    dtypes: Sequence[str],
    ways: Sequence[str],
) -> int:
    """Run the command line of a net; return its exit code."""
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
    parser.add_argument("--out", type=Path, help="a file of JSON lines, one for each name, type and way")
    parser.add_argument("--skip-done", action="store_true", help="go on with that file")
    options = parser.parse_args()
    if options.names is None:
        names = list(listed())
    else:
        names = Path(options.names[1:]).read_text().split() if options.names[0] == "@" else options.names.split(",")
    worker, wanted = Worker(options.seconds, options.gigabytes), (options.dtypes.split(","), options.ways.split(","))
    found: list[Tally] = []
    if options.skip_done and options.out and options.out.exists():
        found = known_tallies(options.out.read_text().splitlines())
    done = {(tally.name, tally.dtype, tally.way) for tally in found}
    given = options.seed, options.limit, options.only, done
    for tally in tallies(worker, source, names[:: options.every], *wanted, *given):
        found.append(tally)
        if tally.outcomes:
            print(f"{tally.name} {tally.dtype}, {tally.way}: {_listed(tally.counts)}", flush=True)
        for kind, (_, said) in tally.smallest().items():
            print(f"    {kind}, the smallest: {' '.join(said.split())[: options.characters]}", flush=True)
        if options.out:
            with options.out.open("a") as file:
                file.write(json.dumps(asdict(tally)) + "\n")
    worker.close()
    print(f"seed {options.seed}, {sum(tally.seconds for tally in found):.0f} s of processor time")
    totals: dict[str, Counter[str]] = {}
    for tally in found:
        totals.setdefault(f"{tally.dtype}, {tally.way}", Counter()).update(tally.counts)
    for kind, counts in totals.items():
        print(f"{kind}: {rates(counts)}")
    return 1 if any(counts[bad] for counts in totals.values() for bad in BAD) else 0


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))
