"""Random GEMMs on random near-tile machines, simulated with the decision and with the alternative (split-K or not)."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

from operators import product

import tvm_tiling as tt
from tvm_tiling.accel.record.function import record
from tvm_tiling.accel.report.report import SimReport
from tvm_tiling.accel.timing.simulate import simulate
from tvm_tiling.decide.gemm.traffic import Product, ceil_div, product_on, round_down, smallest_partition
from tvm_tiling.match import match_gemm, prim_func_of
from tvm_tiling.schedules import accel_gemm

MOST_PARTITIONS = 4000  # of a case, so that simulating hundreds takes minutes


@dataclass(frozen=True)
class Case:
    workload: tt.GemmWorkload
    hardware: tt.Hardware
    decision: tt.GemmTiling

    @property
    def product(self) -> Product:
        return product_on(self.workload, self.hardware)

    @property
    def partitions(self) -> int:
        w, d = self.workload, self.decision
        return ceil_div(w.m, d.partition_m) * ceil_div(w.n, d.partition_n) * ceil_div(w.k, d.partition_k)

    def simulate(self, tiling: tt.GemmTiling | None = None) -> SimReport:
        """Return the cycles of the schedule of `tiling`, or of the decision."""
        w = self.workload
        func = prim_func_of(product(w.m, w.n, w.k, w.dtype))
        scheduled = accel_gemm.apply(match_gemm(func, may_swap=False), self.hardware, tiling or self.decision)
        return simulate(record(scheduled.main, self.hardware))

    def bytes_decided(self) -> tuple[int, int]:
        w, d = self.workload, self.decision
        return d.load_a * w.m * w.k * w.a_bytes, d.load_b * w.n * w.k * w.b_bytes

    def earliest(self) -> float:
        """Return a lower bound of the cycles for any order of loads and multiplications with the decision's partitions
        and load counts.

        Without split-K, an element of the streamed operand is not reloaded for the resident partition, so that it
        leaves its buffer only after all rows of the partition have used it. Consider the moment at which a share t of a
        partition of R rows has arrived, with all rows for a share y of k and all of k for a share x of the rows: (1 -
        x) * (1 - y) >= 1 - t. A column of the streamed operand that has lost elements by then has lost at most a share
        y, and has open sums for the incomplete rows, at least (1 - x) * R. Columns have therefore lost at most y * sums
        / ((1 - x) * R) <= y * (1 - y) / (1 - t) * sums / R, with a maximum at y = 1/2 or, if that is more than t, at t.
        Everything else that has been loaded is in the buffer, which holds H columns. The other columns remain to be
        loaded and multiplied: for the first partition with everything after it, for the last, whose arrival ends the
        loads of that operand, with its own multiplications.
        """
        p, d = self.product, self.decision
        longest = max(p.gemm_cycles, d.load_a * p.load_a_cycles, d.load_b * p.load_b_cycles)
        if d.split_k:
            return longest
        if d.outer_order == "mn":
            size, partition, room, passing = p.m, min(d.partition_m, p.m), p.buf_b, p.n
            stays, passes, again = p.load_a_cycles, p.load_b_cycles, d.load_b
        else:
            size, partition, room, passing = p.n, min(d.partition_n, p.n), p.buf_a, p.m
            stays, passes, again = p.load_b_cycles, p.load_a_cycles, d.load_a
        least = size - (ceil_div(size, partition) - 1) * partition  # share of a partition
        held = 2 * room / (p.k * (p.d_b if d.outer_order == "mn" else p.d_a))
        bounds = [longest]
        for t in (step / 64 for step in range(64)):
            y = min(t, 0.5)
            gone = min(1.0, (held + y * (1 - y) / (1 - t) * p.acc_max / p.d_acc / least) / passing)
            arrived, part = stays * least / size * t, least / size
            bounds.append(arrived + p.gemm_cycles * (1 - part * gone))
            bounds.append(arrived + passes * (again - gone))
            bounds.append(stays * (1 - part * (1 - t)) + p.gemm_cycles * part * (1 - gone))
        return max(bounds)


def cases(count: int, seed: int) -> Iterator[Case]:
    rng = random.Random(seed)
    while count:
        dtype = rng.choice(["int8", "float16", "float32"])
        m, n, k = (int(2 ** rng.uniform(6, 11)) for _ in range(3))
        hardware = tt.Hardware.neartile(
            buf_a=int(2 ** rng.uniform(12, 18)),
            buf_b=int(2 ** rng.uniform(12, 18)),
            acc_max=rng.choice([0, 1, 1]) * int(2 ** rng.uniform(12, 18)),
            bw_a=2 ** rng.uniform(1, 6),
            bw_b=2 ** rng.uniform(1, 6),
            macs_per_cycle=2 ** rng.randint(4, 9),
        )
        workload = tt.GemmWorkload(m=m, n=n, k=k, dtype=dtype)
        try:
            case = Case(workload, hardware, tt.decide(workload, hardware))
        except tt.HardwareError:
            continue
        if case.partitions <= MOST_PARTITIONS:
            count -= 1
            yield case


def other_configs(case: Case) -> Iterator[tt.GemmTiling]:
    """Return the best configurations of the alternative: without split-K if the decision splits K, with it
    otherwise."""
    p, d = case.product, case.decision
    if d.split_k:
        rows, columns = p.largest_rows(p.k), p.largest_columns(p.k)
        for order in ("mn", "nm") if rows and columns else ():
            yield _config(p, d, rows, columns, p.k, order)
        return
    sums, most_m, most_n = p.acc_max // p.d_acc, p.largest_rows(1), p.largest_columns(1)
    found = []
    for count in range(1, ceil_div(p.n, p.block_n) + 1):
        columns = smallest_partition(p.n, p.block_n, count)
        rows = round_down(min(most_m, sums // columns), p.m, p.block_m)
        if rows and columns <= most_n and p.k > 1:
            config = _config(p, d, rows, columns, p.largest_depth(rows, columns), "mn")
            found.append((p.cycles(config.load_a, config.load_b), -config.partition_k, count, config))
    if found:
        yield min(found)[3]


def _config(p: Product, d: tt.GemmTiling, rows: int, columns: int, depth: int, order: str) -> tt.GemmTiling:
    load_a, load_b = p.load_counts(rows, columns, depth, order)
    return replace(
        d,
        partition_m=rows,
        partition_n=columns,
        partition_k=depth,
        outer_order=order,
        split_k=depth < p.k,
        load_a=load_a,
        load_b=load_b,
        chunks=None,
    )
