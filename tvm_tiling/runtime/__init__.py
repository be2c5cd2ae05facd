"""Execution of kernels and models: threads and cores, parallel loops, loaded libraries, input and output arrays.

Nothing here makes decisions or generates code.
"""
