"""Measuring configurations: on this CPU in persistent processes, and on simulated accelerators."""
