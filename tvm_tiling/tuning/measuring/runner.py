"""The names of measurers for a search: "local", or "rpc://host:port/key" of a tracker."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from ...errors import TilingError

if TYPE_CHECKING:
    from .measurer import Measurer

Runner: TypeAlias = "str | Measurer"

LOCAL = "local"
SCHEME = "rpc://"
_ADDRESS = re.compile(r"rpc://(?P<host>[^:/\[\]]+|\[[0-9a-fA-F:]+\]):(?P<port>\d{1,5})/(?P<key>[\w.+-]+)")


class RunnerError(TilingError):
    """Unknown or unreachable runner."""


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
