"""Preparation of a PrimFunc for matching: one multiply-add reduction, with every other block inlined."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

import tvm
import tvm_ffi
from tvm import s_tir, te, tirx
from tvm.ir import TensorLoad
from tvm.te.tensor import Operation

from ..errors import UnsupportedOperator
from ..lowering.samples import Extent, is_open, sampled
from ..lowering.wrapping import wrapping
from .access import loads, multiplied
from .blocks import why_in_place
from .truth import with_logic


@dataclass(frozen=True)
class SumOfProducts:
    """The reduction of a function after inlining: out[spatial] = sum over `reduce` of left * right."""

    func: tirx.PrimFunc  # after inlining
    name: str
    block: s_tir.SBlock
    epilogue: s_tir.SBlock | None  # the fused epilogue
    extents: dict[tirx.Var, int]  # extents of the block's axes, dynamic ones at the sample
    spatial: tuple[tirx.Var, ...]  # axes of the result, in storage order
    reduce: tuple[tirx.Var, ...]
    left: tirx.Expr  # the factors, over the axes
    right: tirx.Expr
    opened: dict[tirx.Var, tirx.Expr]  # the extents of the dynamic axes

    @property
    def sizes(self) -> dict[tirx.Var, Extent]:
        """The extents of the axes, dynamic ones as expressions."""
        return {**self.extents, **self.opened}

    @property
    def sum_type(self) -> str:
        """The type in which the sum is stored before the epilogue."""
        return str(self.block.body.buffer.dtype)


def sum_of_products(func: tirx.PrimFunc, name: str, *, wraps: bool = True, may_open: bool = False) -> SumOfProducts:
    """The sum of products computed by `func`. Raises UnsupportedOperator with the condition that is not met.

    `wraps`: rewrite integers so that they wrap around in TVM (lowering/wrapping.py). `may_open`: axes may have dynamic
    extents.
    """
    why = why_in_place(func) or _why_no_sum(func)  # first: the rest takes long for large functions
    if why is not None:
        raise refuse(name, why)
    func = wrapping(with_logic(func)) if wraps else with_logic(func)
    sch = s_tir.Schedule(tvm.IRModule({name: func.with_attr("global_symbol", name)}), debug_mask="none")
    sch.work_on(name)
    product = _fold_blocks(sch, name)
    block = sch.get(product)
    opened = _open_extents(block) if may_open else {}
    extents = {**_static_extents(name, block, opened), **{v: max(2, sampled(e)) for v, e in opened.items()}}
    left, right = _factors(name, block)
    reduce = tuple(v.var for v in block.iter_vars if int(v.iter_type) == tirx.IterVar.CommReduce)
    spatial = tuple(index for index in block.body.indices if index in extents and index not in reduce)
    if len({*spatial}) + len(reduce) != len(extents):
        raise refuse(name, "the result is not stored at its own axes")
    behind = [sch.get(c) for c in sch.get_consumers(product)]
    return SumOfProducts(
        sch.mod[name], name, block, behind[0] if behind else None, extents, spatial, reduce, left, right, opened
    )


def prim_func_of(op: te.Tensor | Operation | tirx.PrimFunc) -> tirx.PrimFunc:
    """A PrimFunc for a tensor expression: its placeholders in the order of first use, then the output."""
    if isinstance(op, tirx.PrimFunc):
        return op
    tensor = op.output(0) if isinstance(op, Operation) else op
    if not isinstance(tensor, te.Tensor):
        raise UnsupportedOperator(
            f"{type(op).__name__} is not an operator; expected a te.Tensor, te.Operation, tirx.PrimFunc or IRModule"
        )
    inputs: list[te.Tensor] = []
    seen: set[te.Tensor] = set()

    def visit(t: te.Tensor) -> None:
        if t in seen:
            return
        seen.add(t)
        if isinstance(t.op, te.PlaceholderOp):
            inputs.append(t)
        for source in t.op.input_tensors:
            visit(source)

    visit(tensor)
    return te.create_prim_func([*inputs, tensor])


def refuse(name: str, why: str) -> UnsupportedOperator:
    """The error with the reason why function `name` is not supported."""
    return UnsupportedOperator(f"{name}: not a matrix multiplication or convolution that can be scheduled: {why}")


def _is_reduction(block: s_tir.SBlock) -> bool:
    return any(int(v.iter_type) == tirx.IterVar.CommReduce for v in block.iter_vars)


def _why_no_sum(func: tirx.PrimFunc) -> str | None:
    """The reason why there is not a single sum in `func`, as the end of a sentence; None if there is, or if it is not
    scheduled TIR."""
    root = func.body
    if not isinstance(root, s_tir.SBlockRealize):
        return None
    blocks: list[s_tir.SBlock] = []
    tvm_ffi.structural_walk(root.block.body, (s_tir.SBlock, blocks.append))
    count = sum(map(_is_reduction, blocks))
    return None if count == 1 else f"it has {count} reductions; expected one"


def _fold_blocks(sch: s_tir.Schedule, name: str) -> s_tir.schedule.SBlockRV:
    """Inline every block into the operands or the last consumer of the sum of products, and return its block."""
    try:
        blocks = sch.get_child_blocks(sch.get_sblock("root"))
    except Exception as error:
        raise refuse(name, "it has no root block of scheduled TIR (create it with te or relax)") from error
    product = next(b for b in blocks if _is_reduction(sch.get(b)))
    if (hint := _giver_of_places(sch, product, blocks)) is not None:
        raise refuse(name, f"block {hint!r} computes indices of the reads")
    outputs = {sch.get(b).name_hint for b in sch.get_output_blocks(sch.get_sblock("root"))}
    for block in blocks:
        hint = sch.get(block).name_hint
        if hint == sch.get(product).name_hint or hint in outputs:
            continue
        try:
            sch.compute_inline(block)
        except Exception as error:
            raise refuse(name, f"block {hint!r} cannot be inlined into its neighbours") from error
    if len(outputs) != 1 or len(sch.get_consumers(product)) > 1:
        raise refuse(name, f"it has {max(len(outputs), 2)} outputs; expected one")
    return product


def _giver_of_places(
    sch: s_tir.Schedule, product: s_tir.schedule.SBlockRV, blocks: list[s_tir.schedule.SBlockRV]
) -> str | None:
    """The block whose result is used as an index in the sum of products, if any: inlining such coordinate arithmetic
    can keep TVM's simplifier busy for minutes or more."""
    writers = {region.source: sch.get(b).name_hint for b in blocks for region in sch.get(b).writes}
    store = sch.get(product).body
    for load in loads(store.value) if isinstance(store, tirx.BufferStore) else ():
        for inner in (inner for index in load.indices for inner in loads(index)):
            if inner.source in writers:
                return writers[inner.source]
    return None


