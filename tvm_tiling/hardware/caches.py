"""The data caches of one processor, read from a tree like /sys/devices/system/cpu; hidden values are filled in."""

from __future__ import annotations

from pathlib import Path

from .cpu import CACHE_LINE, Cache
from .microarchitecture import KIB, Microarchitecture
from .usable import parse_cpu_list, read_text


def parse_size(text: str) -> int:
    """Return the bytes of a size such as "48K" or "2M", or 0 if it is invalid."""
    scale = {"K": KIB, "M": KIB * KIB, "G": KIB**3}.get(text[-1:].upper(), 1)
    digits = text if scale == 1 else text[:-1]
    return int(digits) * scale if digits.isdigit() else 0


def read_caches(
    cpu_dir: Path, core: Microarchitecture, threads_per_core: int, cores: int
) -> tuple[list[Cache], list[str]]:
    """Return the data and unified caches under `cpu_dir`/cache, and the names of the values that were assumed.

    Levels 1 and 2 that the system hides come from `core`; if it hides all caches, so does level 3, which is then shared
    by the `cores` usable ones. Hidden or impossible associativities are those of `core` at that level.
    """
    assumed = []
    found: dict[int, Cache] = {}
    for index in sorted(cpu_dir.glob("cache/index[0-9]*")):
        if read_text(index / "type") not in ("Data", "Unified"):
            continue
        level, size = _positive(read_text(index / "level")), parse_size(read_text(index / "size"))
        if level == 0 or size == 0:
            continue
        ways = _positive(read_text(index / "ways_of_associativity"))
        line = _positive(read_text(index / "coherency_line_size"))
        if line == 0:
            line = CACHE_LINE
            assumed.append(f"caches.l{level}.line")
        if ways == 0 or size % (ways * line):
            ways = _typical(core, level, cores).ways
            assumed.append(f"caches.l{level}.ways")
        if size % (ways * line):
            size = max(1, size // (ways * line)) * ways * line
            assumed.append(f"caches.l{level}.size")
        sharing = len(parse_cpu_list(read_text(index / "shared_cpu_list"))) or 1
        found[level] = Cache(level=level, size=size, ways=ways, line=line, cores=-(-sharing // threads_per_core))
    if not found:
        levels = (1, 2, 3) if core.l3[0] else (1, 2)
        return [_typical(core, level, cores) for level in levels], ["caches"]
    for level in range(1, max(2, *found)):
        if level not in found:
            found[level] = _typical(core, level, cores)
            assumed.append(f"caches.l{level}")
    return [found[level] for level in sorted(found)], assumed


def _positive(text: str) -> int:
    return int(text) if text.isdigit() else 0


def _typical(core: Microarchitecture, level: int, cores: int) -> Cache:
    if level <= 2:
        kib, ways = core.l1 if level == 1 else core.l2
        return Cache(level=level, size=kib * KIB, ways=ways, line=CACHE_LINE)
    kib, ways = core.l3 if core.l3[0] else (KIB, 16)
    return Cache(level=level, size=kib * KIB * cores, ways=ways, line=CACHE_LINE, cores=cores)
