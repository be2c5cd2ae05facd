"""Gain of W-fold on convolutions whose channels do not fill a row, as an HTML page with a plot: python -m
benchmarks.accel_wfold -o wfold.html

Simulates a 3 x 3 convolution on the preset wfold16 for every number of input channels and reports the utilisation with
the granularity of fewest cycles (mode "best"), with the granularity of the padding rule (mode "seed"), and with
channels padded to a full row, that is without W-fold. Peak counts useful channels only.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from tvm import te, tirx, topi

import tvm_tiling as tt
from tvm_tiling.accel.record.function import record
from tvm_tiling.accel.timing.simulate import simulate
from tvm_tiling.hardware.description import Hardware
from tvm_tiling.match import prim_func_of
from tvm_tiling.report.page import Section, page, write_page
from tvm_tiling.report.plot import Axis, Series, plot

CHANNELS = (*range(1, 17), *range(18, 65, 2), *range(68, 129, 4))
HEIGHT, WIDTH, OUT, TAPS = 8, 64, 64, 3


def layer(channels: int) -> tirx.PrimFunc:
    """Return the int8 convolution with this many input channels."""
    x = te.placeholder((1, HEIGHT, WIDTH, channels), name="x", dtype="int8")
    w = te.placeholder((TAPS, TAPS, channels, OUT), name="w", dtype="int8")
    return prim_func_of(topi.nn.conv2d_nhwc(x, w, (1, 1), (1, 1, 1, 1), 1, out_dtype="int32"))


def without_folding(machine: Hardware) -> Hardware:
    """Return the machine with a full row as its only granularity."""
    assert machine.w_fold is not None
    return replace(machine, w_fold=replace(machine.w_fold, least_granularity=machine.w_fold.row_bytes))


def measure(channels: Iterable[int]) -> list[dict[str, float]]:
    """Return the simulated utilisation for each number of channels with the three methods."""
    machine = tt.Hardware.load("wfold16")
    rows = []
    for count in channels:
        func = layer(count)
        row: dict[str, float] = {"channels": count}
        for name, hardware, mode in (
            ("best", machine, "best"),
            ("seed", machine, "seed"),
            ("padded", without_folding(machine), "best"),
        ):
            schedule = tt.tiling_schedule(func, target=hardware, mode=mode)
            row[name] = simulate(record(schedule.mod, hardware)).utilisation
        rows.append(row)
    return rows


def table(rows: Sequence[dict[str, float]]) -> str:
    """Format the figures as text."""
    lines = [f"{'channels':>8} {'best':>7} {'seed':>7} {'padded':>7} {'gain':>6}"]
    for row in rows:
        gain = row["best"] / row["padded"]
        lines.append(f"{row['channels']:>8} {row['best']:>7.3f} {row['seed']:>7.3f} {row['padded']:>7.3f} {gain:>6.2f}")
    return "\n".join(lines)


def figure_page(rows: Sequence[dict[str, float]]) -> str:
    """Return an HTML page that plots utilisation against channels."""
    names = {"best": "W-fold, fewest cycles", "seed": "W-fold, padding rule", "padded": "padded to a full row"}
    lines = [Series(name, [(row["channels"], row[key]) for row in rows], line=True) for key, name in names.items()]
    x, y = Axis("input channels (bytes)"), Axis("utilisation", from_zero=True)
    note = f"{TAPS} x {TAPS} taps, {HEIGHT} x {WIDTH} points, {OUT} output channels, int8."
    sections = [Section("Against channels", plot("Utilisation", x, y, lines))]
    return page("Utilisation of wfold16", [note], [], sections)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table and write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accel_wfold", description=__doc__)
    parser.add_argument("-o", "--output", type=Path, help="write the plot to this HTML file")
    options = parser.parse_args(arguments)
    rows = measure(CHANNELS)
    print(table(rows))
    if options.output is not None:
        write_page(options.output, figure_page(rows))
        print(f"plot: {options.output}")


if __name__ == "__main__":
    main()
