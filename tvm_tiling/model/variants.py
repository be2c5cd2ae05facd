"""A variant of a model by its kind of library: run by its plan, by TVM's virtual machine, or not on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias, Union

from .foreign_variant import ForeignVariant
from .planned_variant import PlannedVariant
from .variant_base import VariantParts

if TYPE_CHECKING:
    from .variant import Variant

AnyVariant: TypeAlias = Union[PlannedVariant, ForeignVariant, "Variant"]


def variant_of(parts: VariantParts) -> AnyVariant:
    """The variant of these parts. Raises ValueError if the library does not match the signature."""
    made: type[AnyVariant] = PlannedVariant
    if parts.library.lacking:
        made = ForeignVariant
    elif parts.library.plan is None:
        from .variant import Variant

        made = Variant
    return made(parts)
