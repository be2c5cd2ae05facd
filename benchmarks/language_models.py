"""Decoders with 4-bit and 8-bit weights compared with other libraries: prompt processing and token generation.

    python -m benchmarks.language_models qwen2-0.5b llama-542m --bits 4 8 --level 0 4 --peer onnxruntime genai openvino

Models have random weights and the layout of onnxruntime-genai's model builder (language_graph.py); for llama.cpp they
are GGUF files (language_gguf.py). Generation of one token after a context, which reads every weight once, and prompts
run alternately with each peer on the same number of threads. The logits of the last position are compared first. The
bandwidth counts the weights, scales and caches that a token reads; with --reading it is compared with a loop that reads
as many bytes.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx

import tvm_tiling as tt
from tvm_tiling.cli.table import print_table
from tvm_tiling.measure import Condition, Side, Status, paired
from tvm_tiling.runtime.threads import own_core

from .language_graph import DECODERS, Decoder, decoder, with_weights
from .peers.decoder import DecoderPeer, Step, missing
from .peers.decoder_genai import GenaiDecoder
from .peers.decoder_llama import LlamaDecoder
from .peers.decoder_onnxruntime import OnnxRuntimeDecoder
from .peers.decoder_openvino import OpenVinoDecoder
from .reading import reader
from .run import SETTLE

PEERS: dict[str, type[DecoderPeer]] = {
    peer.name: peer for peer in (OnnxRuntimeDecoder, GenaiDecoder, OpenVinoDecoder, LlamaDecoder)
}


READING = "reading alone"


@dataclass(frozen=True)
class Row:
    """One length compared with one peer: `new` tokens after `past`, ms per run, latency relative to the peer's."""

    peer: str
    past: int
    new: int
    ms: float
    part: float
    far: float


def step_of(executable: tt.Executable, past: np.ndarray, new: np.ndarray) -> Step:
    """Return a step of a session whose caches hold the past, which can be run repeatedly."""
    every = len(past) + len(new)
    session = executable.session(room=every)
    if len(past):
        session.run(input_ids=past[None], attention_mask=np.ones((1, len(past)), np.int64))
    given = {"input_ids": new[None], "attention_mask": np.ones((1, every), np.int64)}
    return lambda: session.run(**given)[0, -1]


def measured(
    executable: tt.Executable, peer: DecoderPeer, sizes: Decoder, lengths: Sequence[tuple[int, int]]
) -> Iterable[Row]:
    """Measure a row for each (past, new)."""
    for past, new in lengths:
        tokens = np.random.default_rng(past + new).integers(0, sizes.words, past + new)
        ours = step_of(executable, tokens[:past], tokens[past:])
        theirs = peer.step(tokens[:past], tokens[past:])
        wanted, found = theirs(), ours()
        far = float(np.linalg.norm(found - wanted) / np.linalg.norm(wanted))
        # Rows quantised to 8 bits, by us or by the peer, differ from float rows by at most a tenth; onnxruntime at
        # level 0 uses floats.
        if not far < (1e-3 if sizes.level == 0 and peer.name in ("onnxruntime", "genai") else 0.2):
            raise SystemExit(f"past {past}, new {new}: logits differ from {peer.name}'s by {far:.2g}")
        pair = paired(Side(ours, own_core), Side(theirs), condition=Condition(settle=SETTLE))
        if pair.status is not Status.OK:
            raise SystemExit(f"past {past}, new {new}: {pair.reason}")
        yield Row(peer.name, past, new, 1e3 * pair.ours.median, 1 / pair.ratio, far)


def beside_reading(executable: tt.Executable, sizes: Decoder, past: int) -> Row:
    """Measure a token after `past` ones alternately with a loop that reads as many bytes; return its time and the share
    that reading takes."""
    tokens = np.random.default_rng(past).integers(0, sizes.words, past + 1)
    read = reader(int(sizes.bytes_of_a_step(past)))
    ours = Side(step_of(executable, tokens[:past], tokens[past:]), own_core)
    pair = paired(ours, Side(read), condition=Condition(settle=SETTLE))
    if pair.status is not Status.OK:
        raise SystemExit(f"past {past}, new 1: {pair.reason}")
    return Row(READING, past, 1, 1e3 * pair.ours.median, 1 / pair.ratio, math.nan)


