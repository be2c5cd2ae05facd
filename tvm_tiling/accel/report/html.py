"""Tables and plots as one HTML file that needs nothing outside of itself.

Plots are drawn by plotly's script, copied into the file once (extra `plots`); without that package tables stand alone.
"""

from __future__ import annotations

import html
import importlib.util
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_HEAD = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; --ground: #fff; --text: #1c1e21; --faint: #5c636b; --line: #d5d9de; }}
@media (prefers-color-scheme: dark) {{
  :root {{ --ground: #16181b; --text: #e4e6e9; --faint: #9aa2ab; --line: #363b41; }}
}}
body {{ background: var(--ground); color: var(--text); font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto;
  max-width: 1100px; padding: 0 1rem; }}
h1 {{ font-size: 1.4rem; }} h2 {{ font-size: 1.1rem; margin-top: 2rem; }} p.faint {{ color: var(--faint); }}
.wide {{ overflow-x: auto; }}
table {{ border-collapse: collapse; font-variant-numeric: tabular-nums; }}
th, td {{ border-bottom: 1px solid var(--line); padding: .25rem .7rem; text-align: right; white-space: nowrap; }}
th:first-child, td:first-child {{ text-align: left; }}
.plot {{ height: 380px; margin-top: 1rem; }}
</style>
</head>
<body>
<h1>{title}</h1>
"""

_PLOTS = """<script>
const figures = {figures};
const dark = matchMedia("(prefers-color-scheme: dark)");
function draw() {{
  const style = getComputedStyle(document.documentElement), color = name => style.getPropertyValue(name).trim();
  const axis = {{ gridcolor: color("--line"), zerolinecolor: color("--line"), automargin: true }};
  figures.forEach((figure, index) => Plotly.react("plot" + index, figure.data, {{ ...figure.layout,
    xaxis: {{ ...axis, ...figure.layout.xaxis }}, yaxis: {{ ...axis, ...figure.layout.yaxis }},
    font: {{ color: color("--text") }}, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
  }}, {{ responsive: true, displaylogo: false }}));
}}
dark.addEventListener("change", draw);
draw();
</script>
"""


@dataclass(frozen=True)
class Table:
    """A table with its heading above it."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[object]]


def page(title: str, notes: Sequence[str], tables: Sequence[Table], figures: Sequence[dict[str, Any]]) -> str:
    """The whole page: `notes` as lines below the title, `figures` (plotly's plain data and layout), then the tables."""
    parts = [_HEAD.format(title=html.escape(title))]
    parts += [f'<p class="faint">{html.escape(note)}</p>\n' for note in notes]
    if importlib.util.find_spec("plotly") is not None:
        from plotly.offline import get_plotlyjs

        parts += [f'<div class="plot" id="plot{number}"></div>\n' for number in range(len(figures))]
        parts.append(f"<script>{get_plotlyjs()}</script>\n")
        # "</" would end the script that holds it
        parts.append(_PLOTS.format(figures=json.dumps(list(figures)).replace("</", "<\\/")))
    else:
        parts.append('<p class="faint">No plots: the plotly package is not installed (extra plots).</p>\n')
    for table in tables:
        head = "".join(f"<th>{html.escape(heading)}</th>" for heading in table.headings)
        body = "".join(
            f"<tr>{''.join(f'<td>{html.escape(str(cell))}</td>' for cell in row)}</tr>\n" for row in table.rows
        )
        parts.append(
            f'<h2>{html.escape(table.title)}</h2>\n<div class="wide"><table>\n<tr>{head}</tr>\n{body}</table></div>\n'
        )
    return "".join((*parts, "</body>\n</html>\n"))


def write_page(path: str | os.PathLike[str], text: str) -> None:
    """Replace a file at once: a run that is stopped leaves the old one or the new one."""
    target = Path(path)
    partial = target.with_name(target.name + ".partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(target)
