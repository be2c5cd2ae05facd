"""Models that others wrote, compiled by torch.export and by torch.compile, beside PyTorch run eagerly, and every third
through ONNX, beside onnxruntime.

python tests/nets/torch_models.py --lists torchvision,transformers,timm --out models.jsonl
python tests/nets/torch_models.py --models "timm resnet18,transformers gpt2" --ways compile

Each model and way is judged in a process of its own: right, refused (a TilingError), unexportable (torch.export fails),
wrong, raw error, too long, too large, died, or not built (the model itself does not run). Every outcome is written to
the file as a line of JSON; --skip-done goes on with a file. The exit code is 1 where any is wrong, raw or died. Needs
what requirements-models.txt lists.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil

WORKER = Path(__file__).with_name("torch_model_worker.py")
WAYS = ("export", "compile", "onnx")
THROUGH_ONNX = 3  # every third
BAD = ("wrong", "raw error", "died")


def judge(source: str, name: str, way: str, seconds: float, gigabytes: float) -> dict[str, Any]:
    """The outcome of a model in a process with these limits."""
    start = time.monotonic()
    with tempfile.TemporaryFile("w+") as out:
        process = subprocess.Popen(
            [sys.executable, str(WORKER), source, name, way], stdout=out, stderr=subprocess.DEVNULL, text=True
        )
        outcome = _watched(process, start + seconds, gigabytes * 2**30)
        if outcome:
            process.kill()
            process.wait()
            return {"outcome": outcome}
        out.seek(0)
        lines = [line for line in out.read().splitlines() if line.startswith("{")]
    if not lines:
        return {"outcome": "died", "said": f"exit code {process.returncode}"}
    answer: dict[str, Any] = json.loads(lines[-1])
    return answer


def _watched(process: subprocess.Popen[str], until: float, most: float) -> str:
    """Wait for a process; which limit it passed, empty where it ended by itself."""
    seen = psutil.Process(process.pid)
    while process.poll() is None:
        if time.monotonic() > until:
            return "too long"
        try:
            if seen.memory_info().rss > most:
                return "too large"
        except psutil.NoSuchProcess:
            break
        time.sleep(0.2)
    process.wait()
    return ""


def jobs(lists: Sequence[str], models: Sequence[str], ways: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """(list, model, way) of all that is asked for."""
    from torch_model_lists import LISTS, declare_torchvision

    declare_torchvision()
    for source in lists:
        for place, name in enumerate(LISTS[source]()):
            for way in ways:
                if f"{source} {name}" in models or (not models and (way != "onnx" or place % THROUGH_ONNX == 0)):
                    yield source, name, way


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lists", default="torchvision,transformers,timm")
    parser.add_argument("--models", help='with commas between them, each as in "timm resnet18"; all without it')
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--every", type=int, default=1, help="take every n-th model")
    parser.add_argument("--seconds", type=float, default=900, help="for a model and way")
    parser.add_argument("--gigabytes", type=float, default=8, help="for a model and way")
    parser.add_argument("--out", type=Path, help="a file of JSON lines")
    parser.add_argument("--skip-done", action="store_true", help="leave out what the file has")
    options = parser.parse_args(arguments)
    done = set()
    if options.skip_done and options.out and options.out.exists():
        known = [json.loads(line) for line in options.out.read_text().splitlines()]
        done = {(line["list"], line["model"], line["way"]) for line in known}
    wanted = list(
        jobs(
            options.lists.split(","),
            (options.models or "").split(",") if options.models else [],
            options.ways.split(","),
        )
    )
    chosen = set(list(dict.fromkeys((source, name) for source, name, _ in wanted))[:: options.every])
    total: Counter[str] = Counter()
    left: Counter[str] = Counter()
    for source, name, way in wanted:
        if (source, name) not in chosen or (source, name, way) in done:
            continue
        answer = judge(source, name, way, options.seconds, options.gigabytes)
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
