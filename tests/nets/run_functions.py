"""Random functions against TVM's plain build, in processes of their own, so that a crash costs one case.

    python run_functions.py SEED CASES [PROCESSES] [--out FILE]

The file gets a line of JSON for each case; cases that it has are not checked again, so that a run goes on where it
stopped. Prints the seed, each failure made smaller (as the choices that draw it, for
`python run_functions.py --again "[...]"`, and as TIR), and how many cases came out how. Exit code 1 where a case
failed.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import traceback
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from choices import smaller

LONGEST = 60.0  # seconds of processor time of one case, which may be paused
ATTEMPTS = 25  # to make a failure smaller


@dataclass(frozen=True)
class Failure:
    """A case that failed: the choices that draw it, where they are known, and what happened."""

    case: str
    given: list[int] | None
    what: str


class Child:
    """A process that checks one case after the other."""

    def __init__(self) -> None:
        command = [sys.executable, __file__, "--child"]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def ask(self, given: list[int], seed: str | None) -> dict:
        """What came of a case: "results" or "failed", and its choices; a case that ends the process has failed."""
        assert self.process.stdin is not None and self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps([given, seed]) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except OSError:
            line = ""
        if line:
            return json.loads(line)
        code = self.process.wait()
        self.__init__()
        late = code in (-signal.SIGPROF, -signal.SIGALRM)
        said = f"more than {LONGEST:g} s" if late else f"the process ended, exit code {code}"
        return {"failed": said, "taken": given or None}

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


def run(seed: int, cases: int, processes: int = 1, out: Path | None = None) -> tuple[Counter[str], list[Failure]]:
    """How so many cases came out, and those that failed, made smaller; `out`: a file of cases that are done."""
    done = _done(out)
    results, failures = Counter[str](), list[Failure]()
    for number in set(done) & {f"{seed} {case}" for case in range(cases)}:
        _count(done[number], results, failures)
    left = [case for case in range(cases) if f"{seed} {case}" not in done]
    with ThreadPoolExecutor(processes) as pool:
        shares = [left[number::processes] for number in range(processes)]
        for part, failed in pool.map(lambda numbers: _share(seed, numbers, out), shares):
            results += part
            failures += failed
    return results, failures


def _done(out: Path | None) -> dict[str, dict]:
    """What a file has, by case."""
    if out is None or not out.exists():
        return {}
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    return {line["case"]: line for line in lines}


def _count(line: dict, results: Counter[str], failures: list[Failure]) -> None:
    results.update(line["results"])
    results["cases"] += 1
    if line["failed"]:
        failures.append(Failure(line["case"], line["given"], line["failed"]))


def _share(seed: int, numbers: Sequence[int], out: Path | None) -> tuple[Counter[str], list[Failure]]:
    results, failures, child = Counter[str](), list[Failure](), Child()
    for number in numbers:
        case = f"{seed} {number}"
        answer = child.ask([], case)
        line: dict = {"case": case, "results": answer.get("results", {}), "failed": "", "given": None}
        if "failed" in answer:
            failure = _made_smaller(child, case, answer)
            line |= {"failed": failure.what, "given": failure.given}
            print(f"seed {seed}, case {number}: {failure.what}\n{failure.given}", flush=True)
        _count(line, results, failures)
        if out is not None:
            with out.open("a") as file:
                file.write(json.dumps(line) + "\n")
    child.end()
    return results, failures


def _made_smaller(child: Child, case: str, answer: dict) -> Failure:
    given = answer["taken"]
    if given is None:  # it ended the process: its choices are drawn again, without being checked
        given = child.ask([-1], case)["taken"]
    what = answer["failed"]

    def fails(candidate: list[int]) -> bool:
        nonlocal what
        found = child.ask(candidate, None)
        if found.get("failed", "")[:20] != what[:20]:
            return False
        what = found["failed"]
        return True

    return Failure(case, smaller(given, fails, ATTEMPTS), what)


def child() -> None:
    """Check what is asked for by standard input, one line for each case."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what others print is no answer
    import random

    from check_function import NotBuilt, check
    from choices import Choices
    from tir_functions import draw_function, numbers

    for line in sys.stdin:
        given, seed = json.loads(line)
        signal.setitimer(signal.ITIMER_PROF, LONGEST)
        signal.setitimer(signal.ITIMER_REAL, 20 * LONGEST)  # of one that waits for ever
        answer: dict = {}
        if given == [-1]:
            draw = Choices(rng=random.Random(seed))
            numbers(draw_function(draw), draw)
            answer = {"taken": draw.taken}
        else:
            try:
                results, taken = check(given, seed)
                answer = {"results": dict(results), "taken": taken}
            except NotBuilt:
                answer = {"results": {"not built by TVM alone": 1}}
            except BaseException as error:
                draw = Choices(given, None if seed is None else random.Random(seed))
                numbers(draw_function(draw), draw)
                draw.below(3), draw.below(100)
                where = traceback.extract_tb(error.__traceback__)[-1]
                said = f"{type(error).__name__} at {Path(where.filename).name}:{where.lineno}: {str(error)[:600]}"
                answer = {"failed": said, "taken": draw.taken}
        print(json.dumps(answer), file=answers, flush=True)


def main() -> int:
    if sys.argv[1] == "--child":
        child()
        return 0
    if sys.argv[1] == "--again":
        from check_function import check, text_of

        given = json.loads(sys.argv[2])
        print(text_of(given))
        print(check(given)[0])
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seed", type=int)
    parser.add_argument("cases", type=int)
    parser.add_argument("processes", type=int, nargs="?", default=1)
    parser.add_argument("--out", type=Path, help="a file that gets a line of JSON for each case; those it has are kept")
    asked = parser.parse_args()
    print(f"seed {asked.seed}, {asked.cases} cases", flush=True)
    results, failures = run(asked.seed, asked.cases, asked.processes, asked.out)
    print(", ".join(f"{name}: {count}" for name, count in sorted(results.items())), f"failed: {len(failures)}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
