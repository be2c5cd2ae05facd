"""Compare the simulated accelerator with SCALE-Sim and ZigZag, on one machine and 30 layers: python -m
benchmarks.accel_peers

Reports the cycles and the bytes per operand of each simulator. Where two figures differ by more than 10 percent, the
modelling assumptions that cause the difference are named. They are not assigned by hand: each name stands for a change
to our machine description, or to both descriptions, that adopts an assumption of the other simulator
(accel_setting.py). The smallest set of changes that brings the figure within 10 percent is reported. The exit code is 1
if a difference cannot be explained. "all" is the difference with every assumption of the other simulator adopted.

`--figures FILE` stores the results of the other simulators and reuses them in later runs. SCALE-Sim takes up to a few
minutes per layer.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType

from tvm_tiling.atomic_file import atomic_file

from .accel_layers import LAYERS
from .accel_setting import (
    AGAIN,
    ALONE,
    BEFORE,
    BEHIND,
    MATRIX,
    PADDED_BLOCKS,
    PADDED_LOADS,
    Assumption,
    Setting,
    ours,
)
from .peers import scalesim_peer, zigzag_peer
from .peers.accel_machine import OPERANDS, ArrayMachine, Figures, Layer

MOST = 0.10  # a difference that needs no explanation
TOOLS: dict[str, tuple[ModuleType, tuple[Assumption, ...]]] = {
    scalesim_peer.NAME: (scalesim_peer, (PADDED_BLOCKS, PADDED_LOADS, MATRIX, ALONE, BEFORE, BEHIND, AGAIN)),
    zigzag_peer.NAME: (zigzag_peer, (PADDED_BLOCKS, MATRIX, BEFORE, BEHIND, AGAIN)),
}
MEASURES = ("cycles", *OPERANDS)
Simulator = Callable[[ArrayMachine], Figures]


@dataclass(frozen=True)
class Difference:
    """One measure of a layer: our value, theirs, the assumptions that explain the difference (None if nothing does),
    both values after these are adopted, and the relative difference with every assumption of the other simulator
    adopted."""

    measure: str
    ours: int
    theirs: int
    names: tuple[str, ...] | None
    turned: tuple[int, int]
    all_turned: float

    @property
    def relative(self) -> float:
        return relative(self.ours, self.theirs)


@dataclass(frozen=True)
class Row:
    """One layer compared with one simulator, with the seconds that each took."""

    layer: str
    tool: str
    differences: tuple[Difference, ...]
    our_seconds: float
    their_seconds: float


def relative(own: float, other: float) -> float:
    """Relative difference of our value from theirs."""
    return own / other - 1 if other else float("inf") if own else 0.0


def compare(layer: Layer, machine: ArrayMachine, tool: str, known: tuple[Assumption, ...], theirs: Simulator) -> Row:
    """Compare a layer with another simulator; `theirs` returns its figures for a machine."""

    @functools.cache
    def both(taken: tuple[Assumption, ...]) -> tuple[Figures, Figures]:
        setting = Setting(machine)
        ordered = sorted(
            taken, key=lambda assumption: not assumption.both
        )  # change the machine before reading values off it
        figures = theirs(machine)
        for assumption in ordered:
            setting = assumption.turn(setting, layer, figures)
            figures = theirs(setting.machine)
        return ours(layer, setting), figures

    rows = []
    everything = both(known)
    for measure in MEASURES:

        def pair(figures: tuple[Figures, Figures], measure: str = measure) -> tuple[int, int]:
            return tuple(each.cycles if measure == "cycles" else each.moved[measure] for each in figures)  # type: ignore[return-value]

        names, turned = None, pair(both(()))
        for count in range(len(known) + 1):
            tried = [(pair(both(taken)), taken) for taken in itertools.combinations(known, count)]
            closest, taken = min(tried, key=lambda one: abs(relative(*one[0])))
            if abs(relative(*closest)) <= MOST:
                names, turned = tuple(assumption.name for assumption in taken), closest
                break
        rows.append(Difference(measure, *pair(both(())), names, turned, relative(*pair(everything))))
    own, other = both(())
    return Row(layer.name, tool, tuple(rows), own.seconds, other.seconds)


class Kept:
    """Figures of the other simulators, computed once for each layer and machine and stored in a file if one is
    given."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.figures: dict[str, Figures] = {}
        if path is not None and path.exists():
            read = json.loads(path.read_text(encoding="utf-8"))
            self.figures = {key: Figures(**figures) for key, figures in read.items()}

    def simulator(self, tool: str, layer: Layer) -> Simulator:
        """Return a function that simulates the layer with a tool."""

        def simulate(machine: ArrayMachine) -> Figures:
            key = f"{tool}, {layer.name}, {machine}"
            if key not in self.figures:
                self.figures[key] = TOOLS[tool][0].simulate(layer, machine)
                self.write()
            return self.figures[key]

        return simulate

    def write(self) -> None:
        """Write the file atomically."""
        if self.path is not None:
            text = json.dumps({key: asdict(figures) for key, figures in self.figures.items()}, indent=1)
            with atomic_file(self.path) as file:
                file.write(f"{text}\n".encode())


