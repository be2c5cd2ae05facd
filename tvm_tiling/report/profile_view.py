"""The profile of a run in a report: the activity of each thread over time, and threads and counters of each
operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ..figures import column, count, percent, seconds
from ..model.profile import Profile, thread_name
from ..model.report import nodes_text
from .markup import Html, breakable, join, tag
from .page import Cell, Section, Tile, page, table, text
from .timeline import still_row, still_scale, stretches
from .zoomed import Names, Span, ZoomRow, zoom_data

NANOSECONDS = 1e9
COLORS = 12  # colours that operators take in turn, by their number
LIKE = 1.3
"""A profiled run counts as representative if it takes at most this many times as long as other runs."""
CYCLES, INSTRUCTIONS = "cycles", "instructions"
UNITS = {"task clock": ("s", 1e-9)}
"""Units of counters that are not plain numbers, and the value of one count in them."""


def profile_page(profile: Profile, title: str = "") -> str:
    """Return the page of a profile by itself."""
    numbers = {name: n for n, name in enumerate(profile.operators(), start=1)}
    tiles = [
        Tile("run, profiled", seconds(profile.seconds), f"the median of {profile.runs}"),
        Tile("run, not profiled", seconds(profile.unprofiled), "median of the same runs"),
        Tile("threads", str(profile.threads), f"busy {percent(_efficiency(profile))} of the run"),
        Tile("steps", count(len(profile.steps)), f"{count(len(profile.tasks))} tasks of parallel loops"),
    ]
    sections = [
        Section("Threads over time", threads_view(profile, numbers)),
        Section("Operators by thread", operators_view(profile, numbers)),
    ]
    return page(title or "Profile", notes(profile), tiles, sections, doubts(profile))


def doubts(profile: Profile) -> list[str]:
    """Return a warning if the profile is not representative of runs without profiling."""
    if profile.seconds <= LIKE * profile.unprofiled:
        return []
    return [
        f"Doubtful: the profiled run took {profile.seconds / profile.unprofiled:.1f} times as long as runs without "
        "profiling. Operators are very short, or other processes took the cores; repeat it on an idle machine."
    ]


def notes(profile: Profile) -> list[str]:
    """The reason if there are no hardware counters."""
    if not profile.refused:
        return []
    instead = f"; counted by the system: {', '.join(profile.counters)}" if profile.counters else ""
    return [f"No hardware counters: {profile.refused}{instead}."]


def _efficiency(profile: Profile) -> float:
    busy = sum(end - start for *_, start, end in profile.busy())
    return busy / (profile.threads * profile.seconds) if profile.seconds else 0.0


def threads_view(profile: Profile, numbers: Mapping[str, int]) -> Html:
    """A row for the operators and one for each thread. `numbers`: numbers of the operators on the page, by name."""
    names, end = Names(), max(1, round(profile.seconds * NANOSECONDS))
    colors = {0: 7}

    def name_of(operator: str) -> int:
        nodes = profile.nodes.get(operator, ())
        number = numbers.get(operator)
        label = f"{number or ''}  {nodes_text(nodes, 1) or operator}".strip()
        found = names.number(label)
        colors[found] = ((number or 1) - 1) % COLORS
        return found

    steps = [_span(step.start, step.end, name_of(step.operator)) for step in profile.steps]
    rows = [("operators", steps)]
    for thread in range(profile.threads):
        own = [
            _span(start, stop, name_of(profile.steps[step].operator))
            for each, step, start, stop in profile.busy()
            if each == thread
        ]
        rows.append((thread_name(thread), own))
    every = [colors.get(n, 7) for n in range(len(names.all))]
    zoomed = [ZoomRow(name, spans, 0, every) for name, spans in rows]
    caption = tag("figcaption", "Operators and threads over one run; gaps are waiting")
    data = zoom_data("Operators and threads over one run", end, zoomed, names, unit="s", factor=1 / NANOSECONDS)
    drawn = []
    for place, (name, spans) in enumerate(rows):
        start = np.array([span.start for span in spans], np.int64)
        stop = np.array([span.start + span.length for span in spans], np.int64)
        busy = percent(int((stop - start).sum()) / end)
        shaded = stretches(start, stop, end) if spans else ()
        drawn.append(still_row(name, f"When {name} is busy", busy, place, shaded))
    scale = still_scale(end / NANOSECONDS, "s")
    note = text(
        f"The run with the median time of {profile.runs}, {seconds(profile.seconds)}. Runs without profiling took "
        f"a median of {seconds(profile.unprofiled)}: the difference is due to profiling and other processes.",
        *doubts(profile),
        *notes(profile),
    )
    return join([note, tag("figure", caption, data, tag("div", *drawn, scale, class_="bars static"))])


def _span(start: float, end: float, name: int) -> Span:
    first = round(start * NANOSECONDS)
    return Span(first, max(1, round(end * NANOSECONDS) - first), name)


def operators_view(profile: Profile, numbers: Mapping[str, int]) -> Html:
    """Show each operator's time, the utilisation of each thread meanwhile, and the counters."""
    operators = profile.operators()
    time, times = column("time", [each.seconds for each in operators.values()], "s")
    threads = [
        [percent(each.busy[thread] / each.seconds if each.seconds else 0.0, 0) for each in operators.values()]
        for thread in range(profile.threads)
    ]
    headings, counted = _counters(profile)
    rows = [
        (
            numbers.get(name, ""),
            Cell(_named(name, profile.nodes.get(name, ())), "name", ", ".join(profile.nodes.get(name, ()))),
            each.calls,
            times[place],
            percent(each.efficiency, 0),
            *(cells[place] for cells in threads),
            *(cells[place] for cells in counted),
        )
        for place, (name, each) in enumerate(operators.items())
    ]
    first = ("#", "operator", "calls", time, "threads busy")
    return table((*first, *(f"thread {n}" for n in range(profile.threads)), *headings), rows)


def _counters(profile: Profile) -> tuple[list[str], list[list[str]]]:
    """Columns of counters; instructions per cycle if both were counted."""
    operators = list(profile.operators().values())
    headings, columns = [], []
    for name in profile.counters:
        unit, factor = UNITS.get(name, ("", 1))
        values = [each.counters.get(name) for each in operators]
        heading, cells = column(name, [None if value is None else factor * value for value in values], unit)
        headings.append(heading)
        columns.append(cells)
    if {CYCLES, INSTRUCTIONS} <= set(profile.counters):
        headings.append("per cycle")
        columns.append(
            [
                f"{each.counters[INSTRUCTIONS] / each.counters[CYCLES]:.2f}" if each.counters.get(CYCLES) else "–"
                for each in operators
            ]
        )
    return headings, columns


def _named(operator: str, nodes: Sequence[str]) -> Html:
    if not nodes:
        return breakable(operator)
    return join([breakable(nodes_text(nodes)), tag("br"), tag("span", breakable(operator), class_="faint")])
