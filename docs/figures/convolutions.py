"""Convolutions: the predicted time of each algorithm, layer by layer."""

from __future__ import annotations

from svg import Drawing

import tvm_tiling as tt

CPU = tt.Hardware.load("zen4-server-8c")
SAME = (1, 1, 1, 1)
LAYERS = {
    "7x7 stem, 3 to 64 channels, stride 2": tt.ConvWorkload(
        n=1, h=224, w=224, ci=3, co=64, kh=7, kw=7, stride=(2, 2), padding=(3, 3, 3, 3)
    ),
    "3x3, 64 channels, 56 x 56": tt.ConvWorkload(n=1, h=56, w=56, ci=64, co=64, kh=3, kw=3, padding=SAME),
    "1x1, 64 to 256 channels, 56 x 56": tt.ConvWorkload(n=1, h=56, w=56, ci=64, co=256, kh=1, kw=1),
    "3x3, 512 channels, 7 x 7": tt.ConvWorkload(n=1, h=7, w=7, ci=512, co=512, kh=3, kw=3, padding=SAME),
    "3x3, 128 to 256 channels, stride 2": tt.ConvWorkload(
        n=1, h=28, w=28, ci=128, co=256, kh=3, kw=3, stride=(2, 2), padding=SAME
    ),
    "3x3 depthwise, 32 channels, 112 x 112": tt.ConvWorkload(
        n=1, h=112, w=112, ci=32, co=32, kh=3, kw=3, padding=SAME, groups=32
    ),
}


def forms() -> Drawing:
    """Predicted times of all applicable algorithms, relative to the slowest."""
    drawing = Drawing("Predicted time of each convolution algorithm", 0)
    drawing.text(20, 26, f"Predicted time of each algorithm, {CPU.name}, float32, prepacked weights", kind="title")
    y = 54
    for name, layer in LAYERS.items():
        decision = tt.decide(layer, CPU, weights="packed")
        assert isinstance(decision, tt.ConvTiling)
        priced = [(form, seconds) for form, seconds, _ in decision.candidates if seconds is not None]
        slowest = max(seconds for _, seconds in priced)
        drawing.text(20, y, name)
        y += 8
        for form, seconds in priced:
            drawing.text(130, y + 12, form, "end", "small")
            drawing.rect(140, y + 2, 440 * seconds / slowest, 13, "f0" if form == decision.form else "none")
            drawing.text(146 + 440 * seconds / slowest, y + 13, f"{seconds * 1e6:.0f} µs", kind="small")
            y += 18
        y += 24
    drawing.legend(600, 54, [("f0", "chosen"), ("none", "others")])
    drawing.height = y - 8
    return drawing


PICTURES = {"forms": forms}
