"""The results of a program, byte for byte (page 06)."""
