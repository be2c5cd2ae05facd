"""Duration and quality of decisions compared with exhaustive searches.

The searches cover all partitions with a fixed loop order, and all partitions with all loop orders. They run on the
smallest matrix multiplications of BERT-large, so the printed speedups are lower bounds. `mode="seed"`, the original
rule, is compared by the utilisation that it reaches.

    python benchmarks/decision.py --cases 2000 --searches 3
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import time
from typing import Any

from tvm_tiling.decide.gemm.partition import decide_partition
from tvm_tiling.decide.gemm.traffic import Product, product_on
from tvm_tiling.errors import HardwareError
from tvm_tiling.hardware.description import Hardware
from tvm_tiling.workload import GemmWorkload

BERT = [(m, n, k) for m in (128, 384, 512, 1024, 2048, 4096) for n in (1024, 4096) for k in (1024, 4096)]
BERT_MACHINE = Hardware.neartile(
    buf_a=1 << 16,
    buf_b=1 << 16,
    acc_max=1 << 18,
    bw_a=32,
    bw_b=64,
    macs_per_cycle=2048,
    block_m=16,
    block_n=16,
    sync_granularity=64,
)


def search(p: Product, orders: tuple[str, ...], depth_step: int) -> tuple[float, int]:
    """Return the minimum of cycles over every partition of m and n, every `depth_step`-th of k and the given loop
    orders, and the number of tilings tried."""
    least, tried = math.inf, 0
    depths = [*range(depth_step, p.k, depth_step), p.k]
    for rows in [*range(p.block_m, p.m, p.block_m), p.m]:
        for columns in [*range(p.block_n, p.n, p.block_n), p.n]:
            for depth in depths:
                for order in orders:
                    tried += 1
                    if p.feasible(rows, columns, depth):
                        least = min(least, p.cycles(*p.load_counts(rows, columns, depth, order)))
    return least, tried


def random_case(rng: random.Random) -> tuple[GemmWorkload, Hardware]:
    """Return a matrix multiplication with sizes from 1 to 8192 and a random machine; half of the machines closely match
    it."""

    def log_uniform(low: float, high: float) -> int:
        return int(math.exp(rng.uniform(math.log(low), math.log(high + 1))))

    w = GemmWorkload(
        m=log_uniform(1, 8192),
        n=log_uniform(1, 8192),
        k=log_uniform(1, 8192),
        dtype=rng.choice(("int8", "float16", "float32")),
    )
    close, row = rng.random() < 0.5, w.k * w.a_bytes
    bw_a, bw_b = log_uniform(1, 256), log_uniform(1, 256)
    balance = min(w.m * bw_b, w.n * bw_a) / w.a_bytes
    return w, Hardware.neartile(
        buf_a=log_uniform(row, w.m * row) if close else log_uniform(64, 1 << 21),
        buf_b=log_uniform(row, w.n * row) if close else log_uniform(64, 1 << 21),
        acc_max=log_uniform(16, 1 << 20),
        bw_a=bw_a,
        bw_b=bw_b,
        macs_per_cycle=max(1.0, balance * rng.uniform(0.05, 2.0)) if close else log_uniform(1, 16384),
        block_m=rng.choice((1, 4, 16)),
        block_n=rng.choice((1, 4, 16)),
    )


def measure_decisions(cases: list[tuple[GemmWorkload, Hardware]]) -> dict[str, Any]:
    """Return the seconds per decision in both modes, and what mode "seed" reaches relative to mode "best"."""
    seconds: dict[str, list[float]] = {"best": [], "seed": []}
    behind: list[float] = []
    names = ("decided", "no_cut_fits", "seed_does_not_fit", "seed_slower", "seed_equal")
    counts = dict.fromkeys((*names, "seed_sums", "best_sums"), 0)
    for w, machine in cases:
        try:
            start = time.perf_counter()
            best = decide_partition(w, machine)
            middle = time.perf_counter()
        except HardwareError:
            counts["no_cut_fits"] += 1
            continue
        seed = decide_partition(w, machine, mode="seed")
        seconds["best"].append(middle - start)
        seconds["seed"].append(time.perf_counter() - middle)
        counts["decided"] += 1
        if not seed.feasible:
            counts["seed_does_not_fit"] += 1
        elif seed.utilisation < best.utilisation * (1 - 1e-9):
            counts["seed_slower"] += 1
            behind.append(1 - seed.utilisation / best.utilisation)
        else:
            counts["seed_equal"] += 1
            counts["seed_sums"] += seed.acc_bytes // w.a_bytes  # mode "seed" counts d_s bytes for each
            counts["best_sums"] += best.acc_bytes // w.acc_bytes
    return {
        **counts,
        "median_seconds": {mode: statistics.median(taken) for mode, taken in seconds.items()},
        "p99_seconds": {mode: sorted(taken)[int(0.99 * len(taken))] for mode, taken in seconds.items()},
        "seed_behind_median": statistics.median(behind) if behind else 0.0,
        "seed_behind_most": max(behind, default=0.0),
    }


def measure_searches(sizes: list[tuple[int, int, int]], depth_step: int) -> list[dict[str, Any]]:
    """Return the seconds of both searches and of the decision on the same matrix multiplications."""
    rows = []
    for m, n, k in sizes:
        w = GemmWorkload(m=m, n=n, k=k, dtype="float16")
        p = product_on(w, BERT_MACHINE)
        taken = []
        for _ in range(50):
            start = time.perf_counter()
            tiling = decide_partition(w, BERT_MACHINE)
            taken.append(time.perf_counter() - start)
        row: dict[str, Any] = {
            "m": m,
            "n": n,
            "k": k,
            "decision_seconds": statistics.median(taken),
            "decision_cycles": p.cycles(tiling.load_a, tiling.load_b),
        }
        for name, orders in (("fixed_order", ("mn",)), ("everything", ("mn", "nm"))):
            start = time.perf_counter()
            row[f"{name}_cycles"], row[f"{name}_cuts"] = search(p, orders, depth_step)
            row[f"{name}_seconds"] = time.perf_counter() - start
            row[f"{name}_speedup"] = row[f"{name}_seconds"] / row["decision_seconds"]
        rows.append(row)
    return rows


def run(cases: int = 2000, searches: int = 3, depth_step: int = 1, seed: int = 1) -> dict[str, Any]:
    """Return all figures: decisions on random and on BERT-large's matrix multiplications, and searches on some of the
    latter."""
    rng = random.Random(seed)
    random_cases = [random_case(rng) for _ in range(cases)]
    bert_cases = [(GemmWorkload(m=m, n=n, k=k, dtype="float16"), BERT_MACHINE) for m, n, k in BERT]
    smallest_first = sorted(BERT, key=math.prod)
    return {
        "random": measure_decisions(random_cases),
        "bert_large": measure_decisions(bert_cases),
        "searches": measure_searches(smallest_first[:searches], depth_step),
    }


def table(figures: dict[str, Any]) -> str:
    """Format the figures as text."""
    lines = []
    for suite in ("random", "bert_large"):
        f = figures[suite]
        median, p99 = f["median_seconds"], f["p99_seconds"]
        lines += [
            f"{suite}: {f['decided']} decided, {f['no_cut_fits']} without a tiling that fits",
            f"  best: median {median['best'] * 1e6:.0f} us, 99th percentile {p99['best'] * 1e6:.0f} us",
            f"  seed: median {median['seed'] * 1e6:.0f} us, 99th percentile {p99['seed'] * 1e6:.0f} us",
            f"  seed compared with best: equal {f['seed_equal'] / f['decided']:.1%},"
            f" slower {f['seed_slower'] / f['decided']:.1%} (utilisation lower by a median of"
            f" {f['seed_behind_median']:.1%}, {f['seed_behind_most']:.1%} at most),"
            f" does not fit {f['seed_does_not_fit'] / f['decided']:.1%};"
            f" partial sums kept: seed {f['seed_sums']}, best {f['best_sums']}",
        ]
    lines.append(
        f"{'m x n x k':>16} {'search':>12} {'tilings':>9} {'seconds':>9} {'cycles':>11} {'decision us':>12} speedup"
    )
    for row in figures["searches"]:
        size = f"{row['m']}x{row['n']}x{row['k']}"
        for name in ("fixed_order", "everything"):
            lines.append(
                f"{size:>16} {name:>12} {row[f'{name}_cuts']:>9} {row[f'{name}_seconds']:>9.3f} "
                f"{row[f'{name}_cycles'] / row['decision_cycles']:>10.3f}x {row['decision_seconds'] * 1e6:>12.0f} "
                f"{row[f'{name}_speedup']:.0f}x"
            )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="Decisions compared with exhaustive searches.")
    parser.add_argument("--cases", type=int, default=2000, help="number of random matrix multiplications")
    parser.add_argument(
        "--searches", type=int, default=3, help="number of matrix multiplications of BERT-large to search"
    )
    parser.add_argument("--depth-step", type=int, default=1, help="step of partition_k in the searches")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    options = parser.parse_args()
    figures = run(options.cases, options.searches, options.depth_step)
    print(json.dumps(figures, indent=2) if options.json else table(figures))


if __name__ == "__main__":
    main()
