"""MetaSchedule drops samples whose choices do not go together before they are built, and samples that are the same."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from tvm import s_tir, tirx
from tvm.ir.utils import derived_object
from tvm.s_tir.meta_schedule.postproc import Postproc, PyPostproc

from ...decide.configs.neighbourhood import Space
from ...decide.configs.record import Config
from .annotation import PICK, SPACE, picked, plain, root_annotations
from .operator_space import space_if_supported

if TYPE_CHECKING:
    from ...hardware.description import Hardware


@derived_object
class VerifyConfig(PyPostproc):
    """Refuses a configuration that the neighbourhood does not admit: registers, caches, cores. Functions without a
    configuration pass."""

    def __init__(self, hardware: Hardware) -> None:
        super().__init__()
        self.hardware = hardware

    def _initialize_with_tune_context(self, context: Any) -> None:
        """The machine is the rule's."""

    def apply(self, sch: s_tir.Schedule) -> bool:
        """Whether the schedule's cut, if it has one, is possible. Picks of choices that the sampled form does not have
        are taken away, so that MetaSchedule sees that two samples are the same configuration."""
        for variable, func in sch.mod.functions.items():
            if not isinstance(func, tirx.PrimFunc):
                continue
            annotations = root_annotations(func)
            found = picked(annotations)
            if found is None:
                continue
            space = space_for(func, str(annotations[SPACE]), self.hardware)
            if space is None or space.config(found[1]) is None:
                return False
            root = sch.get_sblock("root", func_name=variable.name_hint)
            for name in map(str, annotations):
                if name.startswith(PICK) and name.removeprefix(PICK) not in found[1]:
                    sch.unannotate(root, name)
        return True

    def clone(self) -> Postproc:
        """One for the same machine."""
        return VerifyConfig(self.hardware)


def space_for(func: tirx.PrimFunc, text: str, hardware: Hardware) -> Space | None:
    """The space of an annotated function; `text` is its annotation, by which functions of one search are known."""
    return _known(_Operator(func, text, str([str(p.ty) for p in func.params])), hardware)


def known_config(schedule: s_tir.Schedule, hardware: Hardware) -> tuple[Space, Config] | None:
    """The space and the configuration of a schedule; None where it has none, or an impossible one."""
    for func in schedule.mod.functions.values():
        annotations = root_annotations(func) if isinstance(func, tirx.PrimFunc) else {}
        found = picked(annotations)
        space = space_for(func, str(annotations[SPACE]), hardware) if found else None
        if found and space is not None and (config := space.config(found[1])) is not None:
            return space, config
    return None


class _Operator:
    """A function that equals another of the same choices and parameters."""

    def __init__(self, func: tirx.PrimFunc, text: str, parameters: str) -> None:
        self.func, self.key = func, (text, parameters)

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Operator) and self.key == other.key


@functools.lru_cache(maxsize=64)
def _known(operator: _Operator, hardware: Hardware) -> Space | None:
    return space_if_supported(plain(operator.func), hardware)
