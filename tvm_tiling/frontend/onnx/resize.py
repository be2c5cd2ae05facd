"""Resize of ONNX: a weighted sum of a few elements along each axis, with weights known at compile time.

The position of an output pixel in the input, its neighbours and their weights are functions of the index alone, so
indices and weights become constants. TVM's image resize is used where it gives the same result, because it needs no
tables.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax.frontend.onnx import onnx_frontend as tvm_onnx

from ...figures import quantity
from ..interpolation import interpolated
from .tensors import as_inputs, constant, dtype_of, shape_of

# Modes in which TVM's image resize and ONNX agree.
_SHARED_PLACES = ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")
_SHARED_MODES = {"nearest": "nearest_neighbor", "linear": "linear"}


@dataclass(frozen=True)
class Axis:
    """The resize of one axis: extents before and after, the stated scale, and the cropped region."""

    index: int
    before: int
    after: int
    scale: float
    start: float = 0.0
    end: float = 1.0

    @property
    def untouched(self) -> bool:
        return self.before == self.after and self.scale == 1.0 and (self.start, self.end) == (0.0, 1.0)


LATEST = {"coordinate_transformation_mode": "half_pixel", "nearest_mode": "round_prefer_floor"}
OLDER = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}  # before version 11


_WORDS = {
    "coordinate_transformation_mode": (*_SHARED_PLACES, "half_pixel_symmetric", "tf_crop_and_resize"),
    "mode": ("nearest", "linear", "cubic"),
    "nearest_mode": ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"),
    "keep_aspect_ratio_policy": ("stretch", "not_larger", "not_smaller"),
}


@dataclass(frozen=True)
class Form:
    """The node attributes that apply to every axis."""

    place: str
    mode: str
    nearest: str
    policy: str
    antialias: bool
    exclude_outside: bool
    cubic: float
    fill: float

    @classmethod
    def of(cls, attr: Mapping[str, Any], defaults: Mapping[str, str]) -> Form:
        """Create a form from attributes and the defaults of missing ones. Raises ValueError for unknown words."""
        given: dict[str, Any] = {
            name: value.decode() if isinstance(value, bytes) else value for name, value in attr.items()
        }
        for name, accepted in _WORDS.items():
            if given.get(name, accepted[0]) not in accepted:
                raise ValueError(f"{name} is {given[name]!r}; expected one of {', '.join(accepted)}")
        if given.get("antialias", 0) and given.get("mode", "nearest") == "nearest":
            raise ValueError("antialias is set with mode 'nearest'; expected mode 'linear' or 'cubic'")
        return cls(
            place=given.get("coordinate_transformation_mode", defaults["coordinate_transformation_mode"]),
            mode=given.get("mode", "nearest"),
            nearest=given.get("nearest_mode", defaults["nearest_mode"]),
            policy=given.get("keep_aspect_ratio_policy", "stretch"),
            antialias=bool(given.get("antialias", 0)),
            exclude_outside=bool(given.get("exclude_outside", 0)),
            cubic=given.get("cubic_coeff_a", -0.75),
            fill=given.get("extrapolation_value", 0.0),
        )

    @property
    def repeats(self) -> bool:
        """Return whether integer factors repeat elements, or pick elements between the centres of two."""
        halves = self.place in ("half_pixel", "pytorch_half_pixel")
        if self.antialias or self.exclude_outside:
            return False
        if self.mode == "linear":
            return halves
        by_floor = (self.place == "asymmetric" and self.nearest == "floor") or (
            halves and self.nearest == "round_prefer_floor"
        )
        return self.mode == "nearest" and by_floor


def resized(bb: relax.BlockBuilder, inputs: list, attr: dict[str, Any], defaults: Mapping[str, str]) -> relax.Expr:
    """The Resize of `inputs` (data, roi, scales, sizes; the last three are constants); `defaults` are those of the
    attributes."""
    data, form = inputs[0], Form.of(attr, defaults)
    shape = shape_of(data)
    roi, scales, sizes = (_values(value) for value in inputs[1:4])
    axes = [int(axis) % len(shape) for axis in attr.get("axes", range(len(shape)))]
    walked = _walks(shape, axes, scales, sizes, form.policy)
    if form.place == "tf_crop_and_resize" and roi is not None:
        count = len(axes)
        check_roi(roi.tolist(), count)
        walked = [replace(axis, start=float(roi[at]), end=float(roi[at + count])) for at, axis in enumerate(walked)]
    return along(bb, data, [axis for axis in walked if not axis.untouched], form)


def along(bb: relax.BlockBuilder, data: relax.Expr, changed: Sequence[Axis], form: Form) -> relax.Expr:
    """Resize `data` along some axes; the others may be dynamic."""
    extents = list(data.ty.shape)
    if _tvm_agrees(extents, changed, form):
        return relax.op.image.resize2d(
            data,
            size=relax.ShapeExpr([next((a.after for a in changed if a.index == i), extents[i]) for i in (2, 3)]),
            roi=[0.0] * 4,
            layout="NCHW",
            method=_SHARED_MODES[form.mode],
            coordinate_transformation_mode=form.place,
            rounding_method=form.nearest,
        )
    result, outside = data, []
    for axis in changed:
        places = _places(axis, form.place)
        if form.place == "tf_crop_and_resize":
            outside.append((axis, (places < 0) | (places > axis.before - 1)))
        if form.mode == "nearest":
            picked = np.clip(_nearest(places, form.nearest), 0, axis.before - 1).astype("int64")
            result = bb.emit(relax.op.take(result, relax.const(picked), axis=axis.index))
            continue
        indices, weights = _taps(axis, places, form)
        result = _weighted(bb, result, axis.index, indices, weights)
    for axis, mask in outside:
        lined = mask.reshape([-1 if place == axis.index else 1 for place in range(len(extents))])
        fill = relax.const(form.fill, result.ty.dtype)
        result = bb.emit(relax.op.where(relax.const(lined), fill, result))
    return result


def _values(value: relax.Expr | None) -> np.ndarray | None:
    """The values of a constant input; None if it is absent or empty."""
    if value is None:
        return None
    if isinstance(value, relax.ShapeExpr):
        return np.array([int(extent) for extent in value])
    if not isinstance(value, tvm.ir.GenericConst):
        raise ValueError("scales, sizes and roi have to be known at compile time")
    return value.value.numpy() if value.value.numpy().size else None


def scaled(extent: int, scale: float) -> int:
    """The extent of an axis after scaling: the float32 product, as in onnxruntime, rounded down."""
    return math.floor(np.float32(scale) * np.float32(extent))


def _walks(
    shape: list[int], axes: list[int], scales: np.ndarray | None, sizes: np.ndarray | None, policy: str
) -> list[Axis]:
    if sizes is None:
        if scales is None:
            raise ValueError("neither scales nor sizes are given")
        check_scales(scales.tolist(), len(axes))
        return [
            Axis(axis, shape[axis], scaled(shape[axis], scale), float(scale))
            for axis, scale in zip(axes, scales, strict=True)
        ]
    wanted, before = sizes.tolist(), [shape[axis] for axis in axes]
    check_sizes(wanted, before)
    # An axis without elements keeps none.
    ratios = [size / extent if extent else 1.0 for size, extent in zip(wanted, before, strict=True)]
    if policy == "stretch":
        return [Axis(*axis) for axis in zip(axes, before, wanted, ratios, strict=True)]
    ratio = min(ratios) if policy == "not_larger" else max(ratios)
    return [Axis(axis, shape[axis], math.floor(ratio * shape[axis] + 0.5), ratio) for axis in axes]


def check_roi(roi: Sequence[float], axes: int) -> None:
    """Raise ValueError unless a region of interest has a start and an end for each axis."""
    if len(roi) != 2 * axes:
        raise ValueError(f"roi has {quantity(len(roi), 'number')}; expected {2 * axes}, two for each axis")


def check_scales(scales: Sequence[float], axes: int) -> None:
    """Raise ValueError unless there is a finite scale above 0 for each axis."""
    if len(scales) != axes:
        raise ValueError(
            f"{quantity(len(scales), 'scale')} for {quantity(axes, 'axis', 'axes')}; expected one for each"
        )
    for scale in scales:
        if not 0 < scale < math.inf:
            raise ValueError(f"a scale is {scale:g}; expected a finite number above 0")


def check_sizes(sizes: Sequence[Any], extents: Sequence[Any]) -> None:
    """Raise ValueError unless there is a size from 1 for each axis, and 0 for axes without elements; dynamic sizes and
    extents are not checked."""
    if len(sizes) != len(extents):
        raise ValueError(
            f"{quantity(len(sizes), 'size')} for {quantity(len(extents), 'axis', 'axes')}; expected one for each"
        )
    for size, extent in zip(sizes, extents, strict=True):
        if isinstance(size, int) and (size < 0 or (size == 0 and extent != 0)):
            raise ValueError(f"a size is {size}; expected numbers from 1")
        if isinstance(size, int) and size and isinstance(extent, int) and extent == 0:
            raise ValueError(f"an axis without elements cannot be resized to {size}; expected 0")


def _tvm_agrees(extents: Sequence[Any], changed: Sequence[Axis], form: Form) -> bool:
    plain = not form.antialias and not form.exclude_outside
    images = len(extents) == 4 and {axis.index for axis in changed} <= {2, 3}
    if not images or not all(isinstance(extent, int | tvm.tirx.IntImm) for extent in extents[2:]):
        return False
    exact = all(abs(axis.scale * axis.before - axis.after) < 1e-4 for axis in changed)
    # With aligned corners TVM divides by the distance from the first to the last pixel, even for axes that do not
    # change.
    after = {axis: int(extents[axis]) for axis in (2, 3)} | {axis.index: axis.after for axis in changed}
    apart = form.place != "align_corners" or all(extent > 1 for extent in after.values())
    # In float32, TVM may pick the wrong one of two equally near pixels unless scales are powers of two.
    told = form.place != "align_corners" and all(math.frexp(axis.scale)[0] == 0.5 for axis in changed)
    return (
        plain
        and exact
        and apart
        and (form.mode != "nearest" or told)
        and form.place in _SHARED_PLACES
        and form.mode in _SHARED_MODES
    )


def _places(axis: Axis, mode: str) -> np.ndarray:
    """Positions of the output elements in the input, in float64 as in the reference implementation."""
    x = np.arange(axis.after, dtype="float64")
    length = axis.scale * axis.before
    if mode == "align_corners":
        return np.zeros_like(x) if length == 1 else x * (axis.before - 1) / (length - 1)
    if mode == "asymmetric":
        return x / axis.scale
    if mode == "tf_crop_and_resize":
        span = (axis.end - axis.start) * (axis.before - 1)
        first = axis.start * (axis.before - 1)
        return np.full_like(x, first + span / 2) if length == 1 else first + x * span / (length - 1)
    if mode == "pytorch_half_pixel" and length == 1:
        return np.zeros_like(x)
    half = (x + 0.5) / axis.scale - 0.5
    if mode == "half_pixel_symmetric":
        return axis.before / 2 * (1 - axis.after / length) + half
    if mode in ("half_pixel", "pytorch_half_pixel"):
        return half
    raise ValueError(f"coordinate_transformation_mode {mode!r} is not supported")


def _nearest(places: np.ndarray, mode: str) -> np.ndarray:
    rounded: dict[str, Callable[[np.ndarray], np.ndarray]] = {
        "round_prefer_floor": lambda x: np.ceil(x - 0.5),
        "round_prefer_ceil": lambda x: np.floor(x + 0.5),
        "floor": np.floor,
        "ceil": np.ceil,
    }
    if mode not in rounded:
        raise ValueError(f"nearest_mode {mode!r} is not supported")
    return rounded[mode](places)


def _taps(axis: Axis, places: np.ndarray, form: Form) -> tuple[np.ndarray, np.ndarray]:
    """Indices and weights of the input elements that contribute to each output element: both [after, taps]."""
    reach = {"linear": 1, "cubic": 2}.get(form.mode)
    if reach is None:
        raise ValueError(f"mode {form.mode!r} is not supported")
    # Antialiasing widens the kernel by the factor by which the axis shrinks.
    narrow = min(axis.scale, 1.0) if form.antialias else 1.0
    first = math.floor(-reach / narrow) + 1
    steps = np.arange(first, 2 - first)
    left = np.ceil(places) - 1
    distance = np.abs(steps - (places - left)[:, None]) * narrow
    weights = np.clip(1 - distance, 0, 1) if form.mode == "linear" else _cubic(distance, form.cubic)
    if narrow != 1.0:
        weights /= weights.sum(axis=1, keepdims=True)
    indices = left[:, None].astype("int64") + steps
    if form.exclude_outside:
        weights = np.where((indices < 0) | (indices >= axis.before), 0, weights)
        weights /= weights.sum(axis=1, keepdims=True)
    return np.clip(indices, 0, axis.before - 1), weights


def _cubic(distance: np.ndarray, a: float) -> np.ndarray:
    """Keys' cubic kernel with the coefficient `a`."""
    near = ((a + 2) * distance - (a + 3)) * distance**2 + 1
    far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    return np.where(distance <= 1, near, np.where(distance < 2, far, 0.0))


