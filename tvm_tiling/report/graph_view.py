"""The graph of a model as a drawing: a box for each step with its shape and time, coloured by time, and edges from the
steps whose results it reads. Every step is below all steps that it reads from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..figures import seconds
from ..model.graph import GraphStep
from ..model.report import OperatorRecord, nodes_text
from .markup import Html, join, tag
from .page import text

MOST_STEPS = 400
WIDE, HIGH = 216, 46  # of a box, in the drawing's units, which are pixels
ACROSS, DOWN = 22, 30  # between boxes
CHARACTERS = 31  # of a line in a box
STRONGEST = 0.6  # opacity of the slowest step's colour


def graph_view(graph: Sequence[GraphStep], operators: Mapping[str, tuple[int, OperatorRecord]]) -> Html | None:
    """Return the drawing; None without a graph. `operators`: number on the page and record by name."""
    if not graph:
        return None
    shown = graph[:MOST_STEPS]
    places = layout(shown)
    times = {name: _per_call(o) for name, (_, o) in operators.items()}
    slowest = max((times.get(step.operator) or 0.0 for step in shown), default=0.0)
    wide = max(x for x, _ in places) + WIDE + ACROSS
    high = max(y for _, y in places) + HIGH + DOWN / 2
    drawing = tag(
        "svg",
        *(_edge(places[read], places[n], read, n) for n, step in enumerate(shown) for read in step.reads if read >= 0),
        *(
            _box(n, step, places[n], operators.get(step.operator), times.get(step.operator), slowest)
            for n, step in enumerate(shown)
        ),
        viewBox=f"0 0 {wide:.0f} {high:.0f}",
        style=f"width:{wide:.0f}px",
        role="img",
        aria_label="Graph of the model",
    )
    measured = any(o.measured_seconds for _, o in operators.values())
    kind = "measured" if measured else "predicted; nothing was measured"
    cut = f" The first {MOST_STEPS} of {len(graph)} steps are drawn." if len(graph) > MOST_STEPS else ""
    note = text(
        "Steps of a run from top to bottom, with the number of the operator, the shape of the result and the mean "
        f"time of a call ({kind}). The stronger the colour, the longer the call.{cut}"
    )
    pane = tag("div", drawing, class_="pane", tabindex="0", role="region", aria_label="Graph of the model")
    return join([note, tag("figure", pane, class_="graph")])


def layout(graph: Sequence[GraphStep]) -> list[tuple[float, float]]:
    """Return the top left corner of each step's box. A step's row is the length of the longest path from an input;
    within a row, steps are ordered by what they read from."""
    depth: list[int] = []
    for step in graph:
        depth.append(1 + max((depth[read] for read in step.reads if read >= 0), default=-1))
    rows: dict[int, list[int]] = {}
    for number, row in enumerate(depth):
        rows.setdefault(row, []).append(number)
    widest = max((len(row) for row in rows.values()), default=0)
    middle = widest * (WIDE + ACROSS) / 2
    places: dict[int, tuple[float, float]] = {}
    for row in sorted(rows):
        numbers = sorted(rows[row], key=lambda n: _mean([places[r][0] for r in graph[n].reads if r >= 0], middle))
        left = middle - len(numbers) * (WIDE + ACROSS) / 2 + ACROSS / 2
        for place, number in enumerate(numbers):
            places[number] = (left + place * (WIDE + ACROSS), DOWN / 2 + row * (HIGH + DOWN))
    return [places[number] for number in range(len(graph))]


def _mean(values: Sequence[float], default: float) -> float:
    return sum(values) / len(values) if values else default


def _per_call(operator: OperatorRecord) -> float | None:
    """Seconds of a call: measured, or predicted if nothing was measured."""
    found = operator.measured_seconds or operator.predicted_seconds
    return found / operator.calls if found and operator.calls else None


def _edge(above: tuple[float, float], below: tuple[float, float], source: int, target: int) -> Html:
    """Path from the bottom of one box to the top of another, around the boxes between them."""
    x1, y1 = above[0] + WIDE / 2, above[1] + HIGH
    x2, y2 = below[0] + WIDE / 2, below[1]
    aside = 0.0 if y2 - y1 <= DOWN + 1 else WIDE * 0.72
    bend = max(14.0, (y2 - y1) / 3)
    path = f"M{x1:.0f} {y1:.0f}C{x1 + aside:.0f} {y1 + bend:.0f} {x2 + aside:.0f} {y2 - bend:.0f} {x2:.0f} {y2:.0f}"
    return tag("path", class_="edge", d=path, data_from=source, data_to=target)


def _box(
    number: int,
    step: GraphStep,
    place: tuple[float, float],
    operator: tuple[int, OperatorRecord] | None,
    taken: float | None,
    slowest: float,
) -> Html:
    x, y = place
    name = step.operator if operator is None else nodes_text(operator[1].nodes, 1) or step.operator
    first = _short(name if operator is None else f"{operator[0]}  {name}")
    shape = step.shapes[0].removesuffix(" float32") if step.shapes else ""
    second = " · ".join(filter(None, (_short(shape, CHARACTERS - 10), seconds(taken) if taken else "")))
    told = [step.operator, f"writes {', '.join(step.shapes)}"]
    if operator is not None:
        form = operator[1].form or operator[1].kind
        told = [f"{operator[0]}  {step.operator}", form, *told[1:], f"nodes: {nodes_text(operator[1].nodes, 8) or '–'}"]
    strength = STRONGEST * taken / slowest if taken and slowest else 0.0
    return tag(
        "g",
        tag("title", "\n".join(told)),
        tag("rect", class_="box", x=f"{x:.0f}", y=f"{y:.0f}", width=WIDE, height=HIGH, rx=6),
        tag(
            "rect",
            class_="heat",
            x=f"{x:.0f}",
            y=f"{y:.0f}",
            width=WIDE,
            height=HIGH,
            rx=6,
            fill_opacity=f"{strength:.2f}",
        ),
        tag("text", first, class_="strong", x=f"{x + 9:.0f}", y=f"{y + 19:.0f}"),
        tag("text", second, x=f"{x + 9:.0f}", y=f"{y + 36:.0f}"),
        class_="step",
        data_step=number,
    )


def _short(text_: str, most: int = CHARACTERS) -> str:
    return text_ if len(text_) <= most else f"{text_[: most - 1]}…"
