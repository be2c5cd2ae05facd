"""Compilation of one scheduled PrimFunc to an object file.

The passes are those of TVM's pipeline for scheduled TIR that have an effect on a CPU, in the same order. Omitted are
those for GPUs; RemoveNoOp and LoopPartition, which do not change the machine code of such kernels; and, for a function
without blocks or conditions to optimise, the passes that compact block buffers and hoist conditions. A kernel that gets
only memory allocated by the virtual machine, or constants, does not check its arguments again: the model's function has
checked the types and shapes of its arguments; for dynamic sizes it still compares those of its tensors, which follow
from each other by arithmetic. Those checks would be two thirds of a network's machine code, and a third of LLVM's time.
"""

from __future__ import annotations

import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import Call

from ..lowering.half_rounding import rounding
from ..lowering.named_values import without_names
from ..lowering.wrapping import by_bits
from ..match.floats import exact, with_zeros
from .element_alignment import aligned_to_elements
from .flatten_buffers import flatten_buffers
from .loops_from_zero import loops_from_zero
from .memory_files import written
from .object_names import renamed
from .unmarked_extents import unmarked_extents

KERNEL = "tvm_tiling_kernel"  # the name under which every kernel is compiled
_STRUCT_GET = tvm.ir.Op.get("tirx.tvm_struct_get")
_ARRAY_ELEMENT = 17  # field number: TVMStructFieldKind.kInt64ArrayElem in TVM
TRUSTED = "tvm_tiling.trusted_arguments"  # attribute of PrimFuncs that need not check their arguments


def object_of(func: tirx.PrimFunc, target: tvm.target.Target) -> bytes:
    """The object file of `func`, under the name KERNEL."""
    func = rounding(by_bits(aligned_to_elements(unmarked_extents(loops_from_zero(exact(func))))))
    with tvm.transform.PassContext(opt_level=3):
        mod = _lowered(func.with_attr("global_symbol", KERNEL), target)
        module = tvm.get_global_func("target.build.llvm")(mod, target)
    return written(lambda path: module.write_to_file(path, "o"))


def at_level(target: tvm.target.Target, level: int) -> tvm.target.Target:
    """`target` with this LLVM optimisation level."""
    return tvm.target.Target({**target.export(), "opt-level": level})


def named(content: bytes, name: str) -> bytes:
    """The object file from object_of() with another function name."""
    return renamed(content, lambda symbol: symbol.replace(KERNEL, name, 1))


def _lowered(func: tirx.PrimFunc, target: tvm.target.Target) -> tvm.IRModule:
    """`func` as a module for LLVM's code generator."""
    buffers, conditions = _has(func)
    before = [
        tirx.transform.BindTarget(target.with_host(target)),
        s_tir.transform.LowerInitBlock(),
        s_tir.transform.PlanAndUpdateBufferAllocationLocation(),
        s_tir.transform.ConvertBlocksToOpaque(),
        *([s_tir.transform.CompactBufferAllocation()] if buffers else []),
        s_tir.transform.LowerMatchBuffer(),
        s_tir.transform.StmtSimplify(),
        s_tir.transform.LowerOpaqueBlock(),
    ]
    after = [
        tirx.transform.BF16ComputeLegalize(),
        tirx.transform.NarrowDataType(32),
        tirx.transform.VectorizeLoop(True),
        tirx.transform.StorageRewrite(),
        *([s_tir.transform.HoistIfThenElse()] if conditions else []),
        tirx.transform.UnrollLoop(),
        s_tir.transform.RenormalizeSplitPattern(),
        tirx.transform.StmtSimplify(),
        s_tir.transform.RewriteUnsafeSelect(),
        tirx.transform.CommonSubexprElim(),
        tirx.transform.FP8ComputeLegalize(),
        tirx.transform.SplitHostDevice(),
        tirx.transform.MakePackedAPI(),
        tirx.transform.FP8StorageLegalize(),
        tirx.transform.BF16StorageLegalize(),
        *([_without_known_checks] if TRUSTED in func.attrs else []),
        tirx.transform.LowerTVMBuiltin(),
        tirx.transform.LowerIntrin(),
    ]
    mod = tvm.transform.Sequential(before)(tvm.IRModule({KERNEL: func}))
    lowered = tvm.transform.Sequential(after)(flatten_buffers(mod))
    return tvm.IRModule(
        {variable: with_zeros(without_names(part)) for variable, part in lowered.functions.items()}, lowered.attrs
    )


@tirx.transform.prim_func_pass(opt_level=0, name="tvm_tiling.WithoutKnownChecks")
def _without_known_checks(func: tirx.PrimFunc, mod: tvm.IRModule, context: tvm.transform.PassContext) -> tirx.PrimFunc:
    """`func` without checks of its arguments, except comparisons of dynamic extents between tensors."""
    nothing = tirx.Evaluate(tirx.const(0, "int32"))
    return tvm_ffi.structural_map(func, (tirx.AssertStmt, lambda c: c if _compares_sizes(c.condition) else nothing))


def _compares_sizes(condition: tirx.Expr) -> bool:
    """Return whether a condition compares a tensor extent with an expression of sizes."""
    if not isinstance(condition, tirx.EQ):
        return False
    sides = (condition.a, condition.b)
    return any(_is_extent(one) and _holds_size(other) for one, other in (sides, sides[::-1]))


def _is_extent(value: tirx.Expr) -> bool:
    """Return whether a value is an element of a tensor's shape array."""
    value = value.value if isinstance(value, tirx.Cast) else value
    return isinstance(value, Call) and value.op == _STRUCT_GET and int(value.args[2]) == _ARRAY_ELEMENT


def _holds_size(value: tirx.Expr) -> bool:
    found: list[tirx.Var] = []
    tvm_ffi.structural_walk(value, (tirx.Var, found.append))
    return any(str(variable.ty) in ("int32", "int64") for variable in found)


def _has(func: tirx.PrimFunc) -> tuple[bool, bool]:
    """Return whether blocks of `func` allocate buffers, and whether it has conditional statements."""
    allocated: list[tirx.Buffer] = []
    conditions: list[tirx.IfThenElse] = []
    visits = [(s_tir.SBlock, lambda block: allocated.extend(block.alloc_buffers)), (tirx.IfThenElse, conditions.append)]
    tvm_ffi.structural_walk(func.body, visits)
    return bool(allocated), bool(conditions)