def unexplained(rows: Sequence[Row]) -> list[str]:
    """Return one sentence for every unexplained difference."""
    return [
        f"{row.tool}, {row.layer}: {one.measure} is {one.ours}, not {one.theirs}, and no assumption explains it"
        for row in rows
        for one in row.differences
        if one.names is None
    ]


def table(rows: Sequence[Row]) -> str:
    """Format the rows as text: our bytes and theirs, differences in percent of theirs, and explanations below each
    row."""
    return "\n".join(line for tool in dict.fromkeys(row.tool for row in rows) for line in _lines(tool, rows))


def _lines(tool: str, rows: Sequence[Row]) -> Iterator[str]:
    chosen = [row for row in rows if row.tool == tool]
    headings = "".join(f"{measure + ': ours':>15} {tool:>9} {'%':>6}" for measure in MEASURES)
    yield f"{tool:28}{headings} {'seconds':>8} {tool:>9}"
    for row in chosen:
        figures = "".join(f"{one.ours:>15} {one.theirs:>9} {100 * one.relative:>+6.0f}" for one in row.differences)
        yield f"{row.layer:28}{figures} {row.our_seconds:>8.2f} {row.their_seconds:>9.1f}"
        for one in row.differences:
            if one.names is None:
                yield f"    {one.measure}: unexplained"
            elif one.names:
                own, other = one.turned
                left = f"{own} vs. {other}, {100 * relative(own, other):+.0f}%; all: {100 * one.all_turned:+.0f}%"
                yield f"    {one.measure}: {', '.join(one.names)}: {left}"
    own, other = (sum(seconds) for seconds in zip(*((r.our_seconds, r.their_seconds) for r in chosen), strict=True))
    large = sum(abs(one.relative) > MOST for row in chosen for one in row.differences)
    without = len(unexplained(chosen))
    yield (
        f"{len(chosen)} layers, {len(MEASURES) * len(chosen)} figures, {large} differ by over {100 * MOST:.0f}%, "
        f"{large - without} of them explained; {own:.1f} s for ours, {other:.1f} s for {tool}"
    )
    yield ""


def legend(tools: Sequence[str]) -> str:
    """Explain the names of the assumptions."""
    known = dict.fromkeys(assumption for tool in tools for assumption in TOOLS[tool][1])
    return "\n".join(f"{assumption.name}: {assumption.says}" for assumption in known)


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare with every installed simulator. Returns 1 if a difference is unexplained."""
    parser = argparse.ArgumentParser(description="Compare the simulated accelerator with other simulators.")
    parser.add_argument(
        "--tool", choices=sorted(TOOLS), action="append", help="compare with this simulator only; may be repeated"
    )
    parser.add_argument("--layer", help="only layers whose name contains this text")
    parser.add_argument("--figures", type=Path, help="store the results of the other simulators in this file")
    options = parser.parse_args(arguments)
    layers = [layer for layer in LAYERS if (options.layer or "").lower() in layer.name.lower()]
    if not layers:
        parser.error(f"--layer {options.layer!r}; expected a part of {', '.join(layer.name for layer in LAYERS)}")
    kept, machine, rows, used = Kept(options.figures), ArrayMachine(), [], []
    for tool in options.tool or sorted(TOOLS):
        module, known = TOOLS[tool]
        if missing := module.available():
            print(f"skipped {tool}: {missing}")
            continue
        used.append(tool)
        rows += [compare(layer, machine, tool, known, kept.simulator(tool, layer)) for layer in layers]
    if rows:
        print(table(rows), legend(used), sep="\n")
    for sentence in unexplained(rows):
        print(sentence, file=sys.stderr)
    return 1 if unexplained(rows) else 0


if __name__ == "__main__":
    sys.exit(main())
