"""The identity of the machine that a cost was measured on: records of one fingerprint never serve another."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from ...errors import DatabaseError
from ...figures import quantity
from ...hardware.description import Hardware

# Version of the meaning of a record: the choices that a configuration names, and how it is timed. The tables have their
# own version.
RECORD_SCHEMA = 1
FIELDS = ("kind", "machine", "description", "cores", "tvm", "schema")


@dataclass(frozen=True, kw_only=True)
class Fingerprint:
    """What a measured cost depends on, apart from operator and configuration.

    `kind` is "cpu" (costs in seconds) or "vsim" (in cycles). `machine` is a readable name: LLVM's name of the CPU, or
    that of the description. `description` is the hash of every field that affects costs, `cores` the number of CPU
    cores used, 0 on an accelerator.
    """

    kind: str
    machine: str
    description: str
    cores: int
    tvm: str
    schema: int = RECORD_SCHEMA

    @property
    def digest(self) -> str:
        """16 hexadecimal digits of everything that distinguishes machines; the name of an accelerator does not."""
        record = self.to_dict()
        if self.kind == "vsim":
            del record["machine"]
        return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def unit(self) -> str:
        """The unit of costs."""
        return "s" if self.kind == "cpu" else "cycles"

    def __str__(self) -> str:
        cores = f" with {quantity(self.cores, 'core')}" if self.kind == "cpu" else ""
        versions = f"TVM {self.tvm}, records of version {self.schema}"
        return f"{self.kind} {self.machine}{cores} ({self.description}), {versions}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {name: getattr(self, name) for name in FIELDS}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Fingerprint:
        """Read the output of `to_dict`. DatabaseError, naming the field, for anything else."""
        if not isinstance(record, Mapping) or set(record) != set(FIELDS):
            raise DatabaseError(f"fingerprint: {record!r}; expected a table of {', '.join(FIELDS)}")
        for name in FIELDS:
            kind = int if name in ("cores", "schema") else str
            if type(record[name]) is not kind:
                raise DatabaseError(f"fingerprint: {name} = {record[name]!r}; expected a value of type {kind.__name__}")
        if record["kind"] not in ("cpu", "vsim"):
            raise DatabaseError(f"fingerprint: kind = {record['kind']!r}; expected 'cpu', 'vsim'")
        return cls(**record)


def fingerprint_of(hardware: Hardware) -> Fingerprint:
    """Return the fingerprint of measurements on `hardware` with the installed TVM."""
    cpu = hardware.cpu
    return Fingerprint(
        kind="vsim" if cpu is None else "cpu",
        machine=hardware.name if cpu is None else cpu.mcpu or cpu.arch,
        description=hardware.fingerprint(),
        cores=0 if cpu is None else cpu.cores,
        tvm=_tvm_version(),
    )


@functools.lru_cache(maxsize=1)
def _tvm_version() -> str:
    try:
        return metadata.version("apache-tvm")
    except metadata.PackageNotFoundError:
        return "none"
