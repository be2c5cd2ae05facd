"""Passes over a model's graph."""
