"""Measuring cuts: on this CPU in processes that stay, and on simulated accelerators."""
