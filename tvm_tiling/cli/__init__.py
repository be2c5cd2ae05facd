"""The command line `tvm-tiling`: a frame, and one file per command."""

from .app import main

__all__ = ["main"]
