"""Configurations from a database, requested during the compilation of a model and recorded: the answers are part of the
cache key of a compiled model."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from ..decide.configs.config import Config
from ..decide.options import OpenConfigSource
from ..errors import DatabaseError
from ..hardware.description import Hardware
from ..schedule import ConfigSource
from ..sizes import Range
from ..workload import ConvWorkload, GemmWorkload

WORKLOADS: Mapping[str, type[GemmWorkload | ConvWorkload]] = {"gemm": GemmWorkload, "conv": ConvWorkload}


class KnownConfigs:
    """A source of configurations that caches its answers, so that each workload consistently gets the same one."""

    def __init__(self, source: ConfigSource) -> None:
        self._source = source
        self._answers: dict[tuple[str, str], Config | None] = {}
        self._open: dict[tuple[str, str], tuple[Config, str] | None] = {}

    def config_for(
        self, workload: GemmWorkload | ConvWorkload, hardware: Hardware, prepacked: bool = False, epilogue: str = ""
    ) -> Config | None:
        """The source's answer to the first such request."""
        question = {**workload.to_dict(), "prepacked": prepacked, "epilogue": epilogue}
        asked = json.dumps(question, sort_keys=True), hardware.fingerprint()
        if asked not in self._answers:
            self._answers[asked] = self._source.config_for(workload, hardware, prepacked, epilogue)
        return self._answers[asked]

    def open_config_for(
        self, workload: GemmWorkload, hardware: Hardware, rows: Range, prepacked: bool = False, epilogue: str = ""
    ) -> tuple[Config, str] | None:
        """The configuration of a matrix multiplication with a dynamic number of rows; None if the source does not
        support these."""
        if not isinstance(self._source, OpenConfigSource):
            return None
        question = {
            **workload.to_dict(),
            "prepacked": prepacked,
            "epilogue": epilogue,
            "rows": [rows.first, rows.last],
        }
        asked = json.dumps(question, sort_keys=True), hardware.fingerprint()
        if asked not in self._open:
            self._open[asked] = self._source.open_config_for(workload, hardware, rows, prepacked, epilogue)
        return self._open[asked]

    @property
    def asked(self) -> list[str]:
        """The requested workloads, with whether they are prepacked, their epilogue, and their range of rows if dynamic,
        as JSON."""
        return sorted({workload for workload, _ in (*self._answers, *self._open)})

    def digest(self, workloads: Iterable[str], hardware: Hardware) -> str:
        """64 hexadecimal digits that identify the answers for `workloads`, in the format of `asked`."""
        answers = {asked: self._answer(asked, hardware) for asked in workloads}
        told = {asked: None if config is None else config.to_dict() for asked, config in answers.items()}
        return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()

    def _answer(self, asked: str, hardware: Hardware) -> Config | None:
        """The answer to a request in the format of `asked`."""
        record = json.loads(asked)
        place = {name: record.pop(name) for name in ("prepacked", "epilogue") if name in record}
        rows = record.pop("rows", None)
        workload = WORKLOADS[record.pop("op")](**record)
        if rows is None:
            return self.config_for(workload, hardware, **place)
        assert isinstance(workload, GemmWorkload)
        found = self.open_config_for(workload, hardware, Range(*rows), **place)
        return None if found is None else found[0]


class Asked:
    """An empty source of configurations that records the requested `workloads` without duplicates."""

    def __init__(self) -> None:
        self.workloads: dict[GemmWorkload | ConvWorkload, None] = {}

    def config_for(
        self, workload: GemmWorkload | ConvWorkload, hardware: Hardware, prepacked: bool = False, epilogue: str = ""
    ) -> None:
        """Record `workload` and return None."""
        self.workloads.setdefault(workload)


def known_configs(database: Any) -> KnownConfigs | None:
    """Wrap `database` as passed to compile(). Raises DatabaseError for an object without config_for."""
    if database is None:
        return None
    if not callable(getattr(database, "config_for", None)):
        raise DatabaseError(
            f"database = {database!r}; expected a ShapeDatabase, an object with config_for(workload, "
            "hardware, prepacked, epilogue), or None"
        )
    return KnownConfigs(database)
