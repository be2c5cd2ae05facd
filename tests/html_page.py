"""An HTML page as a reader sees it: unclosed elements, external requests, the text of its cells."""

from __future__ import annotations

from html.parser import HTMLParser


class Page(HTMLParser):
    """`open`: elements that are not closed. `outside`: external resources. `cells`: those of all tables. `titles`:
    those of sections and figures. `drawn`: number of bars, points, lines and spans."""

    ALONE = ("meta", "br", "link", "img", "hr", "input", "wbr")
    DRAWN = ("circle", "polyline", "rect")

    def __init__(self, text):
        super().__init__()
        self.open, self.outside, self.cells, self.titles, self.names = [], [], [], [], []
        self.scripts, self.drawn = 0, dict.fromkeys((*self.DRAWN, "bar"), 0)
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        if tag not in self.ALONE:
            self.open.append(tag)
        values = dict(attrs)
        self.names += [values["id"]] if "id" in values else []
        self.outside += [value for key, value in attrs if key in ("src", "data", "action", "srcset")]
        if "href" in values and not values["href"].startswith("#"):
            self.outside.append(values["href"])
        self.scripts += tag == "script" and values.get("type") != "application/json"
        if tag in self.DRAWN:
            self.drawn[tag] += 1
        self.drawn["bar"] += (values.get("class") or "") == "bar"
        if tag in ("td", "th"):
            self.cells.append("")
        if tag in ("h2", "figcaption"):
            self.titles.append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if {"td", "th"} & set(self.open):
            self.cells[-1] += data
        elif self.open and self.open[-1] in ("h2", "figcaption"):
            self.titles[-1] += data
        elif self.open and self.open[-1] == "style":
            assert "url(" not in data and "@import" not in data
