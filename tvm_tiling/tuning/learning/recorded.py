"""Trials recorded on machines of the same kind, which initialise a cost model.

There is one file per microarchitecture, recorded/<LLVM's name>.json.gz, with the costs of configurations of many
shapes, the machine and the date; `python -m benchmarks.cost_trials` writes it. It applies only to machines of the same
microarchitecture and vector length, with any number of cores: all trials ran on one core, and scaling over cores is
left to the analytical prediction and to the machine's own trials. Models are fitted when a search begins, so they use
the current features and predictions; a file contains only shapes, configurations and seconds.
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
    """The costs of configurations of one workload, in seconds for each of several passes over all of them."""

    workload: Workload
    prepacked: bool
    trials: tuple[tuple[Config, tuple[float, ...]], ...]

    @classmethod
    def from_dict(cls, record: dict[str, Any]) -> RecordedShape:
        """Read a workload from a file of trials."""
        return cls(
            workload=workload_from_dict(record["workload"]),
            prepacked=record["prepacked"],
            trials=tuple((Config.from_dict(config), tuple(seconds)) for config, seconds in record["trials"]),
        )


@dataclass(frozen=True, kw_only=True)
class Recording:
    """A file of trials: the hardware description, notes on the machine and its state, and the shapes."""

    hardware: Hardware
    machine: dict[str, Any]
    shapes: tuple[RecordedShape, ...]

    @classmethod
    def from_dict(cls, record: dict[str, Any]) -> Recording:
        """Read the content of a file of trials."""
        return cls(
            hardware=from_dict(Hardware, record["hardware"], "recorded trials"),
            machine=record["machine"],
            shapes=tuple(RecordedShape.from_dict(shape) for shape in record["workloads"]),
        )

    @property
    def trials(self) -> Iterator[PastTrial]:
        """Yield every configuration with its cost, the median of its passes."""
        for shape in self.shapes:
            for config, seconds in shape.trials:
                cost = statistics.median(seconds)
                yield PastTrial(
                    workload=shape.workload, prepacked=shape.prepacked, epilogue="", config=config, cost=cost
                )


@functools.cache
def recording(mcpu: str) -> Recording | None:
    """Return the recording for the microarchitecture that LLVM calls `mcpu`, or None."""
    for file in (resources.files(__package__) / "recorded").iterdir():
        if file.name == mcpu + SUFFIX:
            return Recording.from_dict(plain_json(gzip.decompress(file.read_bytes()).decode()))
    return None


def pretrained(hardware: Hardware) -> LearnedCosts:
    """Return a cost model initialised from the recording for this kind of machine; without one, the analytical
    prediction alone."""
    cpu = hardware.cpu
    return LearnedCosts(Residual(recorded=() if cpu is None else _samples(cpu.mcpu, cpu.vector_bits)))


@functools.cache
def _samples(mcpu: str, vector_bits: int) -> tuple[Sample, ...]:
    found = recording(mcpu)
    if found is None or found.hardware.cpu is None or found.hardware.cpu.vector_bits != vector_bits:
        return ()
    # A separate group, so that costs of the same shape on this machine are not compared with recorded ones.
    samples = samples_of(found.trials, found.hardware)
    return tuple(replace(sample, group=f"recorded {sample.group}") for sample in samples)
