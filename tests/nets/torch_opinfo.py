"""PyTorch's own samples of its operators (OpInfo), compiled and compared with PyTorch run eagerly.

python tests/nets/torch_opinfo.py --operators add,nn.functional.relu --dtypes float32,int64 --seed 0

Prints, operator by operator, how many samples are right, refused (a TilingError), unexportable (torch.export fails),
wrong, ended by another error, or ended the process; and what was said. The exit code is 1 where any is wrong, raw or
died. It needs PyTorch and what its test suite imports: expecttest.
"""

from __future__ import annotations

import argparse
import json
import select
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

WORKER = Path(__file__).with_name("opinfo_worker.py")
SECONDS = 300.0  # for a job
BAD = ("wrong", "raw error", "died")


class Worker:
    """A process that judges, started anew when it has ended."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[str] | None = None

    def answer(self, job: dict[str, Any], seconds: float = SECONDS) -> dict[str, Any] | None:
        """The answer to a job; None where the process ends or takes longer."""
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
        ready, _, _ = select.select([self.process.stdout], [], [], seconds)
        line = self.process.stdout.readline() if ready else ""
        if not line:
            self.close()
            return None
        return json.loads(line)

    def close(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


@dataclass
class Tally:
    """Outcomes of one operator and type."""

    name: str
    dtype: str
    outcomes: list[tuple[str, str]] = field(default_factory=list)

    @property
    def counts(self) -> Counter[str]:
        return Counter(outcome for outcome, _ in self.outcomes)

    @property
    def bad(self) -> list[tuple[str, str]]:
        return [outcome for outcome in self.outcomes if outcome[0] in BAD]


def tallies(worker: Worker, names: Sequence[str], dtypes: Sequence[str], seed: int, limit: int) -> Iterator[Tally]:
    """The outcomes of every operator for every type that it takes."""
    for name in names:
        for dtype in dtypes:
            tally = Tally(name, dtype, _outcomes(worker, name, dtype, seed, limit))
            if tally.outcomes:
                yield tally


def _outcomes(worker: Worker, name: str, dtype: str, seed: int, limit: int) -> list[tuple[str, str]]:
    job = {"name": name, "dtype": dtype, "seed": seed, "limit": limit, "only": None}
    answer = worker.answer(job)
    if answer is not None:
        return [(outcome, text) for outcome, text in answer["outcomes"]]
    # It died of one of them: which one is found by one job each.
    outcomes: list[tuple[str, str]] = []
    for place in range(limit):
        answer = worker.answer({**job, "only": [place]})
        if answer is None:
            outcomes.append(("died", f"sample {place}"))
            continue
        outcomes += [(outcome, text) for outcome, text in answer["outcomes"]]
        if place + 1 >= answer["samples"]:
            break
    return outcomes


def known_operators() -> list[str]:
    """The names of all operators of OpInfo."""
    from opinfo_samples import operators

    return list(operators())


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--operators", help="names with commas between them, or @file with one a line; all without it")
    parser.add_argument("--dtypes", default="float32,float64,float16,bfloat16,int64,int32,bool")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=int, default=16, help="samples of an operator and type")
    parser.add_argument("--texts", type=int, default=2, help="messages printed of an operator and type")
    options = parser.parse_args(arguments)
    if options.operators is None:
        names = known_operators()
    elif options.operators.startswith("@"):
        names = Path(options.operators[1:]).read_text().split()
    else:
        names = options.operators.split(",")
    start, total, worker = time.perf_counter(), Counter[str](), Worker()
    for tally in tallies(worker, names, options.dtypes.split(","), options.seed, options.limit):
        total += tally.counts
        counts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(tally.counts.items()))
        print(f"{tally.name} {tally.dtype}: {counts}", flush=True)
        others = [f"{outcome}: {text[:400]}" for outcome, text in tally.outcomes if outcome != "right"]
        for text in list(dict.fromkeys(others))[: options.texts]:
            print(f"    {text}", flush=True)
    worker.close()
    seconds = time.perf_counter() - start
    print(f"total, seed {options.seed}, {seconds:.0f} s: {dict(total)}")
    return 1 if any(total[outcome] for outcome in BAD) else 0


if __name__ == "__main__":
    sys.exit(main())
