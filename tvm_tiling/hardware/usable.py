"""The number of processors that this process may use: its affinity mask and the CPU limits of its control groups;
and the check of a number of threads that a caller passes.

Functions take `root`, the directory that stands for "/", so that tests can pass an artificial tree.
"""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Iterable
from pathlib import Path

from ..errors import WorkloadError


def read_text(path: Path) -> str:
    """Return the stripped text of a system file, or an empty string if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def parse_cpu_list(text: str) -> set[int]:
    """Return the numbers of a kernel CPU list such as "0-3,8,10-11", or an empty set if it is invalid."""
    numbers: set[int] = set()
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        if not first.isdigit() or not (last.isdigit() or last == ""):
            return set()
        numbers.update(range(int(first), int(last or first) + 1))
    return numbers


def affinity() -> set[int]:
    """Return the processors that this process may be scheduled on; all of them if the system has no affinity masks.

    This is the current mask: a thread pool created by plain TVM narrows it for the thread that created it.
    """
    if hasattr(os, "sched_getaffinity"):
        return set(os.sched_getaffinity(0))
    return set(range(os.cpu_count() or 1))


def group_by_core(cpu_tree: Path, cpus: Iterable[int]) -> list[set[int]] | None:
    """Return all processors of each physical core that contains one of `cpus`; None if the tree (like
    /sys/devices/system/cpu) hides it."""
    left = set(cpus)
    groups = []
    while left:
        cpu = min(left)
        topology = cpu_tree / f"cpu{cpu}" / "topology"
        siblings = parse_cpu_list(
            read_text(topology / "core_cpus_list") or read_text(topology / "thread_siblings_list")
        )
        if cpu not in siblings:
            return None
        groups.append(siblings)
        left -= siblings
    return groups


def cpu_limit(root: Path) -> float | None:
    """Return the CPU time that control groups (version 1 or 2) allow this process, in processors; None: no limit.

    The lowest limit of the group and of its ancestors applies. A group whose path is not visible below the mount point
    (a container sees only its own part) is taken to be the mount point itself.
    """
    groups = _own_groups(read_text(root / "proc/self/cgroup"))
    limits = []
    for version, mounted_at, mounted_root in _mounts(read_text(root / "proc/self/mountinfo")):
        if version not in groups:
            continue
        read = _limit_v2 if version == 2 else _limit_v1
        top = root / mounted_at.lstrip("/")
        for directory in _upwards(top, _below(groups[version], mounted_root)):
            limit = read(directory)
            if limit is not None:
                limits.append(limit)
    return min(limits, default=None)


def whole_cpus(limit: float) -> int:
    """Return the number of threads worth starting under a limit on CPU time: rounded up, at least one."""
    return max(1, math.ceil(limit))


def check_threads(threads: object, most: int | None = None, name: str = "threads") -> int:
    """Return a number of threads that a caller passed as `name`, of any integer type. Raises WorkloadError unless it is
    from 1 to `most`."""
    try:
        count = operator.index(threads)  # type: ignore[arg-type]
    except TypeError:
        count = 0
    if isinstance(threads, bool) or count < 1 or (most is not None and count > most):
        limit = "" if most is None else f" to {most}"
        raise WorkloadError(f"{name} = {threads!r}; expected a whole number from 1{limit}")
    return count


def _own_groups(text: str) -> dict[int, str]:
    """Return control-group version -> path of this process's group, from /proc/self/cgroup (for version 1 that of
    cpu)."""
    groups = {}
    for line in text.splitlines():
        hierarchy, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if hierarchy == "0" and not controllers:
            groups[2] = path
        elif "cpu" in controllers.split(","):
            groups[1] = path
    return groups


def _mounts(text: str) -> list[tuple[int, str, str]]:
    """Return (version, mount point, mounted root) of the CPU controllers in /proc/self/mountinfo, or their usual
    places."""
    found = []
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        left, right = before.split(), after.split()
        if len(left) < 5 or len(right) < 3:
            continue
        if right[0] == "cgroup2":
            found.append((2, left[4], left[3]))
        elif right[0] == "cgroup" and "cpu" in right[2].split(","):
            found.append((1, left[4], left[3]))
    return found or [(2, "/sys/fs/cgroup", "/"), (1, "/sys/fs/cgroup/cpu,cpuacct", "/"), (1, "/sys/fs/cgroup/cpu", "/")]


def _below(group: str, mounted_root: str) -> str:
    """Return the path of `group` relative to what is mounted, or an empty string if it lies outside."""
    prefix = mounted_root.rstrip("/")
    if group != prefix and not group.startswith(f"{prefix}/"):
        return ""
    relative = group[len(prefix) :].strip("/")
    return "" if ".." in relative.split("/") else relative


def _upwards(top: Path, relative: str) -> list[Path]:
    """Return the directory top/relative and its ancestors up to `top`; only `top` if it does not exist."""
    parts = [part for part in relative.split("/") if part]
    if not top.joinpath(*parts).is_dir():
        parts = []
    return [top.joinpath(*parts[:depth]) for depth in range(len(parts), -1, -1)]


def _limit_v2(directory: Path) -> float | None:
    """Read cpu.max: "max 100000" or "150000 100000" (microseconds of each period)."""
    quota, _, period = read_text(directory / "cpu.max").partition(" ")
    return _ratio(quota, period)


def _limit_v1(directory: Path) -> float | None:
    """Read cpu.cfs_quota_us (-1: none) over cpu.cfs_period_us."""
    return _ratio(read_text(directory / "cpu.cfs_quota_us"), read_text(directory / "cpu.cfs_period_us"))


def _ratio(quota: str, period: str) -> float | None:
    if not quota.isdigit() or not period.isdigit() or int(quota) == 0 or int(period) == 0:
        return None
    return int(quota) / int(period)
