"""Calibration: measuring what a hardware description cannot know, on this machine."""
