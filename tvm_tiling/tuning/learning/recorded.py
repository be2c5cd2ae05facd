"""Trials that were recorded on a machine of the same kind: what a cost model begins with.

A file for each microarchitecture, recorded/<LLVM's name>.json.gz, holds what configurations of many shapes cost, the
machine and the date; `python -m benchmarks.cost_trials` writes it. It serves machines of the same microarchitecture and
vector length alone, of whatever number of cores: all were measured on one core, and how cores share the work is left to
the formulas and to the machine's own trials. The models are made from it when a search begins: they follow from the
features and formulas of today, and a file holds nothing but shapes, configurations and seconds.
"""

from __future__ import annotations

import functools
import gzip
import statistics
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib import resources
from typing import Any

from ...decide.configs.config import Config
from ...hardware.description import Hardware
from ...hardware.file import from_dict
from ...plain_text import plain_json
from ..shapes.key import Workload, workload_from_dict
from .costs import LearnedCosts, samples_of
from .past import PastTrial
from .residual import Residual
from .samples import Sample

FORMAT = "tvm-tiling-cost-trials"
VERSION = 4
SUFFIX = ".json.gz"


@dataclass(frozen=True, kw_only=True)
class RecordedShape:
    """What configurations of one workload cost, each in seconds of several passes over all of them."""

    workload: Workload
    prepacked: bool
    trials: tuple[tuple[Config, tuple[float, ...]], ...]

    @classmethod
    def from_dict(cls, record: dict[str, Any]) -> RecordedShape:
        """What a file of trials has of a workload."""
        return cls(
            workload=workload_from_dict(record["workload"]),
            prepacked=record["prepacked"],
            trials=tuple((Config.from_dict(config), tuple(seconds)) for config, seconds in record["trials"]),
        )


@dataclass(frozen=True, kw_only=True)
class Recording:
    """A file of trials: the machine's description, what is said of it and its state, and the shapes."""

    hardware: Hardware
    machine: dict[str, Any]
    shapes: tuple[RecordedShape, ...]

    @classmethod
    def from_dict(cls, record: dict[str, Any]) -> Recording:
        """The content of a file of trials."""
        return cls(
            hardware=from_dict(Hardware, record["hardware"], "recorded trials"),
            machine=record["machine"],
            shapes=tuple(RecordedShape.from_dict(shape) for shape in record["workloads"]),
        )

    @property
    def trials(self) -> Iterator[PastTrial]:
        """Every configuration with its cost, the median of its passes."""
        for shape in self.shapes:
            for config, seconds in shape.trials:
                cost = statistics.median(seconds)
                yield PastTrial(
                    workload=shape.workload, prepacked=shape.prepacked, epilogue="", config=config, cost=cost
                )


@functools.cache
def recording(mcpu: str) -> Recording | None:
    """What was recorded on the microarchitecture that LLVM calls `mcpu`; None where nothing was."""
    for file in (resources.files(__package__) / "recorded").iterdir():
        if file.name == mcpu + SUFFIX:
            return Recording.from_dict(plain_json(gzip.decompress(file.read_bytes()).decode()))
    return None


def pretrained(hardware: Hardware) -> LearnedCosts:
    """A cost model that knows what was recorded on machines of this kind; where nothing was, the formulas alone."""
    cpu = hardware.cpu
    return LearnedCosts(Residual(recorded=() if cpu is None else _samples(cpu.mcpu, cpu.vector_bits)))


@functools.cache
def _samples(mcpu: str, vector_bits: int) -> tuple[Sample, ...]:
    found = recording(mcpu)
    if found is None or found.hardware.cpu is None or found.hardware.cpu.vector_bits != vector_bits:
        return ()
    # Costs of the same shape on the machine at hand are another group's.
    samples = samples_of(found.trials, found.hardware)
    return tuple(replace(sample, group=f"recorded {sample.group}") for sample in samples)
