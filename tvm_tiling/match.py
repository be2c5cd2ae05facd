"""From TIR to a workload: finds the one matrix product of a PrimFunc and what is fused around it.

The first module that imports TVM. A function is served when it holds one multiply-add reduction; element-wise blocks
before it are folded into the operands, those behind it into the write-back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import tvm
import tvm_ffi
from tvm import s_tir, sym, te, tirx
from tvm.ir import TensorLoad
from tvm.te.tensor import Operation

from .errors import UnsupportedOperator, WorkloadError
from .workload import ACCUMULATOR, GemmWorkload

Index: TypeAlias = tirx.Expr | int


@dataclass(frozen=True)
class Access:
    """An operand element as an expression of (batch, row, column) block variables, evaluated at any indices.

    `buffer` is set where the element is one plain load (perhaps cast) whose fused row and column strides are constant;
    only such an operand can be read in place.
    """

    expr: tirx.Expr
    axes: tuple[tuple[tirx.Var, ...], ...]  # the variables of each fused axis, outermost first
    extents: tuple[tuple[int, ...], ...]
    dtype: str
    buffer: tirx.Buffer | None
    strides: tuple[int, ...] | None  # elements per step of each fused axis

    def at(self, *indices: Index, dtype: str | None = None) -> tirx.Expr:
        """The element at fused `indices`, one per axis, cast to `dtype`."""
        value = substitute(self.expr, bind(self.axes, self.extents, indices))
        return value if dtype is None or str(value.ty) == dtype else tirx.Cast(dtype, value)


@dataclass(frozen=True)
class GemmProgram:
    """A matched product: C[b, i, j] = sum_k a(b, i, k) * b(b, k, j), then `store` with what is fused behind it."""

    func: tirx.PrimFunc
    name: str
    workload: GemmWorkload
    a: Access  # axes (batch, m, k)
    b: Access  # axes (batch, k, n)
    out: tirx.Buffer
    out_dtype: str
    out_indices: tuple[tirx.Expr, ...]  # of the variables in `out_axes`
    out_axes: tuple[tuple[tirx.Var, ...], ...]  # batch, m, n
    out_extents: tuple[tuple[int, ...], ...]
    value: Callable[[tirx.Expr], tirx.Expr]  # accumulator -> stored value, over `out_axes`
    has_epilogue: bool
    swapped: bool  # the operands of the source change places so that n is the contiguous axis of the output

    def reads(self, buffer: tirx.Buffer | None) -> int:
        """How many expressions of the function read `buffer`."""
        found: list[TensorLoad] = []

        def note(load: TensorLoad) -> None:
            if load.source.same_as(buffer):
                found.append(load)

        tvm_ffi.structural_walk(self.func.body, (TensorLoad, note))
        return len(found)

    def out_at(self, b: Index, i: Index, j: Index) -> list[tirx.Expr]:
        """Indices of the output element (b, i, j)."""
        mapping = bind(self.out_axes, self.out_extents, (b, i, j))
        return [substitute(e, mapping) for e in self.out_indices]

    def result(self, accumulator: tirx.Expr, b: Index, i: Index, j: Index) -> tirx.Expr:
        """What is stored at (b, i, j): the epilogue of the finished accumulator, in the output's type."""
        value = substitute(self.value(accumulator), bind(self.out_axes, self.out_extents, (b, i, j)))
        return value if str(value.ty) == self.out_dtype else tirx.Cast(self.out_dtype, value)


def substitute(expr: tirx.Expr, mapping: dict[tirx.Var, tirx.Expr]) -> tirx.Expr:
    """`expr` with each variable of `mapping` replaced."""
    return tvm_ffi.structural_map(expr, (tirx.Var, lambda v: mapping.get(v, v)))


def bind(
    axes: Sequence[Sequence[tirx.Var]], extents: Sequence[Sequence[int]], indices: Sequence[Index]
) -> dict[tirx.Var, tirx.Expr]:
    """Each variable's value where the fused axes stand at `indices`; several variables share an axis mixed-radix."""
    mapping: dict[tirx.Var, tirx.Expr] = {}
    for variables, sizes, index in zip(axes, extents, indices, strict=True):
        rest = index if isinstance(index, tirx.Expr) else tirx.IntImm("int32", index)
        for variable, size in zip(reversed(variables[1:]), reversed(sizes[1:]), strict=True):
            mapping[variable] = tirx.floormod(rest, size)
            rest = tirx.floordiv(rest, size)
        if variables:
            mapping[variables[0]] = rest
    return mapping


