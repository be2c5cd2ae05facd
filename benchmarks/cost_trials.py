"""Record trials that train a cost model: python -m benchmarks.cost_trials -o trials.json.gz

Measures configurations of many shapes, matrix multiplications and convolutions, on one core. Each shape takes about 10
seconds, most of it to build. An existing file is continued. All configurations of a shape run alternately, in several
passes, and the minimum of each pass counts, so that other load on the machine has little effect. One core is used
because threads wait for each other when other processes occupy a core: their times would depend on the state of the
machine.

Searches start with the trials in tvm_tiling/tuning/learning/recorded/. Its files are named after LLVM's names of the
microarchitectures.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import json
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from tvm_tiling.atomic_file import atomic_file
from tvm_tiling.decide.configs.config import Config
from tvm_tiling.decide.configs.neighbourhood import Space, neighbourhood
from tvm_tiling.errors import TilingError
from tvm_tiling.hardware import Hardware
from tvm_tiling.measure import machine_record
from tvm_tiling.plain_text import plain_json
from tvm_tiling.tuning.learning.recorded import FORMAT, VERSION
from tvm_tiling.tuning.measuring.child import ChildFailed, ChildLost
from tvm_tiling.tuning.measuring.measurer import Job
from tvm_tiling.workload import ConvWorkload, GemmWorkload

from .operands import Workload
from .peers.tvm_operator import this_machine
from .side_by_side import SideBySide
from .suite import SuiteError

SHAPES = 60
CONFIGS = 24  # per shape
PASSES = 3
ROUNDS = 15  # per pass
PASS_SECONDS = 0.4
# A search never tries configurations that are predicted to be slower than this many others; none is recorded here.
NEAREST = 160
# Multiply-accumulates: a run of a few microseconds is mostly call overhead; a long one can be measured only rarely.
LEAST_MACS, MOST_MACS = 2e6, 6e8
NARROW = 0.75  # share of shapes of medium size; the others are tall, flat, deep or depthwise
PREPACKED = 0.33  # share of shapes with prepacked weights

Shape: TypeAlias = tuple[Workload, bool]


def one_core() -> Hardware:
    """Return the description of this machine with one core."""
    whole = this_machine()
    cpu = whole.cpu
    assert cpu is not None
    caches = tuple(replace(cache, cores=1) for cache in cpu.caches)
    return replace(whole, name=f"{cpu.mcpu or cpu.arch}-1c", cpu=replace(cpu, cores=1, threads=1, caches=caches))


def shapes(count: int = SHAPES, seed: int = 2026) -> Iterator[Shape]:
    """Generate random matrix multiplications and convolutions, three to two, each with a flag for prepacked weights."""
    rng = random.Random(seed)
    for number in range(count):
        narrow = rng.random() < NARROW
        make = _kinds(number)[0 if narrow else 1]
        while True:
            workload = make(rng)
            if LEAST_MACS <= workload.macs <= MOST_MACS:
                break
        yield workload, rng.random() < PREPACKED


def _kinds(number: int) -> tuple[Callable[[random.Random], Workload], Callable[[random.Random], Workload]]:
    return (_product, _wide_product) if number % 5 in (0, 1, 3) else (_convolution, _wide_convolution)


def _product(rng: random.Random) -> GemmWorkload:
    m, k, n = (int(2 ** rng.uniform(5, 10.5)) for _ in range(3))
    return GemmWorkload(m=m, k=k, n=n)


def _wide_product(rng: random.Random) -> GemmWorkload:
    m = int(2 ** rng.uniform(0, 12))
    k, n = (int(2 ** rng.uniform(4, 12)) for _ in range(2))
    return GemmWorkload(m=m, k=k, n=n)


def _convolution(rng: random.Random) -> ConvWorkload:
    kernel = rng.choice([1, 3, 3, 3, 5])
    size = rng.choice([7, 14, 17, 28, 35, 56])
    ci, co = (int(2 ** rng.uniform(4, 8.5)) // 8 * 8 for _ in range(2))
    return _same(size, ci, co, kernel, rng.choice([1, 1, 2]) if kernel > 1 else 1)


def _wide_convolution(rng: random.Random) -> ConvWorkload:
    kernel = rng.choice([1, 3, 3, 5, 7])
    size = rng.choice([7, 10, 14, 19, 28, 38, 56, 75, 112])
    stride = rng.choice([1, 1, 2])
    if kernel > 1 and rng.random() < 0.35:
        channels = int(2 ** rng.uniform(4, 9.5)) // 8 * 8
        return _same(size, channels, channels, kernel, stride, groups=channels)
    ci = rng.choice([3, int(2 ** rng.uniform(3, 10))])
    return _same(size, ci, int(2 ** rng.uniform(4, 10)) // 8 * 8, kernel, stride)


def _same(size: int, ci: int, co: int, kernel: int, stride: int, groups: int = 1) -> ConvWorkload:
    border = (kernel // 2,) * 4
    steps = (stride, stride)
    return ConvWorkload(
        n=1, h=size, w=size, ci=ci, co=co, kh=kernel, kw=kernel, stride=steps, padding=border, groups=groups
    )


def configs_to_measure(space: Space, seed: int) -> list[Config]:
    """Return some of the nearest configurations, the analytical choice first."""
    near = [config for config in space.configs(NEAREST) if config != space.start]
    return [space.start, *random.Random(seed).sample(near, min(CONFIGS - 1, len(near)))]


def measure(shape: Shape, seed: int, hardware: Hardware, bench: SideBySide) -> dict[str, Any]:
    """Return some configurations of a workload, each with its seconds in every pass. Failed ones are left out."""
    workload, prepacked = shape
    space = neighbourhood(workload, hardware, prepacked=prepacked)
    jobs = [
        Job(workload=workload, config=config, hardware=hardware, prepacked=prepacked)
        for config in configs_to_measure(space, seed)
    ]
    try:
        found = bench.measure(jobs, PASSES, ROUNDS, PASS_SECONDS)
    except (ChildFailed, ChildLost):
        found = {}
    trials = [[job.config.to_dict(), seconds] for job, seconds in found.items()]
    return {"workload": workload.to_dict(), "prepacked": prepacked, "trials": trials}


def read(path: Path) -> dict[str, Any]:
    """Read a file of trials. Raises SuiteError if the file is not one."""
    try:
        content = path.read_bytes()
        record = plain_json((gzip.decompress(content) if path.suffix == ".gz" else content).decode())
    except (OSError, ValueError, EOFError) as error:
        raise SuiteError(f"{path} cannot be read: {error}; pass another file") from None
    if not isinstance(record, dict) or (record.get("format"), record.get("version")) != (FORMAT, VERSION):
        raise SuiteError(f"{path} does not contain trials of version {VERSION}; pass another file")
    return record


def write(path: Path, hardware: Hardware, workloads: Sequence[dict[str, Any]]) -> None:
    """Write a file of trials atomically, compressed if its name ends in .gz."""
    record = {
        "format": FORMAT,
        "version": VERSION,
        "machine": machine_record(hardware),
        "hardware": hardware.to_dict(),
        "workloads": list(workloads),
    }
    text = json.dumps(record, separators=(",", ":")).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path) as file:
        file.write(gzip.compress(text, mtime=0) if path.suffix == ".gz" else text)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what the file does not contain yet. Returns 1 after an error that the user can fix."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cost_trials", description=__doc__)
    parser.add_argument("-o", "--output", type=Path, default=Path("results/cost_trials.json.gz"))
    parser.add_argument(
        "--shapes",
        type=int,
        default=SHAPES,
        help="number of shapes, three GEMMs to two convolutions; default: %(default)s",
    )
    parser.add_argument(
        "--seconds", type=float, default=1500.0, help="start no further shape after this time; default: %(default)s"
    )
    chosen = parser.parse_args(arguments)
    try:
        records = read(chosen.output)["workloads"] if chosen.output.is_file() else []
    except TilingError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    until, hardware = time.monotonic() + chosen.seconds, one_core()
    with contextlib.closing(SideBySide()) as bench:
        for number, shape in enumerate(shapes(chosen.shapes)):
            if number < len(records):
                continue
            if time.monotonic() > until:
                break
            records.append(measure(shape, number, hardware, bench))
            write(chosen.output, hardware, records)
            print(f"{len(records)}: {len(records[-1]['trials'])} configurations of {shape[0]}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
