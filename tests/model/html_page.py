"""An HTML page as a reader sees it: whether it is whole, what it asks for from elsewhere, its tables and plots."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser


class Page(HTMLParser):
    """`open`: elements that are not closed. `outside`: what is asked for from elsewhere. `cells`: of all tables.
    `plots`: their places, `figures` what is drawn there."""

    ALONE = ("meta", "br", "link", "img", "hr", "input")

    def __init__(self, text):
        super().__init__()
        self.open, self.outside, self.plots, self.cells = [], [], [], []
        self.feed(text)
        self.close()
        found = re.search(r"const figures = (\[.*\]);", text)
        self.figures = json.loads(found[1]) if found else []

    def handle_starttag(self, tag, attrs):
        if tag not in self.ALONE:
            self.open.append(tag)
        values = dict(attrs)
        self.outside += [value for key, value in attrs if key in ("src", "href", "data", "action", "srcset")]
        if "plot" in (values.get("class") or "").split():
            self.plots.append(values["id"])
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] in ("td", "th"):
            self.cells[-1] += data
        elif self.open and self.open[-1] == "style":
            assert "url(" not in data and "@import" not in data
