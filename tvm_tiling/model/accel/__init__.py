"""Compilation of models and operators for simulated accelerators."""
