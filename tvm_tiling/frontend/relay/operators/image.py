"""Resizing and cropping of images."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tvm import relax, topi

from ...open_parts import upsampled
from ..operands import OpenOperand, Operands, Value, dtype_of, extents_of, numbers, shape_of
from ..tree import RESIZE_MODES, before
from .convolution import check_layout

_SPACE = {1: "W", 2: "HW", 3: "DHW"}
_FUNCTIONS = {1: topi.image.resize1d, 2: topi.image.resize2d, 3: topi.image.resize3d}
# Method names in releases before 0.8.
_METHODS = {"bilinear": "linear", "trilinear": "linear", "bicubic": "cubic"}


def resized(call: Operands, x: relax.Expr, size: list[int], **how: Any) -> relax.Expr:
    """`x` with its spatial dimensions resized to `size`."""
    count, layout = len(size), str(call["layout"])
    check_layout(layout, "NC" + _SPACE[count])
    method = _METHODS.get(how["method"], how["method"])
    if method not in ("linear", "nearest_neighbor", "cubic"):
        raise ValueError(f"method = {method!r}; expected linear, nearest_neighbor, cubic")
    if not all(isinstance(extents_of(x)[layout.index(letter)], int) for letter in _SPACE[count]):
        raise OpenOperand("images of dynamic height or width")
    roi = [float(value) for value in how.pop("roi", None) or []] or [0.0] * (2 * count)
    how["method"] = method
    return call.te(_FUNCTIONS[count], x, roi, size, layout=layout, **how)


def _resize(count: int) -> Callable[[Operands], Value]:
    def convert(call: Operands) -> Value:
        given = call["size"] if call["size"] is not None else call.known(1, "the size").reshape(-1).tolist()
        return resized(
            call,
            call.tensor(0),
            _sized(numbers(given), count),
            roi=call["roi"],
            method=call["method"],
            coordinate_transformation_mode=call["coordinate_transformation_mode"],
            rounding_method=call["rounding_method"],
            bicubic_alpha=call["cubic_alpha"],
            bicubic_exclude=int(call["cubic_exclude"]),
            extrapolation_value=call["extrapolation_value"],
            out_dtype=call["out_dtype"],
        )

    return convert


def _sized(size: list[int], count: int) -> list[int]:
    if len(size) != count:
        raise ValueError(f"size has {len(size)} numbers; expected {count}")
    return size


def _old_resize(call: Operands) -> Value:
    """image.resize of releases up to 0.7, which had align_corners until 0.6 and a named mode in 0.7."""
    mode = call["coordinate_transformation_mode"]
    if mode is None:
        corners = call["align_corners"]
        old = before(call.release, RESIZE_MODES)
        cornered = "asymmetric" if corners is False else "align_corners"
        mode = "half_pixel" if corners is None and not old else cornered
    return resized(
        call,
        call.tensor(0),
        _sized(numbers(call["size"]), 2),
        method=call["method"],
        coordinate_transformation_mode=mode,
        out_dtype=call["out_dtype"],
    )


def _upsampling(call: Operands) -> Value:
    x, layout = call.tensor(0), str(call["layout"])
    count = len(layout) - 2
    check_layout(layout, "NC" + _SPACE.get(count, ""))
    shape = call.extents(x)
    scales = [call[f"scale_{axis.lower()}"] for axis in _SPACE[count]]
    places = [layout.index(axis) for axis in _SPACE[count]]
    if not all(isinstance(shape[place], int) for place in places):
        return _repeated(call, x, dict(zip(places, scales, strict=True)))
    size = [round(shape[layout.index(axis)] * call[f"scale_{axis.lower()}"]) for axis in _SPACE[count]]
    if count == 3:
        mode = call["coordinate_transformation_mode"] if call["method"] == "trilinear" else "asymmetric"
    else:
        mode = "align_corners" if call["align_corners"] else "asymmetric"
    return resized(call, x, size, method=call["method"], coordinate_transformation_mode=mode)


def _repeated(call: Operands, x: relax.Expr, scales: Mapping[int, float]) -> Value:
    """Repeat each pixel of images of dynamic size by integer `scales`."""
    method, whole = call["method"], all(scale == int(scale) and scale >= 1 for scale in scales.values())
    corners = "align_corners" in call.attrs and call["align_corners"]
    if method != "nearest_neighbor" or corners or not whole:
        raise OpenOperand(f"images of dynamic height or width by {method}")
    for axis, scale in scales.items():
        if scale > 1:
            x = call.emit(upsampled(call.builder, call.shapes, x, axis, int(scale), linear=False))
    return x


def _crop_and_resize(call: Operands) -> Value:
    method = str(call["method"])
    x = call.tensor(0)
    images = shape_of(x)[str(call["layout"]).index("N")]
    return call.te(
        topi.image.crop_and_resize,
        x,
        call.tensor(1),
        call.positions(call.tensor(2), images, wraps=False),
        numbers(call["crop_size"]),
        layout=str(call["layout"]),
        method=method,
        extrapolation_value=call["extrapolation_value"],
        out_dtype=call["out_dtype"],
    )


def _grid_sample(call: Operands) -> Value:
    return call.te(
        topi.image.grid_sample,
        call.tensor(0),
        call.tensor(1),
        str(call["method"]),
        str(call["layout"]),
        str(call["padding_mode"]),
        bool(call["align_corners"]),
    )


def _affine_grid(call: Operands) -> Value:
    return call.te(topi.image.affine_grid, call.tensor(0), numbers(call["target_shape"]))


def _dilation2d(call: Operands) -> Value:
    functions = {("NCHW", "IHW"): topi.image.dilation2d_nchw, ("NHWC", "HWI"): topi.image.dilation2d_nhwc}
    layouts = (call["data_layout"], call["kernel_layout"])
    if layouts not in functions:
        raise ValueError(f"layouts {layouts} are not supported; expected {', '.join(map(str, functions))}")
    x = call.tensor(0)
    dtype = call["out_dtype"] or dtype_of(x)
    strides, dilations = call.dims("strides", 2), call.dims("dilations", 2)
    return call.te(functions[layouts], x, call.tensor(1), strides, call.pads(2), dilations, dtype)


OPERATORS: dict[str, Callable[[Operands], Value]] = {
    "dyn.image.resize2d": _resize(2),
    "image.affine_grid": _affine_grid,
    "image.crop_and_resize": _crop_and_resize,
    "image.dilation2d": _dilation2d,
    "image.grid_sample": _grid_sample,
    "image.resize": _old_resize,
    "image.resize1d": _resize(1),
    "image.resize2d": _resize(2),
    "image.resize3d": _resize(3),
    "nn.upsampling": _upsampling,
    "nn.upsampling3d": _upsampling,
}
