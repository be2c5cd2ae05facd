"""ATen operators that TVM's importer lacks, as Relax compositions, by the names that torch.export gives them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from tvm import relax, topi
from tvm.relax import op
from tvm.relax.frontend.torch.exported_program_translator import ExportedProgramImporter as Importer

from . import recurrent as torch_recurrent

Converter = Callable[[torch.fx.Node, Importer], relax.Var]


def _arguments(node: torch.fx.Node, importer: Importer, *defaults: Any) -> list:
    """The arguments of a node, tensors as Relax expressions, `defaults` for those left out at the end."""
    given = list(importer.retrieve_args(node))
    return given + list(defaults[len(given) - 1 :])


def _clamp(node: torch.fx.Node, importer: Importer) -> relax.Var:
    """Bounds of the data's own type, and only those given: an infinite one is no integer."""
    data, low, high = _arguments(node, importer, None, None)
    builder, dtype = importer.block_builder, str(data.ty.dtype)
    if "float" not in dtype and any(isinstance(bound, float) for bound in (low, high)):
        data, dtype = builder.emit(op.astype(data, "float32")), "float32"
    if low is not None:
        data = builder.emit(op.maximum(data, relax.const(low, dtype)))
    return data if high is None else builder.emit(op.minimum(data, relax.const(high, dtype)))


def _extreme(reduce: Callable) -> Converter:
    def convert(node: torch.fx.Node, importer: Importer) -> relax.Var:
        data, axes, keep = _arguments(node, importer, [], False)
        axes = [axes] if isinstance(axes, int) else list(axes)
        return importer.block_builder.emit(reduce(data, axes or None, keep))

    return convert


def _any(node: torch.fx.Node, importer: Importer) -> relax.Var:
    (data,) = _arguments(node, importer)
    builder = importer.block_builder
    count = builder.emit(op.sum(op.astype(builder.emit(op.astype(data, "bool")), "int32")))
    return builder.emit(op.greater(count, relax.const(0, "int32")))


def _extreme_along(reduce: Callable, place: Callable) -> Converter:
    def convert(node: torch.fx.Node, importer: Importer) -> relax.Var:
        data, axis, keep = _arguments(node, importer, 0, False)
        builder = importer.block_builder
        places = builder.emit(place(data, axis, keep))
        return builder.emit(relax.Tuple([builder.emit(reduce(data, axis, keep)), places]))

    return convert


def _product_along(node: torch.fx.Node, importer: Importer) -> relax.Var:
    data, axis, keep = _arguments(node, importer, 0, False)
    return importer.block_builder.emit(op.prod(data, axis, keep))


def _divide(node: torch.fx.Node, importer: Importer) -> relax.Var:
    data, divisor = _arguments(node, importer)[:2]
    builder, mode = importer.block_builder, node.kwargs.get("rounding_mode")
    if "float" not in str(data.ty.dtype) and (mode is None or isinstance(divisor, float)):
        data = builder.emit(op.astype(data, "float32"))
    by = relax.const(divisor, str(data.ty.dtype))
    if mode == "floor":
        return builder.emit(op.floor_divide(data, by))
    result = builder.emit(op.divide(data, by))
    return builder.emit(op.trunc(result)) if mode == "trunc" and "float" in str(data.ty.dtype) else result


def _padded(pad: Callable, *more: Any) -> Converter:
    """Padding by copies of what is inside; torch names the last axis first."""

    def convert(node: torch.fx.Node, importer: Importer) -> relax.Var:
        data, widths = _arguments(node, importer)
        rank = len(data.ty.shape)
        before, after = [0] * rank, [0] * rank
        for place in range(len(widths) // 2):
            before[rank - 1 - place], after[rank - 1 - place] = widths[2 * place], widths[2 * place + 1]
        return importer.block_builder.emit_te(pad, data, before, after, *more)

    return convert


def _scatter_add(node: torch.fx.Node, importer: Importer) -> relax.Var:
    data, axis, index, source = _arguments(node, importer)
    return importer.block_builder.emit(op.scatter_elements(data, index, source, axis, "add"))


def _select_scatter(node: torch.fx.Node, importer: Importer) -> relax.Var:
    data, source, axis, index = _arguments(node, importer)
    builder = importer.block_builder
    extent = int(data.ty.shape[axis])
    shape: Sequence[int] = [extent if place == axis % len(data.ty.shape) else 1 for place in range(len(data.ty.shape))]
    places = torch.arange(extent).reshape(tuple(shape)) == index % extent
    return builder.emit(op.where(relax.const(places.numpy()), op.expand_dims(source, axis), data))


def _variance(node: torch.fx.Node, importer: Importer) -> relax.Var:
    data, axes, unbiased, keep = _arguments(node, importer, None, True, False)
    builder = importer.block_builder
    axes = list(axes) if axes else list(range(len(data.ty.shape)))
    count = 1
    for axis in axes:
        count *= int(data.ty.shape[axis])
    result = builder.emit(op.variance(data, axes, keep))
    factor = relax.const(count / max(count - 1, 1), str(data.ty.dtype))
    return builder.emit(op.multiply(result, factor)) if unbiased else result


CONVERTERS: dict[str, Converter] = {
    "amax.default": _extreme(op.max),
    "amin.default": _extreme(op.min),
    "any.default": _any,
    "clamp.default": _clamp,
    "div.Scalar_mode": _divide,
    "max.dim": _extreme_along(op.max, op.argmax),
    "min.dim": _extreme_along(op.min, op.argmin),
    "prod.dim_int": _product_along,
    "scatter_add.default": _scatter_add,
    "select_scatter.default": _select_scatter,
    "var.dim": _variance,
    **torch_recurrent.CONVERTERS,
    **{f"reflection_pad{rank}d.default": _padded(topi.nn.mirror_pad, "REFLECT") for rank in (1, 2, 3)},
    **{f"replication_pad{rank}d.default": _padded(topi.nn.replicate_pad) for rank in (1, 2, 3)},
}
