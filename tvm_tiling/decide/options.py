"""What a caller may settle instead of a decision."""

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

GIVEN = "as the configuration that was given says"
KNOWN = "from the database"


class ConfigSource(Protocol):
    """Whoever knows cuts that were measured: a database of shapes, or anything else that answers."""

    def config_for(
        self, workload: GemmWorkload | ConvWorkload, hardware: Hardware, prepacked: bool = False, epilogue: str = ""
    ) -> Config | None:
        """The configuration to take for a workload, None where none is known; `prepacked`: its weights arrive packed;
        `epilogue`: the name of what is fused behind (epilogue.py)."""


@runtime_checkable
class OpenConfigSource(Protocol):
    """A source that also knows configurations of products whose rows are open."""

    def open_config_for(
        self, workload: GemmWorkload, hardware: Hardware, rows: Range, prepacked: bool = False, epilogue: str = ""
    ) -> tuple[Config, str] | None:
        """The configuration to take for a product of `rows`, and why; None where none is known. `workload` is the
        product at the sample of them, the others as config_for has them."""


@dataclass(frozen=True)
class OneConfig:
    """A source that knows one configuration, whatever it is asked."""

    config: Config

    def config_for(
        self, workload: GemmWorkload | ConvWorkload, hardware: Hardware, prepacked: bool = False, epilogue: str = ""
    ) -> Config:
        """That configuration."""
        return self.config


@dataclass(frozen=True, kw_only=True)
class Options:
    """What a caller may settle instead of the decision.

    `mode` is the decision's, on accelerators; `prefer`, what it is best in, belongs to a matrix engine
    (gemm/program_choice.py), `acc_factor`, `outer_preset` and `inner_preset` to one with buffers alone
    (gemm/partition.py). `form` and `microkernel` force a kernel and its register tile,
    `prepacked` says that weights arrive packed, `winograd` and `tolerance` whether and how inaccurately Winograd's form
    may be taken. `config` is taken instead of a decision; `configs` are asked for one, and where they know none, or one
    that this operator cannot have, formulas decide. `decision` is written as it is, if it is one of this operator
    (recorded.py).
    """

    form: str | None = None
    microkernel: tuple[int, int] | None = None
    mode: Mode = "best"
    prefer: Prefer = "utilisation"
    acc_factor: float = 0.5
    outer_preset: str | int | None = None
    inner_preset: str | int | None = None
    prepacked: bool = False
    winograd: bool = True
    tolerance: float = TOLERANCE
    config: Config | None = None
    configs: ConfigSource | None = None
    decision: Decision | None = None

    def __post_init__(self) -> None:
        given = "a decision" if self.decision is not None else "a configuration" if self.config is not None else ""
        settled = (self.form, self.microkernel, self.mode, self.prefer)
        if given and settled != (None, None, "best", "utilisation"):
            raise HardwareError(
                f"algorithm = {self.form!r}, microkernel = {self.microkernel!r}, mode = {self.mode!r} and prefer = "
                f"{self.prefer!r} beside {given}; expected {given} alone, which settles them, or none"
            )
        if self.decision is not None and self.config is not None:
            raise HardwareError("a decision and a configuration; expected one of them")

    def known_config(
        self, workload: GemmWorkload | ConvWorkload, hardware: Hardware, epilogue: str = ""
    ) -> tuple[Config, str] | None:
        """The configuration for an operator, given or known, and why it is taken; None where a decision is to be
        made."""
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
        """The same of a product of open rows, at the sample of them."""
        if self.config is not None:
            return self.config, GIVEN
        if not isinstance(self.configs, OpenConfigSource) or self.form is not None or self.microkernel is not None:
            return None
        return self.configs.open_config_for(workload, hardware, rows, self.prepacked, epilogue)
