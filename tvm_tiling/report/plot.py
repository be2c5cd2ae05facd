"""Plots as SVG: lines and points over two axes (linear, logarithmic or categorical), and rooflines."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ..figures import scaled
from .labels import Box, Labels
from .markup import Html, tag
from .page import color, legend

WIDTH, HEIGHT = 460, 300
LEFT, RIGHT, TOP, BOTTOM = 62, 12, 8, 44
TICKS = 5
RADIUS = 4


class Axis(NamedTuple):
    """Title and scale of an axis. `names`: a categorical axis with positions 0, 1, 2, ... `from_zero`: starts at 0.
    `unit` is written at the tick marks, with an SI prefix, except for percent."""

    title: str
    log: bool = False
    from_zero: bool = False
    names: Sequence[str] = ()
    unit: str = ""


class Series(NamedTuple):
    """A series of points, connected if `line`. `hover`: tooltips of the points; `labels`: texts next to the points.
    `named`: the name is written at the line instead of in the legend."""

    name: str
    points: Sequence[tuple[float, float]]
    line: bool = False
    dots: bool = True
    dashed: bool = False
    hover: Sequence[str] = ()
    labels: Sequence[str] = ()
    named: bool = False


def plot(title: str, x: Axis, y: Axis, series: Sequence[Series]) -> Html | None:
    """Return the plot with its title; None without points."""
    points = [point for each in series for point in each.points]
    if not points:
        return None
    across = _Scale(x, [p[0] for p in points], LEFT, WIDTH - RIGHT)
    up = _Scale(y, [p[1] for p in points], HEIGHT - BOTTOM, TOP)
    drawing = tag(
        "svg",
        *_grid(across, up),
        *(part for place, each in enumerate(series) for part in _series(each, place, across, up)),
        *_labels(series, across, up),
        tag("text", x.title, x=(LEFT + WIDTH - RIGHT) / 2, y=HEIGHT - 6, text_anchor="middle"),
        tag(
            "text",
            y.title,
            x=0,
            y=0,
            text_anchor="middle",
            transform=f"translate(12 {(TOP + HEIGHT - BOTTOM) / 2:.0f}) rotate(-90)",
        ),
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        role="img",
        aria_label=f"{title}: {y.title} over {x.title}",
    )
    return tag("figure", tag("figcaption", title), _legend(series), drawing)


class _Scale:
    """Maps values to positions along an axis."""

    def __init__(self, axis: Axis, values: Sequence[float], first: float, last: float) -> None:
        self.axis, self._first, self._last = axis, first, last
        if axis.log:
            logs = [math.log10(value) for value in values]
            spare = 0.05 * (max(logs) - min(logs)) or 0.3
            self._low, self._high = min(logs) - spare, max(logs) + spare
        elif axis.names:
            self._low, self._high = -0.5, len(axis.names) - 0.5
        else:
            low = 0.0 if axis.from_zero else min(values)
            spare = 0.05 * (max(values) - low) or abs(low) or 1.0
            self._low, self._high = (0.0 if axis.from_zero else low - spare), max(values) + spare

    def at(self, value: float) -> float:
        """Position of a value, in the drawing's units."""
        place = math.log10(value) if self.axis.log else value
        return self._first + (place - self._low) / (self._high - self._low) * (self._last - self._first)

    def ticks(self) -> list[tuple[float, str]]:
        """Tick marks with their labels."""
        if self.axis.names:
            step = math.ceil(len(self.axis.names) / 8)
            return [(place, name) for place, name in enumerate(self.axis.names) if place % step == 0]
        found = self._decades() if self.axis.log else self._steps()
        return [(value, self._mark(value)) for value in found]

    def _mark(self, value: float) -> str:
        if self.axis.unit == "%":
            return f"{value:g}%"
        if abs(value) < 1 and not self.axis.unit:
            return f"{value:.2g}"
        return scaled(value, self.axis.unit, digits=2).replace(".0", "").replace(" ", "")

    def _decades(self) -> list[float]:
        span = self._high - self._low
        within = (1, 1.5, 2, 3, 5, 7) if span < 0.8 else (1, 2, 5) if span < 1.6 else (1, 3) if span < 3 else (1,)
        powers = range(math.floor(self._low), math.ceil(self._high) + 1)
        every = max(1, math.ceil(span / 8))
        values = [factor * 10.0**power for power in powers if power % every == 0 for factor in within]
        return [value for value in values if self._low <= math.log10(value) <= self._high]

    def _steps(self) -> list[float]:
        rough = (self._high - self._low) / TICKS
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
        first = math.ceil(self._low / step)
        return [number * step for number in range(first, math.floor(self._high / step) + 1)]


