"""Validate the simulator against published cycle counts of real machines. Run from a checkout: python -m
benchmarks.validation

The tables are in benchmarks/published, with their sources. Gemmini: every row's layer is simulated with the row's own
mapping and with the one that tvm_tiling chooses; --fit determines the parameters of the description from
gemmini_rtl_a.csv alone.
"""

from __future__ import annotations

import argparse
import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from tvm_tiling.accel.mapped_convolution import mapped_convolution
from tvm_tiling.accel.timing.simulate import Simulation
from tvm_tiling.decide.conv.mapping import ConvMapping, best_mapping, parse_mapping, predicted_cycles
from tvm_tiling.hardware.description import Hardware
from tvm_tiling.workload import ConvWorkload

PUBLISHED = Path(__file__).parent / "published"
FITTED = ("strip_least", "strip_start", "column_cycles", "block_change", "fill", "bytes_per_cycle", "page_cycles")
"""Parameters of Gemmini's description that are fitted; sizes are given."""


@dataclass(frozen=True)
class GemminiRow:
    """A layer of a published table: its `mapping`, the RTL's cycles with it and with Gemmini's own tiling, and
    Timeloop's cycles with it; `hardware` has the row's buffers."""

    workload: ConvWorkload
    mapping: ConvMapping
    hardware: Hardware
    rtl: float
    rtl_own: float
    timeloop: float


@dataclass(frozen=True)
class GemminiResult:
    """Simulated cycles of a row with its mapping and with `chosen`, the one that tvm_tiling chooses."""

    row: GemminiRow
    cycles: int
    chosen: ConvMapping
    chosen_cycles: int

    @property
    def error(self) -> float:
        """Relative error of the cycles with the row's mapping."""
        return self.cycles / self.row.rtl - 1


@dataclass(frozen=True)
class GemminiSummary:
    """Mean and median absolute error, Timeloop's mean error, rank correlation, and the worst and geometric mean ratio
    of the chosen mapping's cycles to the given one's."""

    mean_error: float
    median_error: float
    timeloop_error: float
    rank_correlation: float
    worst: float
    mean_ratio: float


def gemmini() -> Hardware:
    """Return the description in benchmarks/published/gemmini.toml."""
    return Hardware.load(PUBLISHED / "gemmini.toml")


def gemmini_rows(table: str) -> list[GemminiRow]:
    """Return the rows of table "a" or "b"."""
    machine = gemmini()
    with (PUBLISHED / f"gemmini_rtl_{table}.csv").open(newline="") as file:
        return [_gemmini_row(row, machine) for row in csv.DictReader(file)]


def _gemmini_row(row: dict[str, str], machine: Hardware) -> GemminiRow:
    c, k, p, q, r, s, wide, high = (int(row[name]) for name in (*"CKPQRS", "stride_w", "stride_h"))
    sums = int(row["accumulator_entries"]) * int(row["accumulator_banks_wide"]) * int(row["accumulator_word_bits"]) // 8
    operands = int(row["scratchpad_entries"]) * int(row["scratchpad_word_bits"]) // 8
    tile = machine.near_tile
    assert tile is not None
    return GemminiRow(
        workload=ConvWorkload(
            n=1, h=(q - 1) * high + s, w=(p - 1) * wide + r, ci=c, co=k, kh=s, kw=r, stride=(high, wide), dtype="int8"
        ),
        mapping=parse_mapping(row["mapping"]),
        hardware=replace(
            machine,
            near_tile=replace(tile, buf_a=operands, buf_b=operands, acc_max=sums),
            memories={**machine.memories, "acc": replace(machine.memories["acc"], bytes=2 * sums)},
        ),
        rtl=float(row["rtl_cycles_this_mapping"]),
        rtl_own=float(row["rtl_cycles_own_tiling"]),
        timeloop=float(row["timeloop_cycles"]),
    )


