"""Executables with dynamic dimensions compared with those compiled for each size, and with onnxruntime.

    python -m benchmarks.open_sizes products        GEMMs with m dynamic rows, n and k of BERT and Llama
    python -m benchmarks.open_sizes bert            layers of BERT's encoder; --layers
    python -m benchmarks.open_sizes decoder         Llama-like layers over a prompt; --layers
    python -m benchmarks.open_sizes speech          a Whisper-like encoder over any number of frames
    python -m benchmarks.open_sizes batch pixels    ResNet-50, batch 1 to 16 and images of 160 to 320
    python -m benchmarks.open_sizes mobile          MobileNet v2, images of 160 to 320
    python -m benchmarks.open_sizes lstm            an LSTM of 256 over any length

Models are built in ONNX (benchmarks/open_models.py), with random weights. Sizes are log-uniform. For each size the
dynamic executable alternates with one compiled for that size, then with onnxruntime on the same number of threads.
Results are compared first. Before these pairs, all sizes are run in random order after the largest, to report the extra
time of the first run of a size. Also reported are the compile time and the size of the saved file, compared with those
of the executable for the middle size.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import tvm_tiling as tt
from tvm_tiling.cli.table import print_table
from tvm_tiling.measure import Condition, Side, Status, paired
from tvm_tiling.runtime.threads import own_core

from . import open_models
from .open_models import OpenModel
from .peers.onnxruntime_peer import session_options
from .run import SETTLE

PRODUCTS = {"BERT 768 to 768": (768, 768), "BERT 768 to 3072": (3072, 768), "BERT 3072 to 768": (768, 3072)}
PRODUCTS |= {"llama 2048 to 2048": (2048, 2048), "llama 2048 to 5632": (5632, 2048)}
CASES = ("products", "bert", "decoder", "speech", "batch", "pixels", "mobile", "lstm")


@dataclass(frozen=True)
class Case:
    """A model and the range of sizes to draw from; sizes are multiples of `step`."""

    name: str
    model: Callable[[], OpenModel]
    least: int = 1
    most: int = 512
    step: int = 1


@dataclass(frozen=True)
class Row:
    """One size: ms of the dynamic executable, its latency relative to the fixed-size one and to onnxruntime, and the ms
    that the first run takes longer than the second."""

    size: int
    ms: float
    fixed: float
    peer: float
    first: float


@dataclass(frozen=True)
class Made:
    """An executable, its compile time in seconds and the bytes of its file."""

    executable: tt.Executable
    seconds: float
    bytes: int


def cases_of(what: str, layers: int, most: int) -> list[Case]:
    """Return the models that a word of the command line stands for."""
    return {
        "products": [
            Case(name, lambda n=n, k=k: open_models.product(n, k), most=most) for name, (n, k) in PRODUCTS.items()
        ],
        "bert": [Case(f"encoder, {layers} layers", lambda: open_models.encoder(layers=layers), most=most)],
        "decoder": [Case(f"decoder, {layers} layers", lambda: open_models.decoder(layers=layers), most=most)],
        "speech": [Case("speech encoder", open_models.speech_encoder, 2, 2 * most)],
        "batch": [Case("ResNet-50, 224 x 224", lambda: open_models.resnet50("batch"), 1, 16)],
        "pixels": [Case("ResNet-50, batch 1", lambda: open_models.resnet50("pixels"), 160, 320, 8)],
        "mobile": [Case("MobileNet v2, batch 1", open_models.mobilenet_v2, 160, 320, 8)],
        "lstm": [Case("LSTM 256", open_models.lstm, most=most)],
    }[what]


def sizes_of(case: Case, count: int) -> list[int]:
    """Draw log-uniform sizes of the case; the same ones each time."""
    low, high = math.log(case.least), math.log(case.most + 1)
    draws = np.exp(np.random.default_rng(0).uniform(low, high, count))
    return sorted({min(case.most, max(case.least, int(draw) // case.step * case.step)) for draw in draws})


def made(model: OpenModel, **settings: object) -> Made:
    """Compile and save, without the cache."""
    start = time.perf_counter()
    executable = tt.compile(model.model, cache=False, **settings)
    seconds = time.perf_counter() - start
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model"
        executable.save(path)
        return Made(executable, seconds, path.stat().st_size)


def first_runs(executable: tt.Executable, inputs: Mapping[int, np.ndarray]) -> dict[int, float]:
    """Return the ms by which the first run of each size is longer than its second, in random order after the
    largest."""
    sizes = sorted(inputs)
    for _ in range(3):
        executable.run(inputs[sizes[-1]])
    np.random.default_rng(1).shuffle(sizes)
    extra = {}
    for size in sizes:
        times = []
        for _ in range(4):
            start = time.perf_counter()
            executable.run(inputs[size])
            times.append(time.perf_counter() - start)
        extra[size] = 1e3 * (times[0] - sorted(times[1:])[1])
    return extra


def compared(model: OpenModel, sizes: Sequence[int], opened: Made) -> tuple[list[Row], Made]:
    """Return a row for each size, and the executable of the middle size."""
    import onnxruntime

    session = onnxruntime.InferenceSession(
        model.model.SerializeToString(), session_options(), providers=["CPUExecutionProvider"]
    )
    inputs = {size: model.x(size) for size in sizes}
    first = first_runs(opened.executable, inputs)
    rows, middle = [], None
    for size, x in inputs.items():
        fixed = made(model, dims=model.dims(size))
        if size == sizes[len(sizes) // 2]:
            middle = fixed
        wanted = session.run(None, {"x": x})[0]
        for executable in (opened.executable, fixed.executable):
            np.testing.assert_allclose(executable.run(x), wanted, rtol=2e-3, atol=2e-3 * np.abs(wanted).max())
        ours = Side(lambda x=x: opened.executable.run(x), own_core)
        pairs = [
            paired(
                ours,
                Side(lambda x=x, run=fixed.executable.run: run(x), own_core),
                condition=Condition(settle=SETTLE),
            ),
            paired(ours, Side(lambda x=x: session.run(None, {"x": x})), condition=Condition(settle=SETTLE)),
        ]
        if bad := [pair.reason for pair in pairs if pair.status is not Status.OK]:
            raise SystemExit(f"size {size}: {bad[0]}")
        rows.append(Row(size, 1e3 * pairs[0].ours.median, 1 / pairs[0].ratio, 1 / pairs[1].ratio, first[size]))
    assert middle is not None
    return rows, middle


def _mean(values: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


def report(name: str, rows: Sequence[Row], opened: Made, middle: Made) -> None:
    """Print the table of one model."""
    print(f"\n{name}")
    table = [
        (str(row.size), f"{row.ms:.2f}", f"{row.fixed:.3f}", f"{row.peer:.3f}", f"{row.first:.2f}") for row in rows
    ]
    fixed, peer, first = ([getattr(row, kind) for row in rows] for kind in ("fixed", "peer", "first"))
    table.append(("mean", "", f"{_mean(fixed):.3f}", f"{_mean(peer):.3f}", f"{sum(first) / len(first):.2f}"))
    table.append(("worst", "", f"{max(fixed):.3f}", f"{max(peer):.3f}", f"{max(first):.2f}"))
    print_table(("size", "ms", "relative to fixed", "of onnxruntime", "first run, extra ms"), table)
    print(
        f"compiled in {opened.seconds:.1f} s, fixed middle size in {middle.seconds:.1f} s; file sizes"
        f" {opened.bytes / 1e6:.1f} and {middle.bytes / 1e6:.1f} MB"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print the results."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.open_sizes", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("what", nargs="*", choices=[[], *CASES], default=["products", "bert"])
    parser.add_argument("--count", type=int, default=32, help="number of sizes (default: 32)")
    parser.add_argument("--most", type=int, default=512, help="maximum length (default: 512)")
    parser.add_argument("--layers", type=int, default=4, help="layers of the encoder and the decoder (default: 4)")
    given = parser.parse_args(arguments)
    made(open_models.product(64, 64))  # imports the compiler
    for what in given.what:
        for case in cases_of(what, given.layers, given.most):
            model, sizes = case.model(), sizes_of(case, given.count)
            opened = made(model)
            rows, middle = compared(model, sizes, opened)
            report(case.name, rows, opened, middle)
    return 0


if __name__ == "__main__":
    sys.exit(main())
