"""Recurrent layers compared with onnxruntime and PyTorch: python -m benchmarks.rnn --json results/rnn.json

LSTM and GRU with 128 to 1024 units and as many inputs, batch 1 to 32, 1 to 200 steps, or any others by name, like
gru-384-b8-s50: cell, units, batch and steps. Outputs are compared before timing. --many compares several models run by
run_many() with the same models run one after the other.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tvm_tiling.measure import Condition, Side, StopRule, machine_record, paired
from tvm_tiling.runtime.threads import own_core

from .models import Subject, compare, line, torch_subject
from .peers.tvm_operator import this_machine
from .result import write_whole
from .run import SETTLE
from .summary import geometric_mean

FORMAT, VERSION = "tvm-tiling-rnn", 1


@dataclass(frozen=True)
class Layer:
    """A layer; `cell` is "lstm" or "gru" with `hidden` units and as many inputs."""

    cell: str
    hidden: int
    batch: int
    steps: int

    @property
    def name(self) -> str:
        return f"{self.cell}-{self.hidden}-b{self.batch}-s{self.steps}"


SHORT = tuple(Layer(cell, hidden, 1, 50) for cell in ("lstm", "gru") for hidden in (128, 256, 512, 1024))
FULL = (
    *SHORT,
    *(Layer("lstm", hidden, batch, 50) for batch in (8, 32) for hidden in (128, 256, 512, 1024)),
    *(Layer("gru", 512, batch, 50) for batch in (8, 32)),
    *(Layer("lstm", 256, 1, steps) for steps in (1, 10, 200)),
)
MANY = tuple(Layer("lstm", hidden, 1, 50) for hidden in (32, 64, 128, 256, 512, 1024))
RUNS = 8  # at once, all models together


def layer_of(name: str) -> Layer | None:
    """Return the layer with this name; None if it is not the name of a layer."""
    found = re.fullmatch(r"(lstm|gru)-([1-9]\d*)-b([1-9]\d*)-s([1-9]\d*)", name)
    return Layer(found[1], *map(int, found.groups()[1:])) if found else None


def subject(name: str) -> Subject:
    """Prepare the layer with this name to be compiled and compared."""
    import torch

    layer = layer_of(name)
    assert layer is not None
    torch.manual_seed(0)
    cell = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}[layer.cell](layer.hidden, layer.hidden)

    class Outputs(torch.nn.Module):
        """Return the outputs of all steps, without the final states."""

        def __init__(self) -> None:
            super().__init__()
            self.layer = cell

        def forward(self, x: Any) -> Any:
            return self.layer(x)[0]

    return torch_subject(Outputs().eval(), (torch.randn(layer.steps, layer.batch, layer.hidden),))


def together(name: str, models: int, rule: StopRule) -> dict[str, Any]:
    """Run models of one kind RUNS times alternately: run_many(), and one after the other."""
    import tvm_tiling as tt
    from tvm_tiling.runtime.execution_policy import LEAST

    known = subject(name)
    runs = [(tt.compile(known.model, cache=False), known.inputs) for _ in range(models)] * (RUNS // models)

    def in_turn() -> None:
        for executable, inputs in runs:
            executable.run(*inputs)

    for _ in range(4 * LEAST):  # by then it has determined which way is faster
        tt.run_many(runs)
    pair = paired(Side(lambda: tt.run_many(runs), own_core), Side(in_turn, own_core), rule, Condition(settle=SETTLE))
    return {"network": name, "models": models, **pair.to_dict()}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print one line for each layer and the geometric means. Returns 1 if anything failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rnn", description=__doc__)
    parser.add_argument("layers", nargs="*", metavar="LAYER", help=f"default: {', '.join(x.name for x in SHORT)}")
    parser.add_argument("--full", action="store_true", help="measure more batches and steps")
    parser.add_argument("--many", type=int, choices=(2, 4, 8), metavar="MODELS", help="number of models to run at once")
    parser.add_argument("--json", type=Path, default=Path("results/rnn.json"), help="default: %(default)s")
    parser.add_argument(
        "--seconds", type=float, default=4.0, help="time limit per pair in seconds; default: %(default)s"
    )
    chosen = parser.parse_args(arguments)
    if unknown := [name for name in chosen.layers if layer_of(name) is None]:
        parser.error(f"no layer {unknown[0]!r}; expected a name like gru-384-b8-s50: cell, units, batch and steps")
    names = chosen.layers or [layer.name for layer in (MANY if chosen.many else FULL if chosen.full else SHORT)]
    rule, entries = StopRule(most_seconds=chosen.seconds), []
    for name in names:
        entry = together(name, chosen.many, rule) if chosen.many else compare(name, rule, subject)
        entries.append(entry)
        print(f"{name}: speedup {entry['ratio']:.2f} by run_many" if chosen.many else line(entry), flush=True)
        result = {"format": FORMAT, "version": VERSION, "machine": machine_record(this_machine()), "layers": entries}
        write_whole(chosen.json, json.dumps(result, indent=1))
    compared = [entry for entry in entries if entry["status"] == "ok"]
    for peer in dict.fromkeys(peer for entry in compared for peer in entry.get("peers", ())):
        ratios = [1 / entry["peers"][peer]["ratio"] for entry in compared]
        print(f"geometric mean of {len(ratios)}: latency {geometric_mean(ratios):.2f} relative to {peer}")
    return 0 if len(compared) == len(entries) else 1


if __name__ == "__main__":
    sys.exit(main())
