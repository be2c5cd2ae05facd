"""Models and operators compiled for simulated accelerators."""
