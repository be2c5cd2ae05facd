"""What measures for a search, by the name that users give it: "local", or "rpc://host:port/key"."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from ...errors import TilingError
from ...hardware.description import Hardware

if TYPE_CHECKING:
    from .measurer import Measurer
    from .template import Template

Runner: TypeAlias = "str | Measurer"

LOCAL = "local"
SCHEME = "rpc://"
_ADDRESS = re.compile(r"rpc://(?P<host>[^:/\[\]]+|\[[0-9a-fA-F:]+\]):(?P<port>\d{1,5})/(?P<key>[\w.+-]+)")
LOCAL_AT_ONCE = 8
PER_WORKER = 2  # jobs that are given at a time for each worker of a tracker


class RunnerError(TilingError):
    """No such runner, or it cannot be reached."""


@dataclass(frozen=True)
class Address:
    """A tracker, and the key by which its workers are known."""

    host: str
    port: int
    key: str

    @classmethod
    def parse(cls, text: str) -> Address:
        """From "rpc://host:port/key"; RunnerError for anything else."""
        found = _ADDRESS.fullmatch(text)
        if found is None or not 0 < int(found["port"]) < 65536:
            raise RunnerError(f"runner {text!r}; accepted: {LOCAL!r}, or 'rpc://host:port/key' of a TVM tracker")
        return cls(found["host"].strip("[]"), int(found["port"]), found["key"])

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{SCHEME}{host}:{self.port}/{self.key}"


def measurer_of(runner: Runner, hardware: Hardware, template: Template | None = None) -> tuple[Measurer, int]:
    """What measures on `hardware`, and how many jobs it had best be given at a time; processes here are forks of
    `template` where one is under way. RunnerError for what is no runner, or a tracker that cannot be reached or has no
    workers."""
    if not isinstance(runner, str):
        return runner, LOCAL_AT_ONCE
    if runner == LOCAL:
        if hardware.cpu is None:
            from .simulator import SimulatorMeasurer

            return SimulatorMeasurer(), LOCAL_AT_ONCE
        from .local import LocalBench, LocalMeasurer

        return LocalMeasurer(LocalBench(template=template)), LOCAL_AT_ONCE
    address = Address.parse(runner)
    from ..workers.remote import RemoteMeasurer

    remote = RemoteMeasurer(address, hardware)
    return remote, PER_WORKER * remote.workers
