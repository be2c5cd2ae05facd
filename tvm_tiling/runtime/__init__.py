"""What runs kernels and models: threads and cores, parallel loops, libraries that are loaded, arrays in and out.

Nothing here decides or generates code.
"""
