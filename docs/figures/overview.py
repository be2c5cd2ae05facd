"""The front page: what goes in, one decision with its candidates, what comes out."""

from __future__ import annotations

from svg import WIDTH, Drawing

import tvm_tiling as tt

NAMES = {"winograd": "Winograd", "direct": "direct", "wfold": "W-fold"}


def box(drawing: Drawing, x: float, y: float, width: float, lines: tuple[str, str], kind: str) -> None:
    """A coloured box with a title and a line below it."""
    drawing.rect(x, y, width, 62, f"{kind} pale")
    drawing.text(x + width / 2, y + 26, lines[0], "middle", "big title")
    drawing.text(x + width / 2, y + 48, lines[1], "middle")


def arrow(drawing: Drawing, x: float, top: float, bottom: float) -> None:
    """A vertical arrow; upwards where `bottom` is above `top`."""
    back = -8 if bottom > top else 8
    drawing.path([(x, top), (x, bottom + back)], "axis")
    drawing.path([(x - 5, bottom + back), (x + 5, bottom + back), (x, bottom)], "f4")


def overview() -> Drawing:
    """Inputs, a decision on a preset, and the two targets."""
    machine = tt.Hardware.load("zen4-server-8c")
    layer = tt.ConvWorkload(n=1, h=56, w=56, ci=64, co=64, kh=3, kw=3, padding=(1, 1, 1, 1))
    product = tt.decide(tt.GemmWorkload(m=1024, k=1024, n=1024), machine)
    priced = [c for c in tt.decide(layer, machine).candidates if c.predicted_seconds]
    drawing = Drawing("From a model and a hardware description to a decision, and from there to two targets", 480)
    wide = (WIDTH - 80) / 3
    inputs = (
        (("Model", "ONNX, PyTorch, TFLite, GGUF"), "f0"),
        (("TVM operator", "TE, TIR, Relax"), "f0"),
        (("Hardware", "this CPU, a preset, a TOML file"), "f0"),
    )
    for column, (lines, kind) in enumerate(inputs):
        x = 20 + column * (wide + 20)
        box(drawing, x, 16, wide, lines, kind)
        arrow(drawing, x + wide / 2, 78, 108)
    drawing.rect(20, 108, WIDTH - 40, 202, "f1 pale")
    drawing.text(WIDTH / 2, 136, "Analytical decision: milliseconds, no trial runs", "middle", "big title")
    drawing.text(40, 166, "3x3 convolution, 64 channels, 56 x 56", kind="title")
    slowest = max(candidate.predicted_seconds or 0.0 for candidate in priced)
    for row, candidate in enumerate(priced):
        seconds, y = candidate.predicted_seconds or 0.0, 180 + 34 * row
        drawing.text(112, y + 17, NAMES[candidate.form], "end")
        drawing.rect(122, y, 190 * seconds / slowest, 24, "f2" if row == 0 else "f4")
        drawing.text(130 + 190 * seconds / slowest, y + 17, f"{seconds * 1e6:.0f} µs")
    drawing.text(40, 298, "Least predicted time wins (preset zen4-server-8c).")
    drawing.text(420, 166, "GEMM, 1024 x 1024 x 1024: tiling", kind="title")
    shares = (("rows", product.threads_m), ("columns", product.threads_n), ("K", product.threads_k))
    axis, count = max(shares, key=lambda share: share[1])
    facts = (
        f"register tile {product.mr} x {product.nr}",
        f"block of B {product.partition_k} x {product.partition_n}, in L2",
        f"{count} cores share the {axis}",
        f"predicted utilisation {product.utilisation:.0%}",
    )
    for row, words in enumerate(facts):
        drawing.text(420, 192 + 25 * row, words)
    drawing.text(420, 298, "Every choice is recorded with its reason.")
    arrow(drawing, WIDTH / 2, 310, 336)
    drawing.rect(20, 336, WIDTH - 40, 36, "f0 pale")
    drawing.text(WIDTH / 2, 360, "TVM schedule", "middle", "big title")
    half = (WIDTH - 60) / 2
    outputs = (
        ("CPU code through LLVM", "run, profile, save, export to C"),
        ("Simulated accelerator", "exact results, cycles, traffic, energy"),
    )
    for column, lines in enumerate(outputs):
        x = 20 + column * (half + 20)
        arrow(drawing, x + half / 2, 372, 402)
        box(drawing, x, 402, half, lines, "f2")
    return drawing


PICTURES = {"overview": overview}
