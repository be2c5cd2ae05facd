"""The tvm-tiling command, one module per subcommand; a module is imported when its command is called."""

from .app import main

__all__ = ["main"]
