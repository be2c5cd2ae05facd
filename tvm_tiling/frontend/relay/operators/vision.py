"""Operators of detection networks: anchor boxes, box selection, and region pooling."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from tvm import topi
from tvm.relax import op

from ..operands import Operands, Value, bounded, constant, dtype_of, numbers, shape_of


def _multibox_prior(call: Operands) -> Value:
    """Anchor boxes: a constant, because they depend only on the shape."""
    height, width = shape_of(call.tensor(0))[2:4]
    sizes, ratios, steps, offsets = (
        [float(value) for value in call[name]] for name in ("sizes", "ratios", "steps", "offsets")
    )
    if not sizes or not ratios or len(steps) != 2 or len(offsets) != 2 or min(ratios) <= 0:
        raise ValueError(
            "sizes, ratios, steps or offsets are invalid; expected at least one size and ratio above 0, two "
            "steps, two offsets"
        )
    step_h = steps[0] if steps[0] > 0 else 1.0 / height
    step_w = steps[1] if steps[1] > 0 else 1.0 / width
    shapes = [(size * height / width / 2, size / 2) for size in sizes]
    shapes += [(sizes[0] * height / width * np.sqrt(ratio) / 2, sizes[0] / np.sqrt(ratio) / 2) for ratio in ratios[1:]]
    bounded(height * width * len(shapes), "boxes")
    half = np.array(shapes)  # [anchors, (width, height)]
    y, x = np.meshgrid(
        (np.arange(height) + offsets[0]) * step_h, (np.arange(width) + offsets[1]) * step_w, indexing="ij"
    )
    centre = np.stack([x, y], axis=-1)[:, :, None, :]
    boxes = np.concatenate([centre - half, centre + half], axis=-1).reshape(1, -1, 4)
    return constant(np.clip(boxes, 0, 1) if call["clip"] else boxes, "float32")


def _scalar(call: Operands, name: str, place: int) -> float:
    """A number that was an attribute until 0.7 and is an operand since 0.8."""
    if len(call.args) > place:
        return float(call.known(place, name).item())
    return float(call[name] if call[name] is not None else 0.0)


def _get_valid_counts(call: Operands) -> Value:
    threshold = _scalar(call, "score_threshold", 1)
    data, (kind, score) = call.tensor(0), _columns(call)
    return call.te(topi.vision.get_valid_counts, data, threshold, kind, score)


def _columns(call: Operands) -> tuple[int, int]:
    """The columns of a box that contain its class, -1 for none, and its score."""
    count = shape_of(call.tensor(0))[-1]
    kind = int(call["id_index"])
    return (kind if kind < 0 else call.within(kind, count, "id_index")), call.within(
        call["score_index"], count, "score_index"
    )


def _non_max_suppression(call: Operands) -> Value:
    data, valid = call.tensor(0), call.tensor(1)
    indices = call.tensor(2) if len(call.args) > 2 else None
    if indices is None:
        batch, boxes = shape_of(data)[:2]
        bounded(batch * boxes, "boxes")
        indices = constant(np.tile(np.arange(boxes), (batch, 1)), "int32")
    kind, score = _columns(call)
    if shape_of(indices) != shape_of(data)[:2] or shape_of(valid) != shape_of(data)[:1]:
        raise ValueError(
            f"boxes {shape_of(data)}, counts {shape_of(valid)} and indices {shape_of(indices)} do not match; "
            "expected (n, boxes, numbers), (n,), (n, boxes)"
        )
    valid = call.positions(valid, shape_of(data)[1] + 1, wraps=False, called="count of boxes")
    most = _scalar(call, "max_output_size", 3)
    overlap = _scalar(call, "iou_threshold", 4)
    return call.te(
        topi.vision.non_max_suppression,
        data,
        valid,
        indices,
        max_output_size=int(most),
        iou_threshold=overlap,
        force_suppress=bool(call["force_suppress"]),
        top_k=int(call["top_k"]),
        coord_start=call.within(call["coord_start"], shape_of(data)[2] - 3, "coord_start"),
        score_index=score,
        id_index=kind,
        return_indices=bool(call["return_indices"]),
        invalid_to_bottom=bool(call["invalid_to_bottom"]),
    )


def _pooled(call: Operands) -> tuple[int, int]:
    size = numbers(call["pooled_size"])
    return (size[0], size[-1])


def _regions(call: Operands) -> Value:
    """The regions with a range-checked image index in their first column."""
    regions = call.tensor(1)
    images = shape_of(call.tensor(0))[str(call["layout"]).index("N")]
    number = call.emit(op.astype(call.emit(op.strided_slice(regions, [1], [0], [1])), "int64"))
    checked = call.emit(op.astype(call.positions(number, images, wraps=False), dtype_of(regions)))
    return call.emit(op.concat([checked, call.emit(op.strided_slice(regions, [1], [1], [5]))], 1))


def _roi_align(call: Operands) -> Value:
    return call.te(
        topi.vision.roi_align,
        call.tensor(0),
        _regions(call),
        _pooled(call),
        call["spatial_scale"],
        mode=str(call["mode"]),
        sample_ratio=int(call["sample_ratio"]),
        layout=str(call["layout"]),
    )


def _roi_pool(call: Operands) -> Value:
    return call.te(
        topi.vision.roi_pool,
        call.tensor(0),
        _regions(call),
        _pooled(call),
        call["spatial_scale"],
        layout=str(call["layout"]),
    )


OPERATORS: dict[str, Callable[[Operands], Value]] = {
    "vision.get_valid_counts": _get_valid_counts,
    "vision.multibox_prior": _multibox_prior,
    "vision.non_max_suppression": _non_max_suppression,
    "vision.roi_align": _roi_align,
    "vision.roi_pool": _roi_pool,
}
