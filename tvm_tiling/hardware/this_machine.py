"""The calibration of this machine: its key, its file, and whether it is used.

A calibration is kept in the user's configuration directory, under a key made from what identifies the machine to a
kernel: the processor, the cores that this process may use, and the caches. The environment variable
TVM_TILING_CALIBRATION names another file, or is "off".
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

from ..errors import HardwareError
from ..user_folder import NO_HOME, is_unreadable, user_folder
from .cpu import Cpu
from .cpuinfo import parse_cpuinfo
from .usable import affinity, read_text

VARIABLE = "TVM_TILING_CALIBRATION"
OFF = "off"


def machine_key(cpu: Cpu, root: Path = Path("/")) -> str:
    """Return 16 hexadecimal digits for the machine whose system files are under `root`: a hash of the processor's
    model, its instruction sets, the usable cores, and the caches."""
    info = parse_cpuinfo(read_text(root / "proc/cpuinfo"), min(affinity()))
    identity = [info.vendor, info.family, info.model, info.implementer, info.part, info.name] if info else []
    caches = [[cache.level, cache.size, cache.ways, cache.line, cache.cores] for cache in cpu.caches]
    shape = [cpu.arch, identity, sorted(cpu.features), cpu.vector_bits, cpu.cores, caches]
    return hashlib.sha256(json.dumps(shape).encode()).hexdigest()[:16]


def calibrations() -> Path:
    """The directory of the user's calibrations. Raises HardwareError if the user has no home directory."""
    folder = user_folder("XDG_CONFIG_HOME", ".config")
    if folder is None:
        raise HardwareError(f"{NO_HOME}; set XDG_CONFIG_HOME, or use --output FILE")
    return folder / "calibrations"


def calibration_file(key: str) -> Path | None:
    """Return the file with the calibration of the machine with that key; None if there is no file, or calibrations are
    switched off."""
    given = os.environ.get(VARIABLE, "").strip()
    if given.lower() == OFF:
        return None
    if given:
        return Path(given)
    folder = user_folder("XDG_CONFIG_HOME", ".config")
    if folder is None or is_unreadable(folder / "calibrations"):
        return None
    stored = folder / "calibrations" / f"{key}.toml"
    return stored if stored.is_file() else None
