"""--threads: how many cores a command uses.

Commands that compile, load or decide pass the number on as the argument `threads` of these functions. For commands that
also run other libraries or child processes, the option restricts the CPU affinity of the process before anything reads
it: hardware detection, thread pools and measuring workers then see a machine with that many cores.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import typer

from ..errors import TilingError
from ..figures import quantity
from ..hardware.usable import affinity, group_by_core

OPTION = "--threads"
BY_ARGUMENT = ("compile", "explain", "export", "generate", "run")


class ThreadsError(TilingError):
    """The number of threads is impossible on this machine."""


THREADS = typer.Option(
    None, OPTION, metavar="N", min=1, help="Number of cores to use; default: all that are available."
)


@contextlib.contextmanager
def restricted_to(words: Sequence[str]) -> Iterator[None]:
    """Restrict this process to the cores that --threads asks for, if any, unless the command passes the number on.
    ThreadsError if there are fewer."""
    called = next((word for word in words if not word.startswith("-")), None)
    count = None if called in BY_ARGUMENT else _asked(words)
    if count is None:
        yield
        return
    if not hasattr(os, "sched_setaffinity"):
        raise ThreadsError(f"{OPTION} is not supported on this system; set the CPU affinity of the process instead")
    before = affinity()
    cores = group_by_core(Path("/sys/devices/system/cpu"), before) or [{cpu} for cpu in sorted(before)]
    if count > len(cores):
        may = quantity(len(cores), "core")
        raise ThreadsError(f"{OPTION} {count}: this process may use {may}; expected 1 to {len(cores)}")
    os.sched_setaffinity(0, set().union(*cores[:count]) & before)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _asked(words: Sequence[str]) -> int | None:
    """The number after the last --threads; None without it, or if the parser will refuse it."""
    found = None
    for place, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name == OPTION:
            found = value if equals else next(iter(words[place + 1 : place + 2]), "")
    return int(found) if found is not None and found.isascii() and found.isdigit() and int(found) > 0 else None