def prim_func_of(op: te.Tensor | Operation | tirx.PrimFunc) -> tirx.PrimFunc:
    """A PrimFunc for a tensor expression: its placeholders in the order of their first use, then the output."""
    if isinstance(op, tirx.PrimFunc):
        return op
    tensor = op.output(0) if isinstance(op, Operation) else op
    if not isinstance(tensor, te.Tensor):
        raise UnsupportedOperator(
            f"{type(op).__name__} is not an operator; accepted: a te.Tensor, te.Operation, tirx.PrimFunc or IRModule"
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


def match_gemm(func: tirx.PrimFunc, name: str = "main", *, may_swap: bool = True) -> GemmProgram:
    """The product in `func`; UnsupportedOperator says which condition is not met.

    `may_swap`: where only A's axis is contiguous in the output, the operands may change places.
    """
    sch = s_tir.Schedule(tvm.IRModule({name: func.with_attr("global_symbol", name)}), debug_mask="none")
    sch.work_on(name)
    product = _fold_blocks(sch, name)
    folded = sch.mod[name]
    body = sch.get(product)
    epilogue = [sch.get(c) for c in sch.get_consumers(product)]
    return _analyse(folded, name, body, epilogue[0] if epilogue else None, may_swap)


def _refuse(name: str, why: str) -> UnsupportedOperator:
    return UnsupportedOperator(f"{name}: not a matrix product that can be scheduled: {why}")


def _is_reduction(block: s_tir.SBlock) -> bool:
    return any(int(v.iter_type) == tirx.IterVar.CommReduce for v in block.iter_vars)


def _fold_blocks(sch: s_tir.Schedule, name: str) -> s_tir.schedule.SBlockRV:
    """Inline every block into the product's operands or into its last consumer, and return the product's block."""
    try:
        blocks = sch.get_child_blocks(sch.get_sblock("root"))
    except Exception as error:
        raise _refuse(name, "it has no root block of scheduled TIR (create it with te or relax)") from error
    reductions = [b for b in blocks if _is_reduction(sch.get(b))]
    if len(reductions) != 1:
        raise _refuse(name, f"it holds {len(reductions)} reductions, one is needed")
    product = reductions[0]
    outputs = {sch.get(b).name_hint for b in sch.get_output_blocks(sch.get_sblock("root"))}
    for block in blocks:
        hint = sch.get(block).name_hint
        if hint == sch.get(product).name_hint or hint in outputs:
            continue
        try:
            sch.compute_inline(block)
        except Exception as error:
            raise _refuse(name, f"block {hint!r} cannot be folded into its neighbours") from error
    if len(outputs) != 1 or len(sch.get_consumers(product)) > 1:
        raise _refuse(name, f"it has {max(len(outputs), 2)} outputs, one is needed")
    return product


def _static(name: str, block: s_tir.SBlock) -> dict[tirx.Var, int]:
    extents = {}
    for v in block.iter_vars:
        if not isinstance(v.dom.extent, tirx.IntImm) or int(v.dom.min) != 0:
            raise _refuse(name, f"axis {v.var.name} of block {block.name_hint!r} has no fixed extent")
        extents[v.var] = size = int(v.dom.extent)
        if size < 1:
            raise _refuse(name, f"axis {v.var.name} of block {block.name_hint!r} has extent {size}, not 1 or more")
    return extents


def _variables(expr: tirx.Expr, among: dict[tirx.Var, int]) -> set[tirx.Var]:
    found: set[tirx.Var] = set()

    def visit(variable: tirx.Var) -> None:
        if variable in among:
            found.add(variable)

    tvm_ffi.structural_walk(expr, (tirx.Var, visit))
    return found


def _strip_cast(expr: tirx.Expr) -> tirx.Expr:
    while isinstance(expr, tirx.Cast):
        expr = expr.value
    return expr


def _factors(name: str, block: s_tir.SBlock) -> tuple[tirx.Expr, tirx.Expr]:
    """The two factors of the multiply-add that the block sums."""
    store = block.body
    if not isinstance(store, tirx.BufferStore) or not isinstance(store.value, tirx.Add):
        raise _refuse(name, f"block {block.name_hint!r} is not a sum of products")
    terms = [store.value.a, store.value.b]
    rest = [t for t in terms if not (isinstance(t, TensorLoad) and t.source.same_as(store.buffer))]
    product = _strip_cast(rest[0]) if len(rest) == 1 else None
    if not isinstance(product, tirx.Mul):
        raise _refuse(name, f"block {block.name_hint!r} is not a sum of products")
    return product.a, product.b


def _linear_strides(
    load: TensorLoad, axes: Sequence[Sequence[tirx.Var]], extents: Sequence[Sequence[int]]
) -> tuple[int, ...] | None:
    """Elements per step of each fused axis, or None where the address is not linear in it."""
    shape = [int(s) for s in load.source.shape]
    strides = [int(s) for s in load.source.strides]
    if not strides:
        strides = [1] * len(shape)
        for d in range(len(shape) - 2, -1, -1):
            strides[d] = strides[d + 1] * shape[d + 1]
    address: tirx.Expr = tirx.IntImm("int32", 0)
    for stride, index in zip(strides, load.indices, strict=True):
        address = address + stride * index
    variables = [v for axis in axes for v in axis]
    coefficients = sym.detect_linear_equation(sym.Analyzer().simplify(address), variables)
    if len(coefficients) != len(variables) + 1 or not all(isinstance(c, tirx.IntImm) for c in coefficients):
        return None
    step = dict(zip(variables, (int(c) for c in coefficients), strict=False))
    fused = []
    for axis, sizes in zip(axes, extents, strict=True):
        for outer, inner, size in zip(axis, axis[1:], sizes[1:], strict=False):
            if step[outer] != step[inner] * size:
                return None
        fused.append(step[axis[-1]] if axis else 0)
    return tuple(fused)


def _access(name: str, expr: tirx.Expr, axes: list[list[tirx.Var]], among: dict[tirx.Var, int]) -> Access:
    sizes = tuple(tuple(among[v] for v in axis) for axis in axes)
    plain = _strip_cast(expr)
    strides = buffer = None
    if isinstance(plain, TensorLoad):
        for d, (index, size) in enumerate(zip(plain.indices, plain.source.shape, strict=True)):
            if isinstance(index, tirx.Var) and among.get(index, 0) > int(size):
                raise _refuse(name, f"{plain.source.name}'s axis {d} is read up to {among[index]}, it has {size}")
        strides = _linear_strides(plain, axes, sizes)
        buffer = plain.source if strides is not None else None
    source = plain if isinstance(plain, TensorLoad) else expr
    return Access(source, tuple(tuple(a) for a in axes), sizes, str(source.ty), buffer, strides)


def _product(sizes: Sequence[int]) -> int:
    total = 1
    for size in sizes:
        total *= size
    return total


def _analyse(
    func: tirx.PrimFunc, name: str, block: s_tir.SBlock, epilogue: s_tir.SBlock | None, may_swap: bool
) -> GemmProgram:
    among = _static(name, block)
    store = block.body
    left, right = _factors(name, block)
    reduce = [v.var for v in block.iter_vars if int(v.iter_type) == tirx.IterVar.CommReduce]
    spatial = [v.var for v in block.iter_vars if int(v.iter_type) != tirx.IterVar.CommReduce]
    left_vars, right_vars = _variables(left, among), _variables(right, among)
    # Axes in the order the output stores them, so that fused axes are contiguous where they can be.
    order = [v for index in store.indices for v in spatial if index.same_as(v)]
    if len(order) != len(spatial):
        raise _refuse(name, "the product is not stored at its own axes")
    if any((v in left_vars) != (v in right_vars) for v in reduce):
        raise _refuse(name, "a summed axis is missing from one operand")
    batch = [v for v in order if (v in left_vars) == (v in right_vars)]
    m_axis = [v for v in order if v in left_vars and v not in right_vars]
    n_axis = [v for v in order if v in right_vars and v not in left_vars]
    m_size, n_size = (_product([among[v] for v in axis]) for axis in (m_axis, n_axis))
    last = next((v for v in reversed(order) if among[v] > 1), order[-1])
    swapped = may_swap and ((n_size == 1 and m_size > 1) or (last in m_axis and m_size > 1))
    if swapped:
        left, right, m_axis, n_axis, m_size, n_size = right, left, n_axis, m_axis, n_size, m_size
    a = _access(name, left, [batch, m_axis, reduce], among)
    b = _access(name, right, [batch, reduce, n_axis], among)
    return _program(func, name, block, epilogue, among, (batch, m_axis, n_axis), a, b, swapped)


def _program(
    func: tirx.PrimFunc,
    name: str,
    block: s_tir.SBlock,
    epilogue: s_tir.SBlock | None,
    among: dict[tirx.Var, int],
    axes: tuple[list[tirx.Var], list[tirx.Var], list[tirx.Var]],
    a: Access,
    b: Access,
    swapped: bool,
) -> GemmProgram:
    product_store = block.body
    accumulator_type = str(product_store.buffer.dtype)
    if epilogue is None:
        out, indices = product_store.buffer, tuple(product_store.indices)

        def value(accumulator: tirx.Expr) -> tirx.Expr:
            return accumulator
    else:
        out, indices, template = _fused_epilogue(name, block, epilogue)

        def value(accumulator: tirx.Expr) -> tirx.Expr:
            done = accumulator if str(accumulator.ty) == accumulator_type else tirx.Cast(accumulator_type, accumulator)
            return template(done)

    sizes = tuple(tuple(among[v] for v in axis) for axis in axes)
    workload = _workload(name, a, b, sizes, _product(a.extents[2]), accumulator_type)
    return GemmProgram(
        func=func,
        name=name,
        workload=workload,
        a=a,
        b=b,
        out=out,
        out_dtype=str(out.dtype),
        out_indices=indices,
        out_axes=tuple(tuple(axis) for axis in axes),
        out_extents=sizes,
        value=value,
        has_epilogue=epilogue is not None,
        swapped=swapped,
    )


def _workload(
    name: str, a: Access, b: Access, sizes: tuple[tuple[int, ...], ...], k: int, sum_type: str
) -> GemmWorkload:
    batch, m, n = (_product(s) for s in sizes)
    # Of a signed and an unsigned operand the engine must take either on either side; that for "uint8" does.
    dtype = a.dtype if a.dtype == b.dtype else "uint8"
    if a.dtype != b.dtype and {a.dtype, b.dtype} != {"uint8", "int8"}:
        raise _refuse(name, f"its operands are {a.dtype} and {b.dtype}, both must be of one type")
    if dtype not in ACCUMULATOR:
        raise _refuse(name, f"its operands are {dtype}; accepted: {', '.join(ACCUMULATOR)}")

    def leading(access: Access, row: int, column: int, columns: int, rows: int) -> tuple[bool, int | None]:
        if access.strides is None:
            return False, None
        if access.strides[column] == 1 or columns == 1:
            return False, max(access.strides[row], columns) if rows > 1 else None
        if access.strides[row] == 1 or rows == 1:
            return True, max(access.strides[column], rows)
        return False, None

    trans_a, lda = leading(a, 1, 2, k, m)
    trans_b, ldb = leading(b, 1, 2, n, k)
    try:
        return GemmWorkload(
            m=m,
            n=n,
            k=k,
            batch=batch,
            dtype=dtype,
            # Sums of a type narrower than the usual one are rounded to it when they are finished.
            acc_dtype="float64" if sum_type == "float64" and dtype not in ("int8", "uint8") else None,
            trans_a=trans_a,
            trans_b=trans_b,
            lda=lda,
            ldb=ldb,
        )
    except WorkloadError as error:
        raise _refuse(name, str(error)) from error


def _fused_epilogue(
    name: str, block: s_tir.SBlock, epilogue: s_tir.SBlock
) -> tuple[tirx.Buffer, tuple[tirx.Expr, ...], Callable[[tirx.Expr], tirx.Expr]]:
    """The last block, rewritten over the product's own variables: its output, indices, and value of an accumulator."""
    produced = block.body.buffer
    last = epilogue.body
    if not isinstance(last, tirx.BufferStore):
        raise _refuse(name, f"block {epilogue.name_hint!r} behind the product is not element-wise")
    loads: list[TensorLoad] = []

    def note(load: TensorLoad) -> None:
        if load.source.same_as(produced):
            loads.append(load)

    tvm_ffi.structural_walk(last.value, (TensorLoad, note))
    read = loads[0].indices
    own = {v.var for v in epilogue.iter_vars if int(v.dom.extent) > 1}
    one_place = all(tvm_ffi.structural_equal(x, y) for load in loads for x, y in zip(load.indices, read, strict=True))
    if not one_place or not own <= {i for i in read if isinstance(i, tirx.Var)}:
        raise _refuse(name, f"block {epilogue.name_hint!r} behind the product does not read it element by element")
    mapping = {
        theirs: ours for theirs, ours in zip(read, block.body.indices, strict=True) if isinstance(theirs, tirx.Var)
    }
    mapping.update((v.var, tirx.IntImm("int32", 0)) for v in epilogue.iter_vars if v.var not in mapping)
    indices = tuple(substitute(i, mapping) for i in last.indices)

    def value(accumulator: tirx.Expr) -> tirx.Expr:
        done = tvm_ffi.structural_map(
            last.value,
            (TensorLoad, lambda load: accumulator if load.source.same_as(produced) else load),
        )
        return substitute(done, mapping)

    return last.buffer, indices, value
