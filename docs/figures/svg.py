"""Pictures as SVG text: shapes, and plots with axes. Equal data give equal bytes.

Colours are classes that follow the reader's light or dark setting, also in an embedded picture. Lengths are pixels of a
picture 720 wide.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from xml.sax.saxutils import escape

WIDTH = 720
STYLE = """
text { font: 13px system-ui, sans-serif; fill: #1f2937 } .small { font-size: 11px } .big { font-size: 17px }
.title { font-weight: 600 }
.axis { stroke: #6b7280; fill: none } .grid { stroke: #e5e7eb; fill: none } .edge { stroke: #1f2937; fill: none }
.back { fill: #ffffff } .none { fill: #e5e7eb } .light { fill: #ffffff }
.f0 { fill: #2563eb } .f1 { fill: #d97706 } .f2 { fill: #059669 } .f3 { fill: #9333ea } .f4 { fill: #6b7280 }
.l0 { stroke: #2563eb } .l1 { stroke: #d97706 } .l2 { stroke: #059669 } .l3 { stroke: #9333ea } .l4 { stroke: #6b7280 }
.line { fill: none; stroke-width: 2 } .dashed { stroke-dasharray: 6 4 } .pale { fill-opacity: 0.3 }
@media (prefers-color-scheme: dark) {
text { fill: #e5e7eb } .axis { stroke: #9ca3af } .grid { stroke: #374151 } .edge { stroke: #e5e7eb }
.back { fill: #111827 } .none { fill: #374151 } .light { fill: #111827 }
.f0 { fill: #60a5fa } .f1 { fill: #fbbf24 } .f2 { fill: #34d399 } .f3 { fill: #c084fc } .f4 { fill: #9ca3af }
.l0 { stroke: #60a5fa } .l1 { stroke: #fbbf24 } .l2 { stroke: #34d399 } .l3 { stroke: #c084fc } .l4 { stroke: #9ca3af }
}"""


def number(value: float) -> str:
    """A length or coordinate, to a tenth of a pixel."""
    return f"{value:.1f}".removesuffix(".0")


@dataclass
class Drawing:
    """A picture `height` high; `title` is the text for screen readers."""

    title: str
    height: int
    parts: list[str] = field(default_factory=list)

    def rect(self, x: float, y: float, width: float, height: float, kind: str, opacity: float = 1.0) -> None:
        """A rectangle with one or several classes."""
        size = f'width="{number(width)}" height="{number(height)}"'
        seen = f' fill-opacity="{opacity:.2f}"' if opacity < 1 else ""
        self.parts.append(f'<rect x="{number(x)}" y="{number(y)}" {size} class="{kind}"{seen}/>')

    def path(self, points: Iterable[tuple[float, float]], kind: str) -> None:
        """Straight lines from point to point."""
        d = "M" + " L".join(f"{number(x)} {number(y)}" for x, y in points)
        self.parts.append(f'<path d="{d}" class="{kind}"/>')

    def dot(self, x: float, y: float, kind: str, radius: float = 4) -> None:
        """A filled circle."""
        self.parts.append(f'<circle cx="{number(x)}" cy="{number(y)}" r="{number(radius)}" class="{kind}"/>')

    def text(self, x: float, y: float, words: str, anchor: str = "start", kind: str = "", turned: bool = False) -> None:
        """A line of text; `anchor` start, middle or end; `turned` upwards."""
        turn = f' transform="rotate(-90 {number(x)} {number(y)})"' if turned else ""
        named = f' class="{kind}"' if kind else ""
        self.parts.append(
            f'<text x="{number(x)}" y="{number(y)}" text-anchor="{anchor}"{named}{turn}>{escape(words)}</text>'
        )

    def legend(self, x: float, y: float, entries: Sequence[tuple[str, str]]) -> None:
        """A legend: coloured squares with labels, one below the other."""
        for row, (kind, words) in enumerate(entries):
            self.rect(x, y + 18 * row - 9, 10, 10, kind)
            self.text(x + 16, y + 18 * row, words, kind="small")

    def save(self, path: Path) -> None:
        """Writes the file."""
        head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {self.height}" role="img">'
        back = f'<rect width="{WIDTH}" height="{self.height}" class="back"/>'
        lines = [head, f"<title>{escape(self.title)}</title>", f"<style>{STYLE}\n</style>", back, *self.parts, "</svg>"]
        path.write_text("\n".join(lines) + "\n")


@dataclass
class Axis:
    """A mapping from values to positions between `start` and `end`: linear, or logarithmic if `log`."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def at(self, value: float) -> float:
        """The position of a value."""
        scale: Callable[[float], float] = math.log2 if self.log else float
        share = (scale(value) - scale(self.low)) / (scale(self.high) - scale(self.low))
        return self.start + share * (self.end - self.start)


@dataclass
class Plot:
    """Axes within a drawing; `x` and `y` are (smallest, largest) values; ticks are their labels."""

    drawing: Drawing
    x: Axis
    y: Axis

    def ticks(self, along: Sequence[tuple[float, str]], up: Sequence[tuple[float, str]]) -> None:
        """Grid lines with labels, below and to the left."""
        for value, words in up:
            place = self.y.at(value)
            self.drawing.path([(self.x.start, place), (self.x.end, place)], "grid")
            self.drawing.text(self.x.start - 6, place + 4, words, "end", "small")
        for value, words in along:
            self.drawing.text(self.x.at(value), self.y.start + 16, words, "middle", "small")
        corner = (self.x.start, self.y.start)
        self.drawing.path([(self.x.start, self.y.end), corner, (self.x.end, self.y.start)], "axis")

    def names(self, along: str, up: str) -> None:
        """Titles of the axes."""
        self.drawing.text((self.x.start + self.x.end) / 2, self.y.start + 36, along, "middle")
        self.drawing.text(self.x.start - 44, (self.y.start + self.y.end) / 2, up, "middle", turned=True)

    def line(self, points: Iterable[tuple[float, float]], kind: str) -> None:
        """A line through values."""
        self.drawing.path([(self.x.at(x), self.y.at(y)) for x, y in points], f"line {kind}")

    def dots(self, points: Iterable[tuple[float, float]], kind: str, radius: float = 4) -> None:
        """Values as points."""
        for x, y in points:
            self.drawing.dot(self.x.at(x), self.y.at(y), kind, radius)


def plot(title: str, x: tuple[float, float], y: tuple[float, float], *, log: str = "", height: int = 320) -> Plot:
    """An empty plot in a new drawing; `log` names the logarithmic axes: "x", "y" or "xy"."""
    drawing = Drawing(title, height)
    along = Axis(*x, 70, WIDTH - 24, "x" in log)
    return Plot(drawing, along, Axis(*y, height - 50, 24, "y" in log))
