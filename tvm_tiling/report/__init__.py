"""Reports as self-contained HTML files: a model, a simulation, a sweep, a search or a comparison.

Everything is HTML, CSS and SVG generated here, without a plotting library: the plots are bars, lines, points and
timelines. A page has tens of kilobytes instead of the four megabytes of a plotting library, follows the reader's light
or dark setting, and prints. Two small scripts add sorting, filtering, tooltips and zooming; without them all content is
visible.
"""
