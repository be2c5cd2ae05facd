"""A variant of a model by what its library is: run by its plan, or by TVM's virtual machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias, Union

from ..runtime.library import Library
from .passes.constants import Constants
from .planned_variant import PlannedVariant
from .report import Memory, OperatorRecord
from .signature import Signature

if TYPE_CHECKING:
    from .variant import Variant

AnyVariant: TypeAlias = Union[PlannedVariant, "Variant"]


def variant_of(
    library: Library,
    signature: Signature,
    operators: Sequence[OperatorRecord],
    *,
    memory: Memory,
    constants: Sequence[int],
    store: Constants,
    cores: int,
) -> AnyVariant:
    """The variant with this library. `constants`: numbers of those in `store` that it takes behind its inputs. `cores`:
    how many the kernels were made for. ValueError where the library is not one of this signature."""
    made: type[AnyVariant] = PlannedVariant
    if library.plan is None:
        from .variant import Variant

        made = Variant
    return made(library, signature, operators, memory=memory, constants=constants, store=store, cores=cores)
