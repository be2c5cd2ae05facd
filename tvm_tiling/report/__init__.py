"""Pages that people read: a model, a simulation, a sweep or a comparison as one HTML file that needs nothing else.

Everything is HTML, CSS and SVG written here, without a plotting library: the plots are bars, lines, points and a
timeline, a page has tens of kilobytes instead of the four megabytes of a plotting library, follows the reader's light
or dark setting, and prints. Two small scripts sort, filter, explain and zoom; without them all content is there.
"""
