"""Decoders with weights of 4 or 8 bits beside onnxruntime: tokens of a prompt and of generation.

    python -m benchmarks.language_models qwen2-0.5b llama-542m --bits 4 8 --level 0 4

Models are made here as onnxruntime-genai's builder writes them, with random weights (language_graph.py). A token
behind a context, which reads every weight once, and prompts are run in turns with onnxruntime, on as many threads; our
caches are updated in place, onnxruntime's are passed on. Logits are compared first. Bytes a second are those of
weights and scales that a token reads.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import tvm_tiling as tt
from tvm_tiling.cli.table import print_table
from tvm_tiling.measure import Condition, Side, Status, paired
from tvm_tiling.runtime.threads import own_core

from .language_graph import DECODERS, Decoder, decoder, with_weights
from .peers.onnxruntime_peer import session_options
from .run import SETTLE


@dataclass(frozen=True)
class Row:
    """One length: `new` tokens behind `past`, ms of a run, the part of onnxruntime's time, GB/s of weights."""

    past: int
    new: int
    ms: float
    peer: float
    rate: float


def inputs_of(sizes: Decoder, past: int, new: int) -> dict[str, np.ndarray]:
    """Random tokens, and random caches of `past` tokens."""
    rng = np.random.default_rng(past + new)
    shape = (1, sizes.groups, past, sizes.head)
    found = {
        "input_ids": rng.integers(0, sizes.words, (1, new)),
        "attention_mask": np.ones((1, past + new), np.int64),
    }
    for number in range(sizes.layers):
        for name in ("key", "value"):
            found[f"past_key_values.{number}.{name}"] = rng.standard_normal(shape, np.float32)
    return found


def in_place(executable: tt.Executable, sizes: Decoder, given: dict[str, np.ndarray], past: int, new: int) -> Any:
    """A step of a session whose caches hold the given ones, to be run again and again."""
    session = executable.session(room=past + new)
    caches = {}
    for name, value in given.items():
        if name.startswith("past"):
            room = np.zeros((1, sizes.groups, past + new, sizes.head), np.float32)
            room[:, :, :past] = value
            caches[name] = room
    ids = {name: given[name] for name in ("input_ids", "attention_mask")}
    session.run(**ids, **caches)
    return lambda: session.run(**ids)


def measured(sizes: Decoder, lengths: Sequence[tuple[int, int]]) -> tuple[list[Row], float]:
    """A row for each (past, new), and the seconds that compiling takes."""
    import onnxruntime

    model = decoder(sizes)
    start = time.perf_counter()
    executable = tt.compile(model, cache=False)
    seconds = time.perf_counter() - start
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), session_options(), providers=["CPUExecutionProvider"]
    )
    del model
    rows = []
    for past, new in lengths:
        given = inputs_of(sizes, past, new)
        step = in_place(executable, sizes, given, past, new)
        wanted, found = session.run(["logits"], given)[0], step()
        far = np.linalg.norm(found - wanted) / np.linalg.norm(wanted)
        if not far < (1e-3 if sizes.level == 0 else 0.1):
            raise SystemExit(f"past {past}, new {new}: logits are {far:.2g} from onnxruntime's")
        pair = paired(
            Side(step, own_core), Side(lambda given=given: session.run(None, given)), condition=Condition(settle=SETTLE)
        )
        if pair.status is not Status.OK:
            raise SystemExit(f"past {past}, new {new}: {pair.reason}")
        ms = 1e3 * pair.ours.median
        rows.append(Row(past, new, ms, 1 / pair.ratio, sizes.bytes_of_a_step / ms / 1e6 if new == 1 else math.nan))
    return rows, seconds


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.language_models", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("model", nargs="*", choices=[[], *DECODERS], default=["qwen2-0.5b"])
    parser.add_argument("--bits", type=int, nargs="*", default=[4], choices=(4, 8), help="of a weight (default: 4)")
    parser.add_argument("--level", type=int, nargs="*", default=[0, 4], help="accuracy_level (default: 0 and 4)")
    parser.add_argument("--block", type=int, default=32, help="weights that share a scale (default: 32)")
    parser.add_argument("--context", type=int, default=512, help="tokens behind which one is generated (default: 512)")
    parser.add_argument("--prompt", type=int, nargs="*", default=[128, 512], help="tokens of prompts")
    given = parser.parse_args(arguments)
    lengths = [(given.context, 1), *((0, length) for length in given.prompt)]
    for name in given.model:
        for bits in given.bits:
            for level in given.level:
                sizes = with_weights(DECODERS[name], bits, given.block, level)
                rows, seconds = measured(sizes, lengths)
                print(f"\n{name}, {bits} bits, accuracy_level {level}: compiled in {seconds:.1f} s")
                print_table(
                    ("past", "new", "ms", "tokens/s", "of onnxruntime", "GB/s"),
                    [
                        (
                            str(row.past),
                            str(row.new),
                            f"{row.ms:.2f}",
                            f"{1e3 * row.new / row.ms:.1f}",
                            f"{row.peer:.2f}",
                            "" if math.isnan(row.rate) else f"{row.rate:.1f}",
                        )
                        for row in rows
                    ],
                )
    return 0


if __name__ == "__main__":
    sys.exit(main())
