"""Placement of labels in a plot: next to what they name, without covering each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .markup import Html, tag

CHARACTER, LINE = 6.6, 13.0  # width of a digit and height of a line, in the drawing's units
NEAR = 9.0  # points closer together share a label
MOST_NAMES = 4  # in one label


class Box(NamedTuple):
    """A rectangle of the drawing."""

    left: float
    top: float
    right: float
    bottom: float

    def overlap(self, other: Box) -> float:
        """Return the overlap of both rectangles."""
        wide = min(self.right, other.right) - max(self.left, other.left)
        high = min(self.bottom, other.bottom) - max(self.top, other.top)
        return wide * high if wide > 0 and high > 0 else 0.0


class Labels:
    """Labels of one plot, placed in the order in which they are added."""

    def __init__(self, inside: Box, dots: Sequence[tuple[float, float]], radius: float) -> None:
        """`inside`: the area for labels. `dots`: points that labels should not cover."""
        self._inside = inside
        self._taken = [Box(x - radius, y - radius, x + radius, y + radius) for x, y in dots]

    def of_points(self, points: Sequence[tuple[float, float, str]]) -> list[Html]:
        """Add a label for each point; coinciding points share one."""
        clusters: list[list[tuple[float, float, str]]] = []
        for x, y, name in points:
            near = (c for c in clusters if any(abs(x - a) < NEAR and abs(y - b) < NEAR for a, b, _ in c))
            found = next(near, None)
            if found is None:
                clusters.append([(x, y, name)])
            else:
                found.append((x, y, name))
        return [self._beside(cluster) for cluster in clusters]

    def of_line(self, x: float, y: float, name: str) -> Html:
        """Add the label of a line that starts at this point and rises to the right."""
        width = CHARACTER * len(name)
        places = [(x + dx, y + dy, "start") for dy in (14.0, 27.0, 40.0, -6.0) for dx in (8.0, 24.0)]
        places.append((self._inside.right, y + 14, "end"))
        return self._placed(name, width, places)

    def _beside(self, cluster: Sequence[tuple[float, float, str]]) -> Html:
        names = [name for _, _, name in cluster]
        more = f" +{len(names) - MOST_NAMES}" if len(names) > MOST_NAMES else ""
        text = ", ".join(names[:MOST_NAMES]) + more
        left, right = min(x for x, _, _ in cluster), max(x for x, _, _ in cluster)
        top, bottom = min(y for _, y, _ in cluster), max(y for _, y, _ in cluster)
        x, y = (left + right) / 2, (top + bottom) / 2
        places = [
            (right + 7, y + 4, "start"),
            (left - 7, y + 4, "end"),
            (x, top - 8, "middle"),
            (x, bottom + 16, "middle"),
            (right + 6, top - 6, "start"),
            (right + 6, bottom + 14, "start"),
            (left - 6, top - 6, "end"),
            (left - 6, bottom + 14, "end"),
        ]
        return self._placed(text, CHARACTER * len(text), places)

    def _placed(self, text: str, width: float, places: Sequence[tuple[float, float, str]]) -> Html:
        """Place a label where it covers the least."""
        x, y, anchor = min(places, key=lambda at: self._cost(box(at[0], at[1], at[2], width)))
        self._taken.append(box(x, y, anchor, width))
        return tag("text", text, class_="label", x=f"{x:.1f}", y=f"{y:.1f}", text_anchor=anchor)

    def _cost(self, place: Box) -> float:
        outside = (place.right - place.left) * (place.bottom - place.top) - place.overlap(self._inside)
        return 4 * outside + sum(place.overlap(other) for other in self._taken)


def box(x: float, y: float, anchor: str, width: float) -> Box:
    """Return the area that a label covers."""
    left = x - {"start": 0.0, "middle": 0.5, "end": 1.0}[anchor] * width
    return Box(left, y - LINE + 3, left + width, y + 3)
