"""What a caller may settle instead of a decision."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ..errors import HardwareError
from ..hardware.description import Hardware
from ..workload import ConvWorkload, GemmWorkload
from .conv.winograd import TOLERANCE
from .configs.record import Cut
from .fold.wfold import Mode
from .gemm.best import Prefer
from .tiling import Decision

GIVEN = "as the cut that was given says"
KNOWN = "from the database"


class CutSource(Protocol):
    """Whoever knows cuts that were measured: a database of shapes, or anything else that answers."""

    def cut_for(
        self, workload: GemmWorkload | ConvWorkload, hardware: Hardware, ahead: bool = False, epilogue: str = ""
    ) -> Cut | None:
        """The cut to take for a workload, None where none is known; `ahead`: its weights arrive packed; `epilogue`: the
        name of what is fused behind (epilogue.py)."""


@dataclass(frozen=True)
class OneCut:
    """A source that knows one cut, whatever it is asked."""

    cut: Cut

    def cut_for(
        self, workload: GemmWorkload | ConvWorkload, hardware: Hardware, ahead: bool = False, epilogue: str = ""
    ) -> Cut:
        """That cut."""
        return self.cut


@dataclass(frozen=True, kw_only=True)
class Options:
    """What a caller may settle instead of the decision.

    `mode` is the decision's, on accelerators; `prefer`, `acc_factor`, `outer_preset` and `inner_preset` belong to a
    matrix engine with buffers (gemm/partition.py). `form` and `microkernel` force a kernel and its register tile,
    `ahead` says that weights arrive packed, `winograd` and `tolerance` whether and how inaccurately Winograd's form may
    be taken. `cut` is taken instead of a decision; `cuts` are asked for one, and where they know none, or one that this
    operator cannot have, formulas decide. `decision` is written as it is, if it is one of this operator (recorded.py).
    """

    form: str | None = None
    microkernel: tuple[int, int] | None = None
    mode: Mode = "best"
    prefer: Prefer = "utilisation"
    acc_factor: float = 0.5
    outer_preset: str | int | None = None
    inner_preset: str | int | None = None
    ahead: bool = False
    winograd: bool = True
    tolerance: float = TOLERANCE
    cut: Cut | None = None
    cuts: CutSource | None = None
    decision: Decision | None = None

    def __post_init__(self) -> None:
        given = "a decision" if self.decision is not None else "a cut" if self.cut is not None else ""
        if given and (self.form, self.microkernel, self.mode) != (None, None, "best"):
            raise HardwareError(
                f"form = {self.form!r}, microkernel = {self.microkernel!r} and mode = {self.mode!r} beside {given}; "
                f"accepted: {given} alone, which settles them, or none"
            )
        if self.decision is not None and self.cut is not None:
            raise HardwareError("a decision and a cut; accepted: one of them")

    def known_cut(
        self, workload: GemmWorkload | ConvWorkload, hardware: Hardware, epilogue: str = ""
    ) -> tuple[Cut, str] | None:
        """The cut for an operator, given or known, and why it is taken; None where a decision is to be made."""
        if self.cut is not None:
            return self.cut, GIVEN
        if self.cuts is None or (self.form, self.microkernel, self.mode) != (None, None, "best"):
            return None
        found = self.cuts.cut_for(workload, hardware, self.ahead, epilogue)
        return None if found is None else (found, KNOWN)
