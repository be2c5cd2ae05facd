"""W-fold and stride-fold: their effect on a row, and on utilisation."""

from __future__ import annotations

import dataclasses

from svg import Drawing, plot

import tvm_tiling as tt

MACHINE = tt.Hardware.load("wfold16")
SHADES = ("f0", "f1", "f2", "f3")


def layer(channels: int, columns: int = 112, stride: int = 1) -> tt.ConvWorkload:
    """A convolution of 3 x 3 taps on int8."""
    return tt.ConvWorkload(
        n=1, h=columns, w=columns, ci=channels, co=64, kh=3, kw=3, stride=(stride,) * 2, padding=(1,) * 4, dtype="int8"
    )


def fold_row() -> Drawing:
    """A row of the engine filled with the padded channels of one pixel, and with those of its neighbours."""
    channels = 12
    decision = tt.decide(layer(channels), MACHINE)
    assert isinstance(decision, tt.ConvTiling) and MACHINE.w_fold is not None
    row, pci, ws = MACHINE.w_fold.row_bytes, decision.pci, decision.ws
    assert pci and ws
    cell, left = 9.4, 80
    drawing = Drawing("A row of the engine without W-fold and with it", 190)
    drawing.text(left, 28, f"A {row}-byte row, {channels} int8 channels", kind="title")
    for place, (name, step, pixels) in enumerate((("padded", row, 1), ("folded", pci, ws))):
        y = 52 + 56 * place
        drawing.text(left - 8, y + 19, name, "end")
        for pixel in range(pixels):
            drawing.rect(left + cell * step * pixel, y, cell * step, 28, "none")
            for channel in range(channels):
                x = left + cell * (step * pixel + channel)
                drawing.rect(x, y, cell - 1, 28, SHADES[pixel % len(SHADES)])
    used = channels * ws / row
    drawing.text(
        left, 170, f"{channels / row:.0%} and {used:.0%} of the row is data: granularity {pci}, {ws} neighbours."
    )
    return drawing


def fold_utilisation() -> Drawing:
    """Utilisation against the number of channels, folded and padded."""
    assert MACHINE.w_fold is not None
    whole = dataclasses.replace(MACHINE.w_fold, least_granularity=MACHINE.w_fold.row_bytes)
    padded = dataclasses.replace(MACHINE, w_fold=whole)
    picture = plot("Utilisation against input channels, folded and padded", (1, 128), (0, 1.05))
    picture.ticks(
        [(c, str(c)) for c in (1, *range(16, 129, 16))], [(share / 4, f"{25 * share}%") for share in range(5)]
    )
    picture.names("input channels of a 3x3 convolution, 112 x 112 pixels, int8", "utilisation")
    for machine, kind in ((padded, "l1"), (MACHINE, "l0")):
        points = [(channels, tt.decide(layer(channels), machine)) for channels in range(1, 129)]
        picture.line([(channels, decision.utilisation) for channels, decision in points], kind)
    picture.drawing.legend(480, 210, [("f0", "W-fold, granularity as decided"), ("f1", "channels padded to a row")])
    return picture.drawing


def stride_fold() -> Drawing:
    """The columns of a row, folded by a stride of two."""
    fold = tt.StrideFold(layer(3, columns=8, stride=2))
    drawing = Drawing("Stride-fold: neighbouring columns become channels", 0)
    cell, left = 34, 130
    drawing.text(20, 28, "A row of 8 columns, stride 2: the same memory in another shape", kind="title")
    for name, columns, merged, y in (("columns", 8, 1, 54), ("folded by 2", 4, 2, 118)):
        drawing.text(left - 10, y + 23, name, "end")
        for column in range(columns):
            for part in range(merged):
                shade = SHADES[(column * merged + part) % 2]
                x = left + column * merged * (cell + 8) + part * cell
                drawing.rect(x, y, cell, 36, shade)
                drawing.text(x + cell / 2, y + 23, str(column * merged + part), "middle", "light")
    folded = fold.folded()
    words = f"{folded.w} columns of {folded.ci} channels, kernel of {folded.kw} columns, stride {folded.stride[1]}"
    drawing.text(left, 186, words)
    drawing.height = 206
    return drawing


PICTURES = {"fold-row": fold_row, "fold-utilisation": fold_utilisation, "stride-fold": stride_fold}
