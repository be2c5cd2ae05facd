"""Recorded decisions: read from JSON and validated against their operator.

A schedule records its decision in the function attribute "tvm_tiling.decision". Applying it again to the same operator
and machine gives the same function. A recorded decision may have been edited since, so it is accepted only if the
configuration rule (or the machine kind, where there are no rules) derives the same decision from its choices.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, TypeVar

from ..errors import DatabaseError, HardwareError, TilingError
from ..figures import quantity
from ..hardware.description import Hardware
from ..plain_text import plain_json
from ..workload import ConvWorkload, GemmWorkload
from .configs.config import config_of, tiling_of
from .conv.conv_blocks import ConvPartition
from .conv.conv_tiling import ConvTiling
from .conv.open_winograd import OpenConvTiling
from .gemm.open_rows import OpenGemmTiling
from .kinds import Decided, decided, kind_of
from .levels.level_gemm import LevelsTiling
from .options import Options
from .rnn.column import RnnTiling
from .rnn.column_product import ColumnTiling
from .rnn.cpu_rnn import RnnCpuTiling
from .surroundings import Surroundings
from .tiling import Decision, GemmTiling

CLASSES = (GemmTiling, OpenGemmTiling, ConvTiling, OpenConvTiling, LevelsTiling, ColumnTiling, RnnTiling, RnnCpuTiling)
# Fields that describe a decision and that no schedule reads.
DESCRIPTIVE = frozenset(
    (
        *("mode", "feasible", "reasons", "candidates", "utilisation", "cycles", "load_a", "load_b"),
        *("bytes_a", "bytes_b", "bytes_out", "predicted_seconds", "predicted_cycles", "predicted_error"),
    )
)
# Further such fields where the program of an accelerator has steps of its own.
PARTITION = frozenset(
    ("partition_m", "partition_n", "partition_k", "tile_m", "tile_n", "split_k", "need_acc_buffer", "acc_bytes")
)


Made = TypeVar("Made", bound=Decision)


def read_decision(text: str | bytes) -> Decided:
    """Parse the output of `to_json`. Raises DatabaseError, naming the field, for anything else."""
    try:
        plain = plain_json(text)
    except TilingError as error:
        raise DatabaseError(f"decision: {error}") from None
    if not isinstance(plain, dict):
        raise DatabaseError(f"decision: {str(plain)[:80]!r}; expected a JSON object written by to_json")
    op = plain.get("op")
    known: dict[str, type[Any]] = {kind.op: kind for kind in CLASSES}
    if op not in known:
        raise DatabaseError(f"decision: op = {op!r}; expected {', '.join(map(repr, known))}")
    found: Decided = _record(ConvPartition if "blocks" in plain else known[op], plain, "decision")
    return found


def written_again(
    decision: Decision,
    workload: GemmWorkload | ConvWorkload,
    hardware: Hardware,
    options: Options,
    around: Surroundings,
) -> Decision:
    """Return `decision` if it is valid for this operator in its context. Raises HardwareError, naming the difference,
    if it is not."""
    kind = kind_of(workload, hardware)
    if kind.rules is None:
        made = decided(workload, hardware, options, around)
    else:
        config = config_of(decision, workload, hardware, around)
        made = kind.complete(tiling_of(config, workload, hardware, around), workload, hardware, around)
    return required_again(decision, made, workload, hardware)


def required_again(decision: Decision, made: Made, workload: GemmWorkload | ConvWorkload, hardware: Hardware) -> Made:
    """Return `decision`, whose choices must be those of `made`, the decision for this operator. Raises HardwareError
    with the first difference."""
    if not isinstance(decision, type(made)) or type(decision) is not type(made):
        raise HardwareError(
            f"decision: {type(decision).__name__} for a {workload.op} on {hardware.name}; expected "
            f"{type(made).__name__}"
        )
    own, again = _choices(decision.to_dict()), _choices(made.to_dict())
    for name in sorted(own.keys() | again.keys()):
        if own.get(name) != again.get(name):
            raise HardwareError(
                f"decision: {name} = {own.get(name)!r} does not match a {workload.op} of this size on {hardware.name}; "
                f"expected {again.get(name)!r}"
            )
    return decision


def _choices(plain: Any) -> Any:
    """Return the plain values of a decision without its descriptive fields."""
    if isinstance(plain, list | tuple):
        return [_choices(item) for item in plain]
    if not isinstance(plain, dict):
        return plain
    descriptive = DESCRIPTIVE
    if plain.get("blocks"):
        descriptive |= PARTITION | {"outer_order", "inner_order"}
    elif plain.get("chunks"):
        descriptive |= PARTITION
    elif plain.get("ranges"):  # these contain the division among cores; the others are those of the sample
        descriptive |= {"partition_m", "threads_batch", "threads_m", "threads_n"}
    return {name: _choices(value) for name, value in plain.items() if name not in descriptive}


def _record(kind: type[Any], plain: Any, where: str) -> Any:
    """Build a dataclass or named tuple from plain values."""
    if hasattr(kind, "_fields"):
        if not isinstance(plain, list) or len(plain) != len(kind._fields):
            raise DatabaseError(f"{where}: {plain!r}; expected {quantity(len(kind._fields), 'value')}")
        plain = dict(zip(kind._fields, plain, strict=True))
        needed, names = set(kind._fields), set(kind._fields)
    else:
        names = {field.name for field in fields(kind)}
        needed = {f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING}
    if isinstance(plain, dict) and plain.get("op") == getattr(kind, "op", None):
        plain = {name: value for name, value in plain.items() if name != "op"}
    if not isinstance(plain, Mapping):
        raise DatabaseError(f"{where}: {plain!r}; expected an object with {', '.join(sorted(names))}")
    if strange := sorted(set(plain) - names) or sorted(needed - set(plain)):
        raise DatabaseError(f"{where}: {strange[0]!r} is {'missing' if strange[0] in needed else 'not a field'}")
    hints = typing.get_type_hints(kind)
    return kind(**{name: _value(hints[name], value, f"{where}.{name}") for name, value in plain.items()})


def _value(hint: Any, plain: Any, where: str) -> Any:
    """Return a value of the annotated type `hint`."""
    if hint is object or hint is Any:  # values of reasons, which are only displayed
        return tuple(plain) if isinstance(plain, list) else plain
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        if plain is None and type(None) in args:
            return None
        for one in args:
            if one is not type(None) and _could_be(one, plain):
                return _value(one, plain, where)
    elif origin is typing.Literal:
        if plain in args:
            return plain
    elif origin is tuple and isinstance(plain, list):
        if len(args) == 2 and args[1] is Ellipsis:
            return tuple(_value(args[0], item, where) for item in plain)
        if len(args) == len(plain):
            return tuple(_value(own, item, where) for own, item in zip(args, plain, strict=True))
    elif is_dataclass(hint) or hasattr(hint, "_fields"):
        return _record(hint, plain, where)
    elif _could_be(hint, plain):
        return float(plain) if hint is float else plain
    raise DatabaseError(f"{where} = {plain!r}; expected {getattr(hint, '__name__', hint)}")


def _could_be(hint: Any, plain: Any) -> bool:
    if is_dataclass(hint):
        return isinstance(plain, Mapping)
    if hasattr(hint, "_fields") or typing.get_origin(hint) is tuple:
        return isinstance(plain, list)
    if hint is float:
        return isinstance(plain, int | float) and not isinstance(plain, bool)
    return type(plain) is hint
