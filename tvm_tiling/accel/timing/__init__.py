"""Timing and energy models of programs."""
