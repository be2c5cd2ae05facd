"""Presentation of timed programs: text, tables, traces, sweeps."""
