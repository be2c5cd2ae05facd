"""Cross compilers: what links kernels for an architecture that is not this computer's."""

from __future__ import annotations

import os
import shlex
import shutil

from ..hardware.instruction_sets import host_arch


def variable(arch: str) -> str:
    """The environment variable that names the C compiler for an architecture, a command with its options."""
    return f"TVM_TILING_CC_{arch.upper()}"


def usual(arch: str) -> str:
    """The command that Linux distributions install as the cross compiler for an architecture."""
    return f"{arch.replace('_', '-')}-linux-gnu-gcc"


def package(arch: str) -> str:
    """Debian's and Ubuntu's package of that command."""
    return "gcc-" + usual(arch).removesuffix("-gcc")


def cross_compiler(arch: str) -> tuple[str, ...] | None:
    """The command of the compiler and its options; None where there is none."""
    if given := shlex.split(os.environ.get(variable(arch), "")):
        return tuple(given) if shutil.which(given[0]) else None
    found = shutil.which(usual(arch))
    return None if found is None else (found,)


def missing(arch: str | None) -> str:
    """That there is no compiler for an architecture, None: this computer's; and what to do."""
    if arch is None or arch == host_arch():
        return "there is no C compiler"
    if given := os.environ.get(variable(arch)):
        return f"the C compiler for {arch}, {variable(arch)}={given!r}, does not exist"
    return (
        f"there is no C compiler for {arch}; install {usual(arch)} (on Debian and Ubuntu: apt-get install "
        f"{package(arch)}), or name a command in {variable(arch)}"
    )
