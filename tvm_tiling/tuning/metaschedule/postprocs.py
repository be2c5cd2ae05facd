"""MetaSchedule postprocessor that drops inconsistent samples before they are built, and normalises equal ones."""

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
    """Rejects configurations outside the neighbourhood, by registers, caches or cores. Functions without a
    configuration pass."""

    def __init__(self, hardware: Hardware) -> None:
        super().__init__()
        self.hardware = hardware

    def _initialize_with_tune_context(self, context: Any) -> None:
        """Do nothing: the machine is that of the rule."""

    def apply(self, sch: s_tir.Schedule) -> bool:
        """Return whether the configuration of the schedule, if any, is possible. Picks that do not belong to the
        sampled algorithm are removed, so that MetaSchedule recognises equal configurations."""
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
        """Return a postprocessor for the same machine."""
        return VerifyConfig(self.hardware)


def space_for(func: tirx.PrimFunc, text: str, hardware: Hardware) -> Space | None:
    """Return the space of an annotated function; `text` is its annotation, which identifies functions of one search."""
    return _known(_Operator(func, text, str([str(p.ty) for p in func.params])), hardware)


def known_config(schedule: s_tir.Schedule, hardware: Hardware) -> tuple[Space, Config] | None:
    """Return the space and the configuration of a schedule; None if it has no valid configuration."""
    for func in schedule.mod.functions.values():
        annotations = root_annotations(func) if isinstance(func, tirx.PrimFunc) else {}
        found = picked(annotations)
        space = space_for(func, str(annotations[SPACE]), hardware) if found else None
        if found and space is not None and (config := space.config(found[1])) is not None:
            return space, config
    return None


class _Operator:
    """A function that compares equal to another with the same choices and parameters."""

    def __init__(self, func: tirx.PrimFunc, text: str, parameters: str) -> None:
        self.func, self.key = func, (text, parameters)

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Operator) and self.key == other.key


@functools.lru_cache(maxsize=64)
def _known(operator: _Operator, hardware: Hardware) -> Space | None:
    return space_if_supported(plain(operator.func), hardware)
