"""Functions described by an attribute instead of being matched: matrix multiplications with blocked weights, row
preparation for them, lookups in blocked tables, caches and attention over them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeAlias

from tvm import tirx

from ..decide.gemm.block_rows import BlockRows
from ..decide.gemm.blocked import BlockedProduct
from ..decide.gemm.table_rows import TableRows
from ..decide.vector.cache_append import CacheAppend
from ..decide.vector.cached_attention import CachedAttention
from ..lowering.samples import sampled
from ..operand_types import Encoding

Description: TypeAlias = BlockedProduct | BlockRows | TableRows | CacheAppend | CachedAttention


@dataclass(frozen=True)
class _Kind:
    """A kind of description: its attribute, its class, and the sizes that are taken from tensors, as field name to
    (parameter number, axis)."""

    attribute: str
    made: type[Description]
    sizes: Mapping[str, tuple[int, int]]


_KINDS = (
    _Kind("tvm_tiling.blocked_product", BlockedProduct, {"rows": (0, 0)}),
    _Kind("tvm_tiling.block_rows", BlockRows, {"rows": (0, 0)}),
    _Kind("tvm_tiling.table_rows", TableRows, {"rows": (0, 0)}),
    _Kind("tvm_tiling.cached_attention", CachedAttention, {"batch": (0, 0), "length": (0, 1), "every": (1, 2)}),
    _Kind(
        "tvm_tiling.cache_append",
        CacheAppend,
        {"batch": (0, 0), "room": (0, 2), "length": (1, 1), "every": (3, 2)},
    ),
)


def _kind_of(description: Description) -> _Kind:
    return next(kind for kind in _KINDS if kind.made is type(description))


def sizes_of(description: Description) -> tuple[str, ...]:
    """The names of the sizes that may be dynamic."""
    return tuple(_kind_of(description).sizes)


def attribute_of(description: Description) -> dict[str, str]:
    """The attribute that describes a function, without the sizes of its tensors."""
    kind = _kind_of(description)
    plain = asdict(_with(description, dict.fromkeys(kind.sizes, 0)))
    if isinstance(description, BlockedProduct | TableRows):
        plain["encoding"] = str(description.encoding)
    return {kind.attribute: json.dumps(plain, sort_keys=True)}


def description_of(func: tirx.PrimFunc) -> Description | None:
    """The description of `func`, whose parameters are the inputs and outputs in order; None for any other function."""
    for kind in _KINDS:
        text = func.attrs.get(kind.attribute) if func.attrs is not None else None
        if text is not None:
            plain: dict[str, Any] = json.loads(str(text))
            for name, (parameter, axis) in kind.sizes.items():
                size = func.params[parameter].shape[axis]
                plain[name] = int(size) if isinstance(size, tirx.IntImm) else size
            if "encoding" in plain:
                plain["encoding"] = Encoding.parse(plain["encoding"])
            return kind.made(**plain)
    return None


def at_sample(description: Description) -> Any:
    """The description at sample sizes, for which decisions are made if sizes are dynamic."""
    return _with(description, {name: sampled(getattr(description, name)) for name in sizes_of(description)})


def _with(description: Any, sizes: Mapping[str, Any]) -> Any:
    """The description with other sizes."""
    return replace(description, **sizes)
