"""What measures for a search, by the name that users give it."""

from __future__ import annotations

from ..hardware.description import Hardware
from .measuring.local import LocalBench, LocalMeasurer
from .measuring.measurer import Measurer
from .measuring.runner import LOCAL, Address, Runner
from .measuring.simulator import SimulatorMeasurer
from .measuring.template import Template
from .workers.remote import RemoteMeasurer

LOCAL_AT_ONCE = 8
PER_WORKER = 2  # jobs that are given at a time for each worker of a tracker


def measurer_of(runner: Runner, hardware: Hardware, template: Template | None = None) -> tuple[Measurer, int]:
    """What measures on `hardware`, and how many jobs it had best be given at a time; processes here are forks of
    `template` where one is under way. RunnerError for what is no runner, or a tracker that cannot be reached or has no
    workers."""
    if not isinstance(runner, str):
        return runner, LOCAL_AT_ONCE
    if runner == LOCAL:
        local = SimulatorMeasurer() if hardware.cpu is None else LocalMeasurer(LocalBench(template=template))
        return local, LOCAL_AT_ONCE
    remote = RemoteMeasurer(Address.parse(runner), hardware)
    return remote, PER_WORKER * remote.workers
