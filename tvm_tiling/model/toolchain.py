"""Cross compilers, which link kernels for another architecture than this computer's."""

from __future__ import annotations

import os
import shlex
import shutil

from ..hardware.instruction_sets import host_arch


def variable(arch: str) -> str:
    """The environment variable with the command and options of the C compiler for an architecture."""
    return f"TVM_TILING_CC_{arch.upper()}"


def usual(arch: str) -> str:
    """The usual command of the cross compiler for an architecture on Linux distributions."""
    return f"{arch.replace('_', '-')}-linux-gnu-gcc"


def package(arch: str) -> str:
    """The package of that command in Debian and Ubuntu."""
    return "gcc-" + usual(arch).removesuffix("-gcc")


def cross_compiler(arch: str) -> tuple[str, ...] | None:
    """The command of the compiler with its options; None if there is none."""
    if given := shlex.split(os.environ.get(variable(arch), "")):
        return tuple(given) if shutil.which(given[0]) else None
    found = shutil.which(usual(arch))
    return None if found is None else (found,)


def missing(arch: str | None) -> str:
    """The message that there is no compiler for an architecture, None: this computer's, with instructions."""
    if arch is None or arch == host_arch():
        return "there is no C compiler"
    if given := os.environ.get(variable(arch)):
        return f"the C compiler for {arch}, {variable(arch)}={given!r}, does not exist"
    return (
        f"there is no C compiler for {arch}; install {usual(arch)} (on Debian and Ubuntu: apt-get install "
        f"{package(arch)}), or name a command in {variable(arch)}"
    )
