"""The names of measurers for a search: "local", or "rpc://host:port/key" of a tracker."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from ...errors import HardwareError, TilingError
from ...figures import quantity
from ...hardware.description import Hardware
from ...hardware.instruction_sets import host_arch

if TYPE_CHECKING:
    from .measurer import Measurer

Runner: TypeAlias = "str | Measurer"

LOCAL = "local"
SCHEME = "rpc://"
_ADDRESS = re.compile(r"rpc://(?P<host>[^:/\[\]]+|\[[0-9a-fA-F:]+\]):(?P<port>\d{1,5})/(?P<key>[\w.+-]+)")


class RunnerError(TilingError):
    """Unknown or unreachable runner."""


def refuse_other_cpu(hardware: Hardware, elsewhere: str) -> None:
    """Raise HardwareError if `hardware` describes a CPU that this machine is not: costs measured here would be stored
    as its own. `elsewhere`: what to do instead."""
    if hardware.cpu is None:
        return
    if hardware.cpu.arch != host_arch():
        own, other = host_arch(), hardware.cpu.arch
    else:
        here = Hardware.detect(calibrated=False).cpu
        assert here is not None
        if hardware.cpu.mcpu and here.mcpu and hardware.cpu.mcpu != here.mcpu:
            own, other = here.mcpu, hardware.cpu.mcpu
        elif hardware.cpu.cores > here.threads:
            own, other = (f"one with {quantity(count, 'core')}" for count in (here.threads, hardware.cpu.cores))
        else:
            return
    raise HardwareError(
        f"costs are measured on this CPU, which is {own}, but {hardware.name} is {other}; expected {elsewhere}"
    )


@dataclass(frozen=True)
class Address:
    """The address of a tracker, and the key of its workers."""

    host: str
    port: int
    key: str

    @classmethod
    def parse(cls, text: str) -> Address:
        """Parse "rpc://host:port/key". RunnerError for anything else."""
        found = _ADDRESS.fullmatch(text)
        if found is None or not 0 < int(found["port"]) < 65536:
            raise RunnerError(f"address {text} of a tracker is not valid; expected rpc://host:port/key")
        return cls(found["host"].strip("[]"), int(found["port"]), found["key"])

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{SCHEME}{host}:{self.port}/{self.key}"
