"""The messages between a session and the workers behind a tracker: JSON, so that neither side executes the other's
data."""

from __future__ import annotations

import functools
import json
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeAlias

from ...decide.configs.config import Config
from ...errors import DatabaseError, HardwareError
from ...hardware.description import Hardware
from ...hardware.file import from_toml
from ...plain_text import plain_json
from ..measuring.measurer import Job
from ..measuring.paired_benchmark import Alone, PairedResult
from ..shapes.fingerprint import Fingerprint, fingerprint_of
from ..shapes.key import workload_from_dict

# Functions of a worker: both take and return one string.
HOLD = "tvm_tiling.tuning.hold"
SUPPORTS = "tvm_tiling.tuning.serves"


@dataclass(frozen=True)
class Failed:
    """A job without a cost, with the reason."""

    reason: str


@dataclass(frozen=True)
class Simulated:
    """The result of simulating a job."""

    cycles: float
    energy_pj: float | None


Answer: TypeAlias = Alone | PairedResult | Simulated | Failed
_ANSWERS: dict[str, type[Any]] = {"alone": Alone, "contest": PairedResult, "simulated": Simulated, "failed": Failed}


@dataclass(frozen=True)
class Question:
    """A request for a paired benchmark, as in LocalBench.hold."""

    candidate: Job
    incumbent: Job | None
    thorough: bool

    def to_json(self) -> str:
        """Return the question as text."""
        job = self.candidate
        return json.dumps(
            {
                "workload": job.workload.to_dict(),
                "hardware": job.hardware.to_toml(),
                "ahead": job.prepacked,
                "epilogue": job.epilogue,
                "cut": job.config.to_dict(),
                "incumbent": None if self.incumbent is None else self.incumbent.config.to_dict(),
                "thorough": self.thorough,
            }
        )

    @classmethod
    def from_json(cls, text: str) -> Question:
        """Read the output of `to_json`. DatabaseError for anything else."""
        try:
            record = plain_json(text)
            candidate = Job(
                workload=workload_from_dict(record["workload"]),
                config=Config.from_dict(record["cut"]),
                hardware=_hardware(record["hardware"]),
                prepacked=bool(record["ahead"]),
                epilogue=str(record["epilogue"]),
            )
            incumbent = record["incumbent"]
            beside = None if incumbent is None else replace(candidate, config=Config.from_dict(incumbent))
            return cls(candidate, beside, bool(record["thorough"]))
        except (ValueError, KeyError, TypeError) as error:
            raise DatabaseError(f"invalid question of a session: {error}") from None


def answer_text(answer: Answer) -> str:
    """Return an answer as text."""
    name = next(name for name, kind in _ANSWERS.items() if isinstance(answer, kind))
    return json.dumps({name: asdict(answer)})


def answer_of(text: str) -> Answer:
    """Read the output of `answer_text`. DatabaseError for anything else."""
    try:
        ((name, fields),) = plain_json(text).items()
        found: Answer = _ANSWERS[name](**fields)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise DatabaseError(f"invalid answer of a worker: {text[:100]!r}") from None
    return found


def refusal(wanted: Fingerprint, own: Hardware) -> str:
    """Return why measurements on this machine do not match `wanted`, or an empty string. Any machine can simulate any
    accelerator."""
    here = fingerprint_of(own)
    if wanted.kind == "vsim":
        here = Fingerprint(**{**wanted.to_dict(), "tvm": here.tvm, "schema": here.schema})
    return "" if here.digest == wanted.digest else f"it is {here}, but {wanted} is required"


@functools.lru_cache(maxsize=16)
def _hardware(text: str) -> Hardware:
    try:
        return from_toml(Hardware, text, "a session's question")
    except HardwareError as error:
        raise DatabaseError(f"invalid question of a session: {error}") from None
