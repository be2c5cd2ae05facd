"""Random cases compared with other implementations, in separate processes, so that a crash costs one case:
tensor-expression functions compared with TVM's plain build, nodes of language models compared with onnxruntime.

    python run_functions.py SEED CASES [PROCESSES] [--of language] [--out FILE]

The file gets a line of JSON for each case; cases that it contains are not checked again, so that a run continues where
it stopped. Prints the seed, each shrunk failure (as choices, for `python run_functions.py --again "[...]"`, and as
text), and the number of cases by outcome. The exit code is 1 if a case failed.
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
from importlib import import_module
from pathlib import Path

from choices import smaller

KINDS = {"functions": "check_function", "language": "check_language"}
LONGEST = 60.0  # seconds of processor time of one case, which may be paused
ATTEMPTS = 25  # to shrink a failure


@dataclass(frozen=True)
class Failure:
    """A case that failed: its choices, if they are known, and what happened."""

    case: str
    given: list[int] | None
    what: str


class Child:
    """A process that checks one case after the other."""

    def __init__(self, of: str) -> None:
        self.of, command = of, [sys.executable, __file__, "--child", of]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def ask(self, given: list[int], seed: str | None) -> dict:
        """Return the outcome of a case: "results" or "failed", and its choices; a case that ends the process has
        failed."""
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
        self.__init__(self.of)
        late = code in (-signal.SIGPROF, -signal.SIGALRM)
        said = f"more than {LONGEST:g} s" if late else f"the process ended, exit code {code}"
        return {"failed": said, "taken": given or None}

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


def run(
    seed: int, cases: int, processes: int = 1, out: Path | None = None, of: str = "functions"
) -> tuple[Counter[str], list[Failure]]:
    """Return the number of cases by outcome, and the shrunk failures; `out`: a file of finished cases."""
    done = _done(out)
    results, failures = Counter[str](), list[Failure]()
    for number in set(done) & {f"{seed} {case}" for case in range(cases)}:
        _count(done[number], results, failures)
    left = [case for case in range(cases) if f"{seed} {case}" not in done]
    with ThreadPoolExecutor(processes) as pool:
        shares = [left[number::processes] for number in range(processes)]
        for part, failed in pool.map(lambda numbers: _share(seed, numbers, out, of), shares):
            results += part
            failures += failed
    return results, failures


def _done(out: Path | None) -> dict[str, dict]:
    """Return the contents of a file, by case."""
    if out is None or not out.exists():
        return {}
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    return {line["case"]: line for line in lines}


def _count(line: dict, results: Counter[str], failures: list[Failure]) -> None:
    results.update(line["results"])
    results["cases"] += 1
    if line["failed"]:
        failures.append(Failure(line["case"], line["given"], line["failed"]))


def _share(seed: int, numbers: Sequence[int], out: Path | None, of: str) -> tuple[Counter[str], list[Failure]]:
    results, failures, child = Counter[str](), list[Failure](), Child(of)
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


def child(of: str) -> None:
    """Check the cases requested on standard input, one line each."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # output of libraries is not an answer
    judge = import_module(KINDS[of])
    for line in sys.stdin:
        given, seed = json.loads(line)
        signal.setitimer(signal.ITIMER_PROF, LONGEST)
        signal.setitimer(signal.ITIMER_REAL, 20 * LONGEST)  # of one that waits forever
        answer: dict = {}
        if given == [-1]:
            answer = {"taken": judge.drawn([], seed)[1].taken}
        else:
            try:
                results, taken = judge.check(given, seed)
                answer = {"results": dict(results), "taken": taken}
            except judge.NotJudged:
                answer = {"results": {"not judged": 1}}
            except BaseException as error:
                where = traceback.extract_tb(error.__traceback__)[-1]
                said = f"{type(error).__name__} at {Path(where.filename).name}:{where.lineno}: {str(error)[:600]}"
                answer = {"failed": said, "taken": judge.drawn(given, seed)[1].taken}
        print(json.dumps(answer), file=answers, flush=True)


def main() -> int:
    if sys.argv[1] == "--child":
        child(sys.argv[2])
        return 0
    if sys.argv[1] == "--again":
        judge, given = import_module(KINDS[(sys.argv[3:] or ["functions"])[0]]), json.loads(sys.argv[2])
        print(judge.text_of(given))
        print(judge.check(given)[0])
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seed", type=int)
    parser.add_argument("cases", type=int)
    parser.add_argument("processes", type=int, nargs="?", default=1)
    parser.add_argument("--of", choices=list(KINDS), default="functions", help="what is drawn (default: functions)")
    parser.add_argument("--out", type=Path, help="a file that gets a line of JSON for each case; those it has are kept")
    asked = parser.parse_args()
    print(f"seed {asked.seed}, {asked.cases} cases", flush=True)
    results, failures = run(asked.seed, asked.cases, asked.processes, asked.out, asked.of)
    print(", ".join(f"{name}: {count}" for name, count in sorted(results.items())), f"failed: {len(failures)}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
