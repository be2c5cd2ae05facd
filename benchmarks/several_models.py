"""Several models in one process, in turn and side by side: python -m benchmarks.several_models a.onnx b.onnx c.onnx

In turn, one thread runs model after model; side by side, a thread for each model runs it again and again. The time of a
round, one run of every model, is divided by the sum of the times that the models take alone, on all cores. Alone, in
turn and side by side are measured in rounds, so that whatever else the machine does disturbs all of them alike.
"""

from __future__ import annotations

import argparse
import json
import statistics
import threading
import time
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

import tvm_tiling as tt
from tvm_tiling.measure import machine_record

from .result import write_whole

FORMAT, VERSION = "tvm-tiling-several-models", 1
PIECE = 0.3  # seconds of one measurement


class Model:
    """A model with random inputs."""

    def __init__(self, path: str) -> None:
        self.name = Path(path).parent.name if Path(path).stem == "model" else Path(path).stem
        self._executable = tt.load(path) if path.endswith(".tar") else tt.compile(path)
        signature, rng = self._executable.signature, np.random.default_rng(0)
        self._inputs = [
            rng.random(shape).astype(dtype)
            for shape, dtype in zip(signature.example_shapes, signature.input_dtypes, strict=True)
        ]
        self.run()

    def run(self) -> None:
        """One run."""
        self._executable.run(*self._inputs)


def alone(model: Model) -> float:
    """Median seconds of a run."""
    found: list[float] = []
    end = time.perf_counter() + PIECE
    while (start := time.perf_counter()) < end or not found:
        model.run()
        found.append(time.perf_counter() - start)
    return statistics.median(found)


def in_turn(models: Sequence[Model]) -> float:
    """Median seconds of a round."""
    found: list[float] = []
    end = time.perf_counter() + PIECE
    while (start := time.perf_counter()) < end or not found:
        for model in models:
            model.run()
        found.append(time.perf_counter() - start)
    return statistics.median(found)


def side_by_side(models: Sequence[Model], seconds: Sequence[float]) -> float:
    """Seconds beside the sum of what the same runs take on their own; each thread runs its model for PIECE seconds."""
    runs = [0] * len(models)
    begin, end = threading.Barrier(len(models)), [0.0]

    def work(number: int) -> None:
        if begin.wait() == 0:
            end[0] = time.perf_counter() + PIECE
        begin.wait()
        while time.perf_counter() < end[0]:
            models[number].run()
            runs[number] += 1

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(models))]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return (time.perf_counter() - start) / sum(count * each for count, each in zip(runs, seconds, strict=True))


def compare(models: Sequence[Model], rounds: int) -> dict[str, Any]:
    """Both ways of running these models beside the sum of their times: medians of the rounds."""
    turns, together, apart = [], [], []
    for _ in range(rounds):
        seconds = [alone(model) for model in models]
        apart.append(sum(seconds))
        turns.append(in_turn(models) / sum(seconds))
        together.append(side_by_side(models, seconds))
    return {
        "models": [model.name for model in models],
        "sum_seconds": statistics.median(apart),
        "in_turn": statistics.median(turns),
        "side_by_side": statistics.median(together),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure every pair of the models, and all of them if they are more than two."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("models", nargs="+", help="ONNX files or compiled models (.tar), at least two")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args(arguments)
    if len(given.models) < 2:
        parser.error("expected at least two models")
    if given.rounds < 1:
        parser.error(f"--rounds {given.rounds} is not supported; expected at least 1")
    models = [Model(path) for path in given.models]
    rows = [compare(pair, given.rounds) for pair in combinations(models, 2)]
    if len(models) > 2:
        rows.append(compare(models, given.rounds))
    for row in rows:
        print(
            f"{', '.join(row['models']):<60} sum {row['sum_seconds'] * 1e3:8.2f} ms   in turn {row['in_turn']:.3f}   "
            f"side by side {row['side_by_side']:.3f}",
            flush=True,
        )
    if given.json:
        record = {"format": FORMAT, "version": VERSION, "machine": machine_record(), "rows": rows}
        write_whole(given.json, json.dumps(record, indent=1))


if __name__ == "__main__":
    main()