def _weighted(
    bb: relax.BlockBuilder, data: relax.Expr, axis: int, indices: np.ndarray, weights: np.ndarray
) -> relax.Expr:
    """Weighted sums of the elements of `data` along `axis`."""
    table = relax.const(weights.astype(dtype_of(data)), dtype_of(data))
    return interpolated(bb, data, axis, relax.const(indices, "int64"), table)


# ---- older forms, whose attributes are inputs in the forms that TVM knows -------------------------------------------


class Resize(tvm_onnx.Resize):
    """Resize from version 10 on: the scales are the second input, and the position of a pixel is its index times the
    scale.

    Later versions name the axes, and may keep the aspect ratio.
    """

    @classmethod
    def _impl_v10(cls, bb, inputs, attr, params):
        return resized(bb, as_inputs(inputs[0], None, inputs[1]), attr, OLDER)

    @classmethod
    def _impl_v11(cls, bb, inputs, attr, params):
        return resized(bb, inputs, attr, LATEST)

    @classmethod
    def _impl_v18(cls, bb, inputs, attr, params):
        return resized(bb, inputs, attr, LATEST)


class Upsample(tvm_onnx.OnnxOpConverter):
    """Upsample 7 and 9: a Resize whose scales are an attribute, later an input."""

    @classmethod
    def _impl_v7(cls, bb, inputs, attr, params):
        return Resize._impl_v10(bb, as_inputs(inputs[0], constant(attr["scales"], "float32")), attr, params)

    @classmethod
    def _impl_v9(cls, bb, inputs, attr, params):
        return Resize._impl_v10(bb, inputs, attr, params)


CONVERTERS: dict[str, Any] = {"Resize": Resize, "Upsample": Upsample}
