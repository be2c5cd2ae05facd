"""Options with which deterministic=True cannot be combined."""

from __future__ import annotations

from typing import Any

from ..errors import WorkloadError
from ..hardware.description import Hardware


def check_deterministic(hardware: Hardware, precision: str, database: Any = None) -> None:
    """Raise WorkloadError, naming the option, if the results of a model compiled with these would depend on the batch,
    the cores or a measurement."""
    if hardware.cpu is None:
        raise WorkloadError(f"deterministic = True is not supported on {hardware.name}; expected a CPU")
    if precision == "auto":
        raise WorkloadError(
            "deterministic = True is not supported with precision = 'auto', which measures times; expected one type, "
            "such as 'float32'"
        )
    if database is not None:
        raise WorkloadError(
            "deterministic = True is not supported with a database, whose configurations differ by batch and cores; "
            "expected no database"
        )
