"""Calls of functions that carry a description of what they compute."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tvm import relax

from ..lowering.described import described_function
from ..match.described import Description


def described_call(
    bb: Any, description: Description, values: Mapping[str, relax.Expr], name: str
) -> dict[str, relax.Expr]:
    """Return the results of the function described by `description`, by name; `values` are its inputs. `bb` emits calls
    and accepts functions, like Relax's builder.
    """
    function = bb.add_func(described_function(description, name).without_attr("global_symbol"), name)
    types = [relax.TensorType(shape, dtype) for shape, dtype in description.outputs.values()]
    called = bb.emit(relax.call_tir(function, relax.Tuple([values[each] for each in description.inputs]), types))
    if len(types) == 1:
        return dict.fromkeys(description.outputs, called)
    return {each: bb.emit(relax.TupleGetItem(called, place)) for place, each in enumerate(description.outputs)}
