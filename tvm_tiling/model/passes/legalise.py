"""Legalisation of Relax operators to TIR: TVM's LegalizeOps, except for float extremes, positions given by tensors, and
integer divisions and shifts.

In every resulting function, and in those written by a frontend, accesses are within their buffers, integer arithmetic
is defined for all values, and empty reductions have a result.
"""

from __future__ import annotations

import tvm
import tvm_ffi
from tvm import relax, tirx

from ...errors import ModelFormatError
from ...lowering import size_order  # noqa: F401 - for TVM
from ...lowering.bounded import bounded
from ...lowering.integers import defined
from ...lowering.no_terms import started
from ...lowering.softmax_weight import with_softmax_weights
from ...refusal import refused
from . import boxes, extremes, functions, integers, positions, scans, selections

_LEGALISED = {
    **extremes.LEGALISED,
    **functions.LEGALISED,
    **positions.LEGALISED,
    **boxes.LEGALISED,
    **integers.LEGALISED,
    **scans.LEGALISED,
    **selections.LEGALISED,
}


def legalised(mod: tvm.IRModule) -> tvm.IRModule:
    """`mod`, after refuse_unproved() has checked its shapes, with its operators as PrimFuncs. Raises ModelFormatError
    for constants that are invalid positions or divisors."""
    try:
        positions.refuse_impossible(mod)
        mod = relax.transform.LegalizeOps(_LEGALISED)(mod)
    except ModelFormatError as error:
        raise refused(error) from None
    updated = tvm.IRModule(dict(mod.functions), attrs=mod.attrs)
    for variable, func in mod.functions.items():
        if isinstance(func, tirx.PrimFunc):
            exact = variable.name_hint.startswith(extremes.ROW_SUMS)
            plain = tvm_ffi.structural_map(func, (tirx.AttrStmt, _without_scope))
            kept = defined(started(with_softmax_weights(plain) if exact else extremes.with_nan_kept(plain)))
            checked = kept.attrs is not None and positions.CHECKED_HERE in kept.attrs
            updated.update_func(variable, kept if checked else bounded(kept))
    return updated


def _without_scope(statement: tirx.AttrStmt) -> tirx.Stmt:
    """Remove the mark that TVM's builder adds to a sequence of statements, for which its code generator prints a
    warning."""
    return statement.body if statement.attr_key == "pragma_scope" else statement
