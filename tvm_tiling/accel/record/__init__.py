"""Lowering of the TIR of a schedule to a program, block by block."""
