"""Makes the pictures of reports in this directory: python docs/pictures/make.py

Needs Chromium and the onnx package. The demo's network is measured on this machine: figures differ from run to run, and
are meaningful on an idle machine only.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import tvm_tiling as tt
from tvm_tiling.cli.bench_model import timed_model
from tvm_tiling.cli.demo_resnet import resnet_bytes
from tvm_tiling.cli.model_options import inputs_of
from tvm_tiling.cli.simulated import subject_of
from tvm_tiling.report.simulation_page import simulation_page

FOLDER = Path(__file__).parent
sys.path.insert(0, str(FOLDER.parents[1] / "tests" / "report"))
from browser import Browser  # noqa: E402

LAYER = "conv n=1 h=56 w=56 ci=64 co=64 kh=3 kw=3 padding=1 dtype=int8"


def model_report(path: Path) -> None:
    """The page of the demo's network: the least disturbed of three measurements."""
    executable = tt.compile(resnet_bytes(), cache=False)
    inputs = inputs_of(executable, "")
    found = [(executable.benchmark(seconds=2.0, **inputs), executable.report()) for _ in range(3)]
    measured, report = min(found, key=lambda pair: pair[0].median)
    name = "ResNet of 18 layers on 128 × 128"
    tt.save_report(timed_model(name, report, measured), path)


def simulation_report(path: Path) -> None:
    """The page of a convolution on the preset vta."""
    found = subject_of(LAYER.split(), "vta")
    report = tt.simulate(found.on_its_machine())
    path.write_text(simulation_page(report, LAYER, found.decision()), encoding="utf-8")


def main() -> None:
    """Make both pages and take pictures of them."""
    with tempfile.TemporaryDirectory() as folder:
        model, simulation = Path(folder) / "model.html", Path(folder) / "simulation.html"
        model_report(model)  # before the browser starts, which would take part of the processor
        simulation_report(simulation)
        with Browser() as browser:
            for name, page, width, dark, height in (
                ("report.png", model, 1000, False, 1000),
                ("report-phone-dark.png", model, 390, True, 800),
                ("simulation.png", simulation, 1000, False, 900),
            ):
                picture = browser.show(page, width=width, dark=dark).picture(height)
                (FOLDER / name).write_bytes(picture)
                print(f"{name}: {len(picture) // 1024} KiB")


if __name__ == "__main__":
    main()
