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
class DescribedOperator:
    """A scheduled operator: its name in reports, its number of operations, and its decision, if any. `weights` is the
    index of the parameter that `packing`, if given, packs."""

    kind: str
    main: tirx.PrimFunc
    flops: int = 0
    tiling: RecurrenceTiling | BlockedTiling | AppendTiling | CachedAttentionTiling | None = None
    workload: GemmWorkload | None = None
    packing: ScheduledOperator | None = None
    weights: int | None = None


def schedule_described(
    func: tirx.PrimFunc,
    name: str,
    cpu: Cpu,
    known: Callable[[tirx.Var], bool],
    beside: int | None = None,
    *,
    deterministic: bool = False,
) -> DescribedOperator | None:
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
        return _described("recurrence", scheduled, sampled_recurrence(recurrence).flops, place)
    description = description_of(func)
    if description is None:
        return None
    if isinstance(description, BlockRows):
        return DescribedOperator("other", schedule_block_rows(description, name, cpu))
    if isinstance(description, CacheAppend):
        append = schedule_append(description, name, cpu)
        assert isinstance(append.tiling, AppendTiling)
        return DescribedOperator("other", append.main, tiling=append.tiling)
    if isinstance(description, CachedAttention):
        attention = schedule_cached_attention(description, name, cpu)
        assert isinstance(attention.tiling, CachedAttentionTiling)
        return DescribedOperator("attention", attention.main, at_sample(description).flops, attention.tiling)
    place = list(description.inputs).index("weights")
    if isinstance(description, TableRows):
        table = schedule_table_rows(description, name, beside, prepacked=known(func.params[place]))
        return None if table is None else DescribedOperator("other", table.main, packing=table, weights=place)
    scheduled = schedule_blocked(
        description, name, cpu, prepacked=known(func.params[place]), deterministic=deterministic
    )
    workload = at_sample(description).workload
    return _described("gemm", scheduled, workload.flops, place, workload)


def _described(
    kind: str, scheduled: ScheduledOperator, flops: int, place: int, workload: GemmWorkload | None = None
) -> DescribedOperator:
    assert isinstance(scheduled.tiling, RecurrenceTiling | BlockedTiling)
    packing = scheduled if scheduled.packed_shape is not None else None
    return DescribedOperator(
        kind, scheduled.main, flops, scheduled.tiling, workload, packing, place if packing else None
    )