def run_gemmini(row: GemminiRow) -> GemminiResult:
    """Simulate a row with both mappings."""
    chosen = best_mapping(row.workload, row.hardware)
    given_cycles, chosen_cycles = (
        Simulation(mapped_convolution(row.workload, mapping, row.hardware)).on().cycles
        for mapping in (row.mapping, chosen)
    )
    return GemminiResult(row, given_cycles, chosen, chosen_cycles)


def summarise(results: Sequence[GemminiResult]) -> GemminiSummary:
    """Return the accuracy figures of the simulated rows."""
    errors = np.array([abs(one.error) for one in results])
    ratios = np.array([one.chosen_cycles / one.cycles for one in results])
    simulated, measured = ([getter(one) for one in results] for getter in (lambda x: x.cycles, lambda x: x.row.rtl))
    return GemminiSummary(
        mean_error=float(errors.mean()),
        median_error=float(np.median(errors)),
        timeloop_error=float(np.mean([abs(one.row.timeloop / one.row.rtl - 1) for one in results])),
        rank_correlation=float(np.corrcoef(_ranks(simulated), _ranks(measured))[0, 1]),
        worst=float(ratios.max()),
        mean_ratio=math.exp(float(np.log(ratios).mean())),
    )


def _ranks(values: Sequence[float]) -> np.ndarray:
    ranks: np.ndarray = np.argsort(np.argsort(np.asarray(values), kind="stable"), kind="stable")
    return ranks


def with_parameters(machine: Hardware, values: Sequence[float]) -> Hardware:
    """Return a description with other values of FITTED."""
    given = dict(zip(FITTED, values, strict=True))
    rate, page, fill = given.pop("bytes_per_cycle"), given.pop("page_cycles"), given.pop("fill")
    tile = machine.near_tile
    assert tile is not None
    return replace(
        machine,
        near_tile=replace(tile, **given, fill=round(fill), bandwidth={"external": rate, "internal": rate}),
        memories={
            **machine.memories,
            "external": replace(machine.memories["external"], bytes_per_cycle=rate, page_cycles=page),
        },
    )


def fit_gemmini(rows: Sequence[GemminiRow], start: Sequence[float], most: int = 4000) -> tuple[list[float], float]:
    """Return the values of FITTED with the smallest mean absolute error on `rows`, found within about `most` steps, and
    that error. The search starts again from what it found until it gains nothing: the error has kinks at which
    Nelder-Mead stops early."""
    from scipy.optimize import minimize

    def error(values: np.ndarray) -> float:
        if (values <= 0).any():
            return math.inf
        predicted = (predicted_cycles(row.workload, row.mapping, with_parameters(row.hardware, values)) for row in rows)
        return float(np.mean([abs(cycles / row.rtl - 1) for cycles, row in zip(predicted, rows, strict=True)]))

    best, least = np.asarray(start, dtype=float), math.inf
    while most > 0:
        found = minimize(error, best, method="Nelder-Mead", options={"maxiter": most})
        if found.fun > least - 1e-5:
            break
        best, least, most = found.x, float(found.fun), most - found.nit
    return [float(value) for value in best], least


def main() -> None:
    """Print the tables of docs/validation.md."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fit", action="store_true", help="determine Gemmini's parameters from gemmini_rtl_a.csv")
    arguments = parser.parse_args()
    if arguments.fit:
        values, error = fit_gemmini(gemmini_rows("a"), (7.3, 3.5, 0.75, 2.3, 378, 9.4, 4.6))
        for name, value in zip(FITTED, values, strict=True):
            print(f"{name} = {value:.3g}")
        print(f"mean absolute error {error:.1%}")
        return
    for table in "ab":
        results = [run_gemmini(row) for row in gemmini_rows(table)]
        for one in sorted(results, key=lambda one: -abs(one.error)):
            w = one.row.workload
            print(
                f"{w.ci:5} {w.co:5} {w.ho:4} x {w.wo:<4} {w.kh}x{w.kw}/{w.stride[0]} {one.row.rtl:12.0f} "
                f"{one.cycles:12} {one.error:+7.1%}  chosen {one.chosen_cycles / one.cycles:.3f}"
            )
        print(f"gemmini_rtl_{table}: {summarise(results)}")


if __name__ == "__main__":
    main()