def compare(
    sizes: Decoder, peers: Sequence[str], lengths: Sequence[tuple[int, int]], reading: int | None = None
) -> tuple[list[Row], float]:
    """Return the rows of all peers, one row of a token after `reading` ones compared with reading alone, and the
    compile time in seconds."""
    rows, seconds = [], 0.0
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        for file in dict.fromkeys(PEERS[name].file for name in peers):
            if file.endswith(".gguf"):
                from .language_gguf import OF_BITS, sizes_of, write_decoder  # written by the package gguf

                write_decoder(folder / file, sizes_of(sizes), OF_BITS[sizes.bits])
            else:
                onnx.save(decoder(sizes), folder / file)
            start = time.perf_counter()
            # llama.cpp computes the logits of the last position only.
            alone = {"logits": "last", "activations": "int8" if sizes.level == 4 else None} if "gguf" in file else {}
            executable = tt.compile(folder / file, cache=False, **alone)
            seconds = time.perf_counter() - start
            if reading is not None and not file.endswith(".gguf"):
                rows.append(beside_reading(executable, sizes, reading))
            for name in peers:
                if PEERS[name].file == file:
                    rows += measured(executable, PEERS[name](folder, sizes), sizes, lengths)
    return rows, seconds


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print the results."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.language_models", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("model", nargs="*", choices=[[], *DECODERS], default=["qwen2-0.5b"])
    parser.add_argument("--bits", type=int, nargs="*", default=[4], choices=(4, 8), help="bits per weight (default: 4)")
    parser.add_argument("--level", type=int, nargs="*", default=[0, 4], help="accuracy_level (default: 0 and 4)")
    parser.add_argument("--block", type=int, default=32, help="number of weights that share a scale (default: 32)")
    parser.add_argument("--peer", nargs="*", default=["onnxruntime"], choices=list(PEERS), help="beside what")
    parser.add_argument("--reading", action="store_true", help="compare with a loop that reads as many bytes, too")
    parser.add_argument(
        "--context", type=int, default=512, help="context lengths for generating a token (default: 512)"
    )
    parser.add_argument("--prompt", type=int, nargs="*", default=[128, 512], help="prompt lengths in tokens")
    given = parser.parse_args(arguments)
    for name in given.peer:
        if missing(PEERS[name]):
            raise SystemExit(f"{name} requires {', '.join(missing(PEERS[name]))}, which is not installed")
    lengths = [(given.context, 1), *((0, length) for length in given.prompt)]
    for name in given.model:
        for bits in given.bits:
            for level in given.level:
                sizes = with_weights(DECODERS[name], bits, given.block, level)
                rows, seconds = compare(sizes, given.peer, lengths, given.context if given.reading else None)
                print(f"\n{name}, {bits} bits, accuracy_level {level}: compiled in {seconds:.1f} s")
                print_table(
                    ("beside", "past", "new", "ms", "tokens/s", "relative latency", "GB/s", "logits apart"),
                    [told(row, sizes) for row in rows],
                )
    return 0


def told(row: Row, sizes: Decoder) -> tuple[str, ...]:
    """Format a line of the table."""
    scale = 2 if row.peer in PEERS and PEERS[row.peer].file.endswith(".gguf") else 4
    rate = f"{sizes.bytes_of_a_step(row.past, scale) / row.ms / 1e6:.1f}" if row.new == 1 else ""
    numbers = (f"{row.ms:.2f}", f"{1e3 * row.new / row.ms:.1f}", f"{row.part:.2f}", rate, f"{row.far:.1g}")
    return (row.peer, str(row.past), str(row.new), *numbers)


if __name__ == "__main__":
    sys.exit(main())
