"""The timeline of a simulated program in cycles: a row for each engine and each buffer, shaded by utilisation or fill
level.

A program has up to millions of instructions, so that a row is drawn in at most SLICES slices, each shaded by the share
of its cycles in which the engine is busy; adjacent slices of one shade are one rectangle. The zoomable timeline has
every instruction of a program with at most MOST_SPANS, and FINE slices of a longer one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from ..accel.program.program import Program
from ..accel.report.fill import Fill, fills
from ..accel.report.trace import instruction_names, region_spans
from ..accel.timing.timing import Timing
from ..figures import count, percent, scaled
from .markup import Html, tag
from .page import color, text
from .zoomed import WHOLE, Names, Span, ZoomRow, lanes, zoom_data

SLICES, SHADES = 480, 8
FINE = 1200
MOST_SPANS = 4000
MOST_LANES = 4  # number of operators
WIDTH = 1000  # height of a row's drawing, which is stretched to the page
TICKS = 4


def timeline(program: Program, timing: Timing, cycles: int) -> Html | None:
    """Return the drawing; None for a program that takes no time."""
    if not cycles or not len(program):
        return None
    queue = program.instructions["queue"]
    rows = [(name, number) for number, name in enumerate(program.queues) if (queue == number).any()]
    drawn = []
    for place, (name, number) in enumerate(rows):
        start, end = timing.start[queue == number], timing.end[queue == number]
        busy = percent(int((end - start).sum()) / cycles)
        drawn.append(still_row(name, f"When {name} is busy", busy, place, stretches(start, end, cycles)))
    for place, (name, fill) in enumerate(fills(program, timing).items(), start=len(rows)):
        most = f"at most {percent(int(fill.bytes.max()) / fill.size)}"
        drawn.append(still_row(f"in {name}", f"How full {name} is", most, place, fill_stretches(fill, cycles)))
    axis = still_scale(cycles)
    caption = tag(
        "figcaption",
        "Engines and buffers over the cycles: a stronger colour means a busier engine, or a larger share of the part "
        "of the buffer that the program uses",
    )
    note = None
    if len(program) > MOST_SPANS:
        note = text(
            f"{count(len(program))} instructions are drawn in slices of {count(max(1, cycles // FINE))} cycles."
        )
    still = tag("div", *drawn, axis, class_="bars static")
    return tag("figure", caption, note, _zoomed(program, timing, cycles), still)


def still_scale(end: float, unit: str = "") -> Html:
    """Tick marks below the rows, from 0 to `end`."""
    ticks = [tag("span", scaled(end * tick / TICKS, unit).replace(" ", "")) for tick in range(TICKS + 1)]
    return tag(
        "div", tag("span", class_="name"), tag("span", *ticks, class_="axis"), tag("span", class_="value"), class_="bar"
    )


def still_row(name: str, label: str, value: str, place: int, shaded: Iterable[tuple[float, float, float]]) -> Html:
    """A row of rectangles, from and to shares of its width, each with its opacity, followed by `value`."""
    parts = [
        tag(
            "rect",
            x=f"{WIDTH * first:.1f}",
            y=0,
            width=f"{WIDTH * (last - first):.1f}",
            height=1,
            fill_opacity=f"{shade:.3g}",
        )
        for first, last, shade in shaded
    ]
    drawing = tag(
        "svg",
        *parts,
        class_=f"row {color(place)}",
        viewBox=f"0 0 {WIDTH} 1",
        preserveAspectRatio="none",
        role="img",
        aria_label=label,
    )
    end = tag("span", value, class_="value")
    return tag("div", tag("span", name, class_="name"), tag("span", drawing, class_="track"), end, class_="bar")


def _zoomed(program: Program, timing: Timing, cycles: int) -> Html:
    """Return the same as data for zoom.js, with the operators above the engines."""
    names, rows = Names(), []
    operators = [
        Span(start, end - start, names.number(program.regions[place].name))
        for place, start, end in region_spans(program, timing)
        if end > start and len(program.regions) > 1
    ]
    rows += [ZoomRow("operators" if not n else "", lane, n) for n, lane in enumerate(lanes(operators)[:MOST_LANES])]
    queue = program.instructions["queue"]
    single = len(program) <= MOST_SPANS
    called = instruction_names(program.instructions) if single else []
    regions = program.instructions["region"].tolist()
    for number, queue_name in enumerate(program.queues):
        own = np.flatnonzero(queue == number)
        if not len(own):
            continue
        start, end = timing.start[own], timing.end[own]
        if single:
            labels = (f"{called[n]}{_of(program, regions[n])}" for n in own.tolist())
            spans = [
                Span(first, last - first, names.number(label))
                for label, first, last in zip(labels, start.tolist(), end.tolist(), strict=True)
                if last > first
            ]
        else:
            spans = _slices(stretches(start, end, cycles, FINE), cycles)
        rows.append(ZoomRow(queue_name, spans, len(rows)))
    for buffer, fill in fills(program, timing).items():
        rows.append(ZoomRow(f"in {buffer}", _slices(fill_stretches(fill, cycles, FINE), cycles), len(rows)))
    return zoom_data("Engines and buffers over the cycles", cycles, rows, names, unit="", factor=1.0)


def _of(program: Program, region: int) -> str:
    return f" of {program.regions[region].name}" if program.regions else ""


def _slices(stretches: Iterable[tuple[float, float, float]], cycles: int) -> list[Span]:
    return [
        Span(round(first * cycles), round(last * cycles) - round(first * cycles), 0, round(shade * WHOLE))
        for first, last, shade in stretches
    ]


def stretches(
    start: np.ndarray, end: np.ndarray, cycles: int, slices: int = SLICES
) -> Iterator[tuple[float, float, float]]:
    """Return (from, to, share busy) of stretches of one shade, as shares of all cycles; idle ones are omitted.

    `start`, `end`: cycles of one engine's instructions, which do not overlap.
    """
    order = np.argsort(start, kind="stable")
    start, end = start[order], end[order]
    edges = np.linspace(0, cycles, min(slices, cycles) + 1)
    before = np.concatenate([[0], np.cumsum(end - start)])
    last = np.searchsorted(start, edges, side="right")
    begun = np.maximum(last - 1, 0)
    whole = np.where(last > 0, before[begun] + np.clip(edges - start[begun], 0, (end - start)[begun]), 0.0)
    yield from _merged(np.diff(whole) / np.diff(edges))


def fill_stretches(fill: Fill, cycles: int, slices: int = SLICES) -> Iterator[tuple[float, float, float]]:
    """The same for a buffer: its average fill level in each stretch."""
    times = np.concatenate([[0], fill.times, [cycles]])
    held = np.concatenate([[0], fill.bytes / fill.size])
    before = np.concatenate([[0], np.cumsum(held * np.diff(times))])
    edges = np.linspace(0, cycles, min(slices, cycles) + 1)
    yield from _merged(np.diff(np.interp(edges, times, before)) / np.diff(edges))


def _merged(share: np.ndarray) -> Iterator[tuple[float, float, float]]:
    """Merge consecutive slices of one shade into one stretch."""
    level = np.ceil(share * SHADES - 1e-9).astype(int)
    changes = (np.flatnonzero(np.diff(level)) + 1).tolist()
    for first, behind in zip([0, *changes], [*changes, len(level)], strict=True):
        if level[first] > 0:
            yield first / len(level), behind / len(level), level[first] / SHADES