def _grid(across: _Scale, up: _Scale) -> list[Html]:
    parts = []
    for value, label in across.ticks():
        x = f"{across.at(value):.1f}"
        parts.append(tag("line", class_="grid", x1=x, x2=x, y1=TOP, y2=HEIGHT - BOTTOM))
        parts.append(tag("text", label, x=x, y=HEIGHT - BOTTOM + 16, text_anchor="middle"))
    for value, label in up.ticks():
        y = up.at(value)
        parts.append(tag("line", class_="grid", x1=LEFT, x2=WIDTH - RIGHT, y1=f"{y:.1f}", y2=f"{y:.1f}"))
        parts.append(tag("text", label, x=LEFT - 5, y=f"{y + 4:.1f}", text_anchor="end"))
    return parts


def _series(series: Series, place: int, across: _Scale, up: _Scale) -> list[Html]:
    at = [(f"{across.at(x):.1f}", f"{up.at(y):.1f}") for x, y in series.points]
    own, parts = color(place), []
    if series.line:
        kind = f"line dashed {own}" if series.dashed else f"line {own}"
        parts.append(tag("polyline", class_=kind, points=" ".join(f"{x},{y}" for x, y in at)))
    if series.dots:
        for number, (x, y) in enumerate(at):
            hover = tag("title", series.hover[number]) if series.hover else None
            parts.append(tag("circle", hover, class_=f"dot {own}", cx=x, cy=y, r=RADIUS))
    return parts


def _legend(series: Sequence[Series]) -> Html | None:
    """Legend of all series whose names are not written in the plot."""
    shown = [(place, each.name) for place, each in enumerate(series) if not each.named]
    return legend([name for _, name in shown], [place for place, _ in shown])


def _labels(series: Sequence[Series], across: _Scale, up: _Scale) -> list[Html]:
    at = [[(across.at(x), up.at(y)) for x, y in each.points] for each in series]
    dots = [place for each, places in zip(series, at, strict=True) if each.dots for place in places]
    labels = Labels(Box(LEFT, TOP, WIDTH - RIGHT, HEIGHT - BOTTOM), dots, RADIUS)
    lines = [labels.of_line(*places[0], each.name) for each, places in zip(series, at, strict=True) if each.named]
    points = [
        (*place, name)
        for each, places in zip(series, at, strict=True)
        for place, name in zip(places, each.labels, strict=False)
    ]
    return [*lines, *labels.of_points(points)]


def roofs_of(peak: Mapping[str, Any], arithmetic: float, left: float, right: float) -> list[Series]:
    """Return the roof of each memory level between two intensities, with its name; `arithmetic` in giga-operations per
    second. Levels whose bandwidths differ by less than a tenth share a roof, the lower one."""
    levels: list[tuple[list[str], float]] = []
    for level in sorted(peak["bandwidths"], key=lambda level: level["gbytes"]):
        if levels and level["gbytes"] < 1.1 * levels[-1][1]:
            levels[-1][0].append(f"{level['level']} {level['gbytes']:.0f}")
        else:
            levels.append(([f"{level['level']} {level['gbytes']:.0f}"], level["gbytes"]))
    roofs = []
    for names, slope in levels:
        ridge = arithmetic / slope
        xs = [left, ridge, right] if left < ridge < right else [left, right]
        points = [(x, 1e9 * min(arithmetic, x * slope)) for x in xs]
        roofs.append(Series(f"{', '.join(names)} GB/s", points, line=True, dots=False, named=True))
    top = [(right / 8, 1e9 * arithmetic), (right, 1e9 * arithmetic)]
    return [*roofs, Series(f"peak {scaled(1e9 * arithmetic, 'op/s')}", top, line=True, dots=False, named=True)]
