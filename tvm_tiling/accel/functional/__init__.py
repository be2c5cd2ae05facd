"""Functional simulation: the results of a program, exact to the byte."""
