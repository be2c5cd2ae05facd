"""The time and the energy of a program (page 06)."""
