"""Operators whose functions describe their computation in an attribute: recurrent layers, matrix multiplications with
block-quantised weights, the preparation of their rows, gathered table rows, cache appends and cached attention."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tvm import tirx

from ..decide.gemm.block_rows import BlockRows
from ..decide.gemm.blocked import BlockedTiling
from ..decide.gemm.table_rows import TableRows
from ..decide.rnn.recurrence import RecurrenceTiling
from ..decide.vector.cache_append import AppendTiling, CacheAppend
from ..decide.vector.cached_attention import CachedAttention, CachedAttentionTiling
from ..hardware.description import Cpu
from ..lowering.prim_func import ScheduledOperator
from ..match.described import at_sample, description_of
from ..match.recurrent import at_sample as sampled_recurrence
from ..match.recurrent import recurrence_of
from ..workload import GemmWorkload
from .block_rows import schedule_block_rows
from .blocked_gemm import schedule_blocked
from .cache_append import schedule_append
from .cached_attention import schedule_cached_attention
from .rnn import schedule_recurrence
from .table_rows import schedule_table_rows


@dataclass(frozen=True)
class Told:
    """A scheduled operator: its name in reports, its number of operations, and its decision, if any. `weights` is the
    index of the parameter that `packing`, if given, packs."""

    kind: str
    main: tirx.PrimFunc
    flops: int = 0
    tiling: RecurrenceTiling | BlockedTiling | AppendTiling | CachedAttentionTiling | None = None
    workload: GemmWorkload | None = None
    packing: ScheduledOperator | None = None
    weights: int | None = None


def schedule_told(
    func: tirx.PrimFunc,
    name: str,
    cpu: Cpu,
    known: Callable[[tirx.Var], bool],
    beside: int | None = None,
    *,
    deterministic: bool = False,
) -> Told | None:
    """Return the kernel of such a function, None for any other.

    known: tells whether a parameter is a constant in all calls; constant weights are prepacked. beside: the columns of
    a panel of the matrix multiplication that reads the same weights. deterministic: as in Options.
    """
    recurrence = recurrence_of(func)
    if recurrence is not None:
        place = list(recurrence.inputs).index("weights")
        prepacked = known(func.params[place])
        scheduled = schedule_recurrence(recurrence, name, cpu, prepacked=prepacked, deterministic=deterministic)
        assert isinstance(scheduled.tiling, RecurrenceTiling)
        return _told("recurrence", scheduled, sampled_recurrence(recurrence).flops, place)
    told = description_of(func)
    if told is None:
        return None
    if isinstance(told, BlockRows):
        return Told("other", schedule_block_rows(told, name, cpu))
    if isinstance(told, CacheAppend):
        append = schedule_append(told, name, cpu)
        assert isinstance(append.tiling, AppendTiling)
        return Told("other", append.main, tiling=append.tiling)
    if isinstance(told, CachedAttention):
        attention = schedule_cached_attention(told, name, cpu)
        assert isinstance(attention.tiling, CachedAttentionTiling)
        return Told("attention", attention.main, at_sample(told).flops, attention.tiling)
    place = list(told.inputs).index("weights")
    if isinstance(told, TableRows):
        table = schedule_table_rows(told, name, beside, prepacked=known(func.params[place]))
        return None if table is None else Told("other", table.main, packing=table, weights=place)
    scheduled = schedule_blocked(told, name, cpu, prepacked=known(func.params[place]), deterministic=deterministic)
    workload = at_sample(told).workload
    return _told("product", scheduled, workload.flops, place, workload)


def _told(
    kind: str, scheduled: ScheduledOperator, flops: int, place: int, workload: GemmWorkload | None = None
) -> Told:
    assert isinstance(scheduled.tiling, RecurrenceTiling | BlockedTiling)
    packing = scheduled if scheduled.packed_shape is not None else None
    return Told(kind, scheduled.main, flops, scheduled.tiling, workload, packing, place if packing else None)
