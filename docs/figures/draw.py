"""Draws the figures of docs/ from decisions and simulations: python docs/figures/draw.py [DIRECTORY]

`make figures` writes them next to this file. They depend on presets and formulas only, not on the machine.
"""

from __future__ import annotations

import sys
from pathlib import Path

import boundary
import convolutions
import folding
import levels
import overview
import products
import recurrent

PICTURES = {
    **overview.PICTURES,
    **products.PICTURES,
    **convolutions.PICTURES,
    **folding.PICTURES,
    **recurrent.PICTURES,
    **levels.PICTURES,
    **boundary.PICTURES,
}


def draw(folder: Path) -> list[Path]:
    """Write every figure into `folder`, and return the files."""
    files = []
    for name, picture in PICTURES.items():
        files.append(folder / f"{name}.svg")
        picture().save(files[-1])
    return files


if __name__ == "__main__":
    for file in draw(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent):
        print(file)