def _open_extents(block: s_tir.SBlock) -> dict[tirx.Var, tirx.Expr]:
    """The axes with dynamic extents."""
    return {v.var: v.dom.extent for v in block.iter_vars if is_open(v.dom.extent)}


def _static_extents(name: str, block: s_tir.SBlock, opened: Container[tirx.Var]) -> dict[tirx.Var, int]:
    extents = {}
    for v in block.iter_vars:
        if is_open(v.dom.min) or int(v.dom.min) != 0 or (v.var not in opened and is_open(v.dom.extent)):
            raise refuse(name, f"axis {v.var.name} of block {block.name_hint!r} has a dynamic extent")
        if v.var in opened:
            continue
        extents[v.var] = size = int(v.dom.extent)
        if size < 1:
            raise refuse(name, f"axis {v.var.name} of block {block.name_hint!r} has extent {size}; expected 1 or more")
    return extents


def _factors(name: str, block: s_tir.SBlock) -> tuple[tirx.Expr, tirx.Expr]:
    """The two factors of the multiply-add in the block."""
    store, start = block.body, block.init
    if not isinstance(store, tirx.BufferStore) or not isinstance(store.value, tirx.Add):
        raise refuse(name, f"block {block.name_hint!r} is not a sum of products")
    if not isinstance(start, tirx.BufferStore) or getattr(start.value, "value", None) != 0:
        raise refuse(name, f"block {block.name_hint!r} does not accumulate from 0")
    terms = [store.value.a, store.value.b]
    rest = [t for t in terms if not (isinstance(t, TensorLoad) and t.source.same_as(store.buffer))]
    product = multiplied(rest[0]) if len(rest) == 1 else None
    if product is None or any(load.source.same_as(store.buffer) for load in loads(product)):
        raise refuse(name, f"block {block.name_hint!r} is not a sum of products that fit in their type")
    return product.a, product.b
