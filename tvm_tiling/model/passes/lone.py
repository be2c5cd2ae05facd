"""Isolated convolutions, those without a region of other convolutions around them, and the axis order of each.

Channels last pays off in regions of several convolutions. A convolution that reads a model's input, and whose result
reaches the outputs through element-wise operators only, would need two transpositions of its own;
decide/conv/axis_order.py decides whether they are worthwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import tvm
from tvm import relax

from ...decide.conv.axis_order import FIRST, decide_axis_order
from ...errors import WorkloadError
from ...hardware.description import Hardware
from ...schedule import Options
from ...workload import ConvWorkload
from .dataflow import Expr, array, ints, is_op, shape_of
from .layout import BROADCASTING

# variable -> (result, value) of the bindings that read it
Readers: TypeAlias = dict[relax.Var, list[tuple[relax.Var, Expr]]]


def with_channels_first(mod: tvm.IRModule, hardware: Hardware, options: Options) -> frozenset[relax.Var]:
    """The results of the convolutions in `mod` that keep the axis order of the model's input and output. Empty with
    deterministic=True, because the choice depends on the batch and the number of cores.
    """
    if options.deterministic:
        return frozenset()
    return frozenset(
        variable
        for variable, workload in _lone_convolutions(mod["main"])
        if decide_axis_order(workload, hardware, winograd=options.winograd, tolerance=options.tolerance).layout == FIRST
    )


def _lone_convolutions(func: relax.Function) -> Iterator[tuple[relax.Var, ConvWorkload]]:
    """The 2-D float32 convolutions of static shape that read a parameter and share no region with another operator."""
    bindings = [binding for block in func.body.blocks for binding in block.bindings]
    readers: Readers = {}
    for binding in bindings:
        for variable in relax.analysis.free_vars(binding.value):
            readers.setdefault(variable, []).append((binding.var, binding.value))
    parameters = set(func.params)
    for binding in bindings:
        call = binding.value
        if not is_op(call, "nn.conv2d") or call.args[0] not in parameters or array(call.args[1]) is None:
            continue
        if len(readers.get(call.args[0], ())) > 1 or not _ends(binding.var, readers, parameters):
            continue
        workload = _workload(call)
        if workload is not None:
            yield binding.var, workload


def _ends(start: relax.Var, readers: Readers, parameters: set[relax.Var]) -> bool:
    """Return whether a value reaches the results through element-wise operators on it and parameters only."""
    reached, needed, waiting = {start}, set[relax.Var](), [start]
    while waiting:
        for result, value in readers.get(waiting.pop(), ()):
            if not isinstance(value, relax.Var | relax.Tuple):
                if not isinstance(value, relax.Call) or not isinstance(value.op, tvm.ir.Op):
                    return False
                if value.op.name[6:] not in BROADCASTING:
                    return False
                needed.update(relax.analysis.free_vars(value))
            if result not in reached:
                reached.add(result)
                waiting.append(result)
    return needed <= reached | parameters


def _workload(call: relax.Call) -> ConvWorkload | None:
    """The workload of a convolution; None if it is not one of floats with channels first and a static shape."""
    attrs, data, kernels = call.attrs, shape_of(call.args[0]), shape_of(call.args[1])
    if (str(attrs.data_layout), str(attrs.kernel_layout)) != (FIRST, "OIHW") or data is None or kernels is None:
        return None
    if not all(str(part.ty.dtype) == "float32" for part in (call, *call.args[:2])):
        return None
    padding, (down, across), (high, wide) = ints(attrs.padding), ints(attrs.strides), ints(attrs.dilation)
    top, left, bottom, right = padding if len(padding) == 4 else (*padding, *padding)
    try:
        return ConvWorkload(
            n=data[0],
            ci=data[1],
            h=data[2],
            w=data[3],
            co=kernels[0],
            kh=kernels[2],
            kw=kernels[3],
            stride=(down, across),
            padding=(top, left, bottom, right),
            dilation=(high, wide),
            groups=int(attrs.groups),
            layout=FIRST,
        )
    except WorkloadError:
        return None
