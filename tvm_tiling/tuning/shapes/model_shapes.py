"""The matrix multiplications and convolutions of a model, as workloads."""

from __future__ import annotations

import dataclasses
from typing import Any

from ...frontend import load_model
from ...hardware.description import Hardware
from ...hardware.machine import Machine
from ...model.known_configs import Asked
from ...model.pipeline import decided
from ...schedule import Options, this_cpu
from .key import Workload


def model_workloads(model: Any, hardware: Hardware, **options: Any) -> list[Workload]:
    """Return the distinct matrix multiplications and convolutions of a model in the order of their calls, as this CPU
    would compute them; for an accelerator that does not support their types, in int8. `options` are those of
    load_model."""
    asked = Asked()
    decided(load_model(model, **options).module, this_cpu(), Options(configs=asked))
    found = list(asked.workloads)
    if hardware.cpu is not None:
        return found
    machine = Machine(hardware)
    return list(dict.fromkeys(own if machine.takes(own.dtype) else _int8(own) for own in found))


def _int8(workload: Workload) -> Workload:
    return dataclasses.replace(workload, dtype="int8", acc_dtype=None)
