"""Third-party models, compiled through torch.export and torch.compile and compared with eager PyTorch, and every third
through ONNX, compared with onnxruntime.

python tests/nets/torch_models.py --lists torchvision,transformers,timm --out models.jsonl
python tests/nets/torch_models.py --models "timm resnet18,transformers gpt2" --ways compile

Each model is evaluated in a separate process, forked after all imports, one way after the other. Outcomes are right,
refused (a TilingError), unexportable (torch.export fails), wrong, internal error, too long, too large, died, or not
built (the model itself does not run). If a way ends the process, the others are evaluated in a new one. Every outcome
is written to the file as a line of JSON with its seconds of processor time; --skip-done continues a file. The exit code
is 1 if any outcome is wrong, an internal error or died. Requires the packages in requirements-models.txt.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import multiprocessing
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeAlias

import psutil

WAYS = ("export", "compile", "onnx")
THROUGH_ONNX = 3  # every third
BAD = ("wrong", "internal error", "died")
WAITING = 8  # limit of elapsed time, as a multiple of the limit of processor time

Answer: TypeAlias = dict[str, Any]
Judge: TypeAlias = Callable[[str, str, Sequence[str], Connection], None]
_FORK = multiprocessing.get_context("fork")


def outcomes(
    judge: Judge, source: str, name: str, ways: Sequence[str], seconds: float, gigabytes: float
) -> Iterator[tuple[str, Answer]]:
    """Yield each way with the outcome of a model, checked by processes with these limits per way."""
    left = list(ways)
    while left:
        ours, theirs = _FORK.Pipe(duplex=False)
        process = _FORK.Process(target=judge, args=(source, name, left, theirs))
        process.start()
        theirs.close()
        try:
            why = ""
            while left and not why:
                why = _watched(ours, psutil.Process(process.pid), seconds, gigabytes * 2**30)
                if not why:
                    try:
                        yield left[0], ours.recv()
                    except EOFError:
                        break
                    left = left[1:]
            if left:
                process.kill()
                process.join()
                yield left[0], {"outcome": why} if why else {"outcome": "died", "said": f"exit code {process.exitcode}"}
                left = left[1:]
        finally:
            if left:  # when a net is about to end, or its process has been ended
                process.kill()
            process.join()


def _watched(answers: Connection, process: psutil.Process, seconds: float, most: float) -> str:
    """Wait for an answer or the end of a process; return the exceeded limit, empty if none."""
    start, until = _processor_time(process), time.monotonic() + WAITING * seconds
    while not answers.poll(0.2):
        with suppress(psutil.Error):
            if _processor_time(process) - start > seconds or time.monotonic() > until:
                return "too long"
            if process.memory_info().rss > most:
                return "too large"
    return ""


def _processor_time(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def jobs(lists: Sequence[str], models: Sequence[str], ways: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Return (list, model, way) of all requested checks."""
    from torch_model_lists import LISTS, declare_torchvision

    declare_torchvision()
    for source in lists:
        for place, name in enumerate(LISTS[source]()):
            for way in ways:
                if f"{source} {name}" in models or (not models and (way != "onnx" or place % THROUGH_ONNX == 0)):
                    yield source, name, way


def imported_judge() -> Judge:
    """Return the checking process's module, with everything imported that checking a small module imports."""
    from torch_model_worker import judge_ways, modules_used

    ours, theirs = _FORK.Pipe(duplex=False)
    process = _FORK.Process(target=modules_used, args=(WAYS, theirs))
    process.start()
    theirs.close()
    with suppress(EOFError):
        for name in ours.recv():
            with suppress(Exception):
                importlib.import_module(name)
    process.join()
    gc.freeze()
    return judge_ways


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lists", default="torchvision,transformers,timm")
    parser.add_argument("--models", help='with commas between them, each as in "timm resnet18"; all without it')
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--every", type=int, default=1, help="take every n-th model")
    parser.add_argument("--seconds", type=float, default=900, help="of processor time, for a model and way")
    parser.add_argument("--gigabytes", type=float, default=8, help="for a model and way")
    parser.add_argument("--out", type=Path, help="a file of JSON lines")
    parser.add_argument("--skip-done", action="store_true", help="leave out what the file has")
    options = parser.parse_args(arguments)
    done = set()
    if options.skip_done and options.out and options.out.exists():
        known = [json.loads(line) for line in options.out.read_text().splitlines()]
        done = {(line["list"], line["model"], line["way"]) for line in known}
    wanted: dict[tuple[str, str], list[str]] = {}
    for source, name, way in jobs(
        options.lists.split(","), (options.models or "").split(",") if options.models else [], options.ways.split(",")
    ):
        wanted.setdefault((source, name), []).append(way)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that no process is left behind
    total: Counter[str] = Counter()
    left: Counter[str] = Counter()
    judge = imported_judge()
    for source, name in list(wanted)[:: options.every]:
        ways = [way for way in wanted[source, name] if (source, name, way) not in done]
        for way, answer in outcomes(judge, source, name, ways, options.seconds, options.gigabytes):
            total[f"{way}: {answer['outcome']}"] += 1
            left.update({operator.split(" (")[0] for operator in answer.get("left", ())})
            print(f"{source} {name}, {way}: {answer['outcome']} {answer.get('said', '')[:300]}", flush=True)
            if options.out:
                with options.out.open("a") as file:
                    file.write(json.dumps({"list": source, "model": name, "way": way, **answer}) + "\n")
    for operator, models in left.most_common(20):
        print(f"left to PyTorch in {models} models: {operator}")
    print(", ".join(f"{key} {count}" for key, count in sorted(total.items())))
    return 1 if any(key.split(": ")[1] in BAD for key in total) else 0


if __name__ == "__main__":
    sys.exit(main())
