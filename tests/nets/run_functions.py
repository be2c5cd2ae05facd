"""Random functions against TVM's plain build, in processes of their own, so that a crash costs one case.

    python run_functions.py SEED CASES [PROCESSES]

Prints the seed, each failure made smaller (as the choices that draw it, for `python run_functions.py --again "[...]"`,
and as TIR), and how many cases came out how. Exit code 1 where a case failed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import traceback
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from choices import smaller

LONGEST = 60.0  # seconds of one case
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
        with ThreadPoolExecutor(1) as reader:
            try:
                self.process.stdin.write(json.dumps([given, seed]) + "\n")
                self.process.stdin.flush()
                line = reader.submit(self.process.stdout.readline).result(LONGEST)
            except (OSError, TimeoutError) as error:
                self.end()
                line = ""
                said = f"{type(error).__name__}, after {LONGEST:g} s at most"
            else:
                said = "the process ended"
        if line:
            return json.loads(line)
        self.end()
        code = self.process.returncode
        self.__init__()
        return {"failed": f"{said}, exit code {code}", "taken": given or None}

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


def run(seed: int, cases: int, processes: int = 1) -> tuple[Counter[str], list[Failure]]:
    """How so many cases came out, and those that failed, made smaller."""
    shares = [range(number, cases, processes) for number in range(processes)]
    with ThreadPoolExecutor(processes) as pool:
        parts = list(pool.map(lambda numbers: _share(seed, numbers), shares))
    total = sum((results for results, _ in parts), Counter[str]())
    return total, [failure for _, failures in parts for failure in failures]


def _share(seed: int, numbers: range) -> tuple[Counter[str], list[Failure]]:
    results, failures, child = Counter[str](), list[Failure](), Child()
    for number in numbers:
        answer = child.ask([], f"{seed} {number}")
        results.update(answer.get("results", {}))
        results["cases"] += 1
        if "failed" in answer:
            failures.append(_made_smaller(child, f"{seed} {number}", answer))
            print(f"seed {seed}, case {number}: {failures[-1].what}\n{failures[-1].given}", flush=True)
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
    seed, cases, processes = (int(text) for text in (*sys.argv[1:], "1")[:3])
    print(f"seed {seed}, {cases} cases", flush=True)
    results, failures = run(seed, cases, processes)
    print(", ".join(f"{name}: {count}" for name, count in sorted(results.items())), f"failed: {len(failures)}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
