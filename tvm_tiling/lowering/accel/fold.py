"""Stride-fold with rows moved on the chip: from one buffer to another, or within one buffer from tail to head.

Rows are loaded without padding. "local": each row is copied, with its padding, to the buffer that the engine reads. "in
place": rows are loaded to the tail of that buffer and move to its head, row by row. A row is longer after the move than
before, so it is written at or before the position from which it is read, and never over a later row; its padding is
filled after the move.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T  # noqa: N812

from ...match.access import loads
from .image import IMAGE, Expr, ImageLayout, Operands, block, bordered, on_chip

MOVES_IN_PLACE = ("image", "left", "right", "top", "bottom", "before", "behind")  # blocks of the vector engine
BringImage: TypeAlias = Callable[[tirx.Buffer], None]


def bring_image(place: str, operands: Operands, form: ImageLayout) -> BringImage | None:
    """Return the function that writes the image's buffer if rows are folded on the chip; None if the load does it."""
    if place == "load":
        return None
    bring = _Local(operands, form) if place == "local" else _InPlace(operands, form)
    return bring.write


class _Local:
    """Blocks "raw" and "image": the load, and the copy with padding."""

    def __init__(self, operands: Operands, form: ImageLayout) -> None:
        self.operands, self.form = operands, form

    def write(self, image: tirx.Buffer) -> None:
        f = self.form
        shape = (f.images, *f.image, f.groups, f.ci)
        raw = on_chip("image_as_it_lies", shape, str(image.dtype), str(image.scope()))
        with block("raw", IMAGE, shape) as at:
            T.buffer_store(raw, self.operands.image(*at), at)
        with block("image", IMAGE, (f.images, *f.size, f.groups, f.ci)) as at:
            n, d, h, w, g, c = at
            d, h, w = (v - front for v, front in zip((d, h, w), f.front, strict=True))
            T.buffer_store(image, bordered(raw[n, d, h, w, g, c], list(zip((d, h, w), f.borders, strict=True))), at)


class _InPlace:
    """Blocks "raw" and "image", and those that fill the padding, row by row."""

    def __init__(self, operands: Operands, form: ImageLayout) -> None:
        self.operands, self.form = operands, form

    def write(self, image: tirx.Buffer) -> None:
        zeros = [tirx.IntImm("int32", 0)] * 6
        source = loads(self.operands.image(*zeros))[0].source
        # One block around all of them hides from readers of the image that rows have moved.
        with T.sblock("fold"):
            T.reads(source[tuple(slice(0, extent) for extent in source.shape)])
            T.writes(image[tuple(slice(0, extent) for extent in image.shape)])
            self._raw(image)
            self._rows(image)
            self._fill_rows(image)

    def _place_of_raw(self, n: Expr, d: Expr, h: Expr, w: Expr, g: Expr, c: Expr) -> list[Expr]:
        """Return the position of an element before rows move: the image is at the end of the buffer."""
        f = self.form
        _, high, wide = f.image
        _, rows, columns = f.size
        place = (rows * columns - high * wide) + h * wide + w
        return [n, d + f.front[0], tirx.floordiv(place, columns), tirx.floormod(place, columns), g, c]

    def _raw(self, image: tirx.Buffer) -> None:
        f = self.form
        with block("raw", IMAGE, (f.images, *f.image, f.groups, f.ci)) as at:
            T.buffer_store(image, self.operands.image(*at), self._place_of_raw(*at))

    def _rows(self, image: tirx.Buffer) -> None:
        f = self.form
        _, _, left = f.front
        deep, high, wide = f.image
        with T.grid(f.images, deep, high) as row:
            IRBuilder.name_many(["n", "d", "h"], list(row))
            with block("image", "w g c", (wide, f.groups, f.ci), around=row) as at:
                T.buffer_store(image, image[tuple(self._place_of_raw(*at))], self._inside(at, left))
            behind = f.size[2] - left - wide
            for name, first, count in (("left", 0, left), ("right", left + wide, behind)):
                if count:
                    with block(name, "w g c", (count, f.groups, f.ci), around=row) as at:
                        T.buffer_store(image, tirx.const(0, str(image.dtype)), self._inside(at, first))

    def _fill_rows(self, image: tirx.Buffer) -> None:
        f = self.form
        deep, high, _ = f.image
        front, top, _ = f.front
        planes, rows, columns = f.size
        for name, first, count in (("top", -top, top), ("bottom", high, rows - top - high)):
            if count:
                with block(name, IMAGE, (f.images, deep, count, columns, f.groups, f.ci)) as at:
                    at[2] = at[2] + first
                    T.buffer_store(image, tirx.const(0, str(image.dtype)), self._inside(at, 0))
        for name, first, count in (("before", 0, front), ("behind", front + deep, planes - front - deep)):
            if count:
                with block(name, IMAGE, (f.images, count, rows, columns, f.groups, f.ci)) as at:
                    T.buffer_store(image, tirx.const(0, str(image.dtype)), [at[0], at[1] + first, *at[2:]])

    def _inside(self, at: Sequence[Expr], column: int) -> list[Expr]:
        """Return the position of a point of the image, counted from the image's first row and the buffer's column
        `column`."""
        n, d, h, w, g, c = at
        return [n, d + self.form.front[0], h + self.form.front[1], w + column, g, c]
