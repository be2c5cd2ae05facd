"""Options: what a caller may fix in advance of a decision."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from ..errors import HardwareError
from ..hardware.description import Hardware
from ..sizes import Range
from ..workload import ConvWorkload, GemmWorkload
from .configs.record import Config
from .conv.winograd import TOLERANCE
from .fold.wfold import Mode
from .gemm.best import Prefer
from .tiling import Decision

GIVEN = "as given by the configuration"
KNOWN = "from the database"


class ConfigSource(Protocol):
    """A source of measured configurations, such as a shape database."""

    def config_for(
        self, workload: GemmWorkload | ConvWorkload, hardware: Hardware, prepacked: bool = False, epilogue: str = ""
    ) -> Config | None:
        """Return the configuration to use for a workload, or None if none is known.

        prepacked: whether the weights are prepacked; epilogue: the name of the fused operators (epilogue.py).
        """


@runtime_checkable
class OpenConfigSource(Protocol):
    """A source that also knows configurations of matrix multiplications with a dynamic number of rows."""

    def open_config_for(
        self, workload: GemmWorkload, hardware: Hardware, rows: Range, prepacked: bool = False, epilogue: str = ""
    ) -> tuple[Config, str] | None:
        """Return the configuration to use for a matrix multiplication over a range of rows, and the reason; None if
        none is known.

        `workload` is the matrix multiplication at the sample number of rows; the other arguments are those of
        config_for.
        """


@dataclass(frozen=True)
class OneConfig:
    """A source that always returns the same configuration."""

    config: Config

    def config_for(
        self, workload: GemmWorkload | ConvWorkload, hardware: Hardware, prepacked: bool = False, epilogue: str = ""
    ) -> Config:
        """Return the configuration."""
        return self.config


@dataclass(frozen=True, kw_only=True)
class Options:
    """What a caller may fix in advance of a decision.

    - `mode`: "best" or "seed", on accelerators.
    - `prefer`: what to optimise on a matrix engine (gemm/program_choice.py).
    - `acc_factor`, `outer_preset`, `inner_preset`: only for a single level of buffers (gemm/partition.py).
    - `form`, `microkernel`: force a kernel variant or algorithm, and the register tile.
    - `prepacked`: weights are prepacked.
    - `weights_within`: the largest magnitude of integers among prepacked weights, None if it is not known.
    - `winograd`, `tolerance`: whether Winograd convolution is allowed, and its largest accepted error.
    - `config`: the configuration to use instead of deciding.
    - `configs`: a source that is asked for a configuration first; the formulas decide if it knows none or only one that
      does not apply.
    - `decision`: a complete decision, used as it is if it is valid for this operator (recorded.py).
    - `deterministic`: the order of sums depends neither on the batch nor on the cores: equal results, bit for bit.
    """

    form: str | None = None
    microkernel: tuple[int, int] | None = None
    mode: Mode = "best"
    prefer: Prefer = "utilisation"
    acc_factor: float = 0.5
    outer_preset: str | int | None = None
    inner_preset: str | int | None = None
    prepacked: bool = False
    weights_within: int | None = None
    winograd: bool = True
    tolerance: float = TOLERANCE
    config: Config | None = None
    configs: ConfigSource | None = None
    decision: Decision | None = None
    deterministic: bool = False

    def __post_init__(self) -> None:
        given = "a decision" if self.decision is not None else "a configuration" if self.config is not None else ""
        if given:
            for name, value, default in (
                ("algorithm", self.form, None),
                ("microkernel", self.microkernel, None),
                ("mode", self.mode, "best"),
                ("prefer", self.prefer, "utilisation"),
            ):
                if value != default:
                    raise HardwareError(
                        f"{name} = {value!r} conflicts with {given}, which determines it; expected {given} alone"
                    )
        if self.deterministic and (given or self.configs is not None):
            raise HardwareError(
                "deterministic = True with a configuration, a decision or a database, whose order of sums may depend "
                "on batch and cores; expected deterministic = True alone"
            )
        if self.decision is not None and self.config is not None:
            raise HardwareError("a decision and a configuration are both given; expected one of them")

    def known_config(
        self, workload: GemmWorkload | ConvWorkload, hardware: Hardware, epilogue: str = ""
    ) -> tuple[Config, str] | None:
        """Return the given or known configuration of an operator and the reason for its use; None if the formulas are
        to decide."""
        if self.config is not None:
            return self.config, GIVEN
        settled = (self.form, self.microkernel, self.mode, self.prefer)
        if self.configs is None or settled != (None, None, "best", "utilisation"):
            return None
        found = self.configs.config_for(workload, hardware, self.prepacked, epilogue)
        return None if found is None else (found, KNOWN)

    def known_open_config(
        self, workload: GemmWorkload, hardware: Hardware, rows: Range, epilogue: str = ""
    ) -> tuple[Config, str] | None:
        """Return the same for a matrix multiplication with a dynamic number of rows; `workload` is taken at the sample
        number."""
        if self.config is not None:
            return self.config, GIVEN
        if not isinstance(self.configs, OpenConfigSource) or self.form is not None or self.microkernel is not None:
            return None
        return self.configs.open_config_for(workload, hardware, rows, self.prepacked, epilogue)
