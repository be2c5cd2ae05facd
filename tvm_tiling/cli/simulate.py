"""`tvm-tiling simulate`: a program, a model or an operator on the simulated accelerator."""

from __future__ import annotations

import typer

from ..accel.timing.simulate import simulate
from ..atomic_file import refuse_unwritable
from ..report.page import write_page
from ..report.simulation_page import simulation_page
from .model_options import BATCH, DIM, PREFER, SHAPE, ModelOptions, presets
from .output import print_json, working
from .simulated import print_simulated, subject_of
from .table import print_table

EXAMPLES = (
    "tvm-tiling simulate gemm 512 512 512 dtype=int8 --hardware vta",
    "tvm-tiling simulate conv n=1 h=56 w=56 ci=64 co=64 kh=3 kw=3 padding=1 dtype=int8 --hardware wfold16",
    "tvm-tiling simulate lstm steps=100 input_size=256 hidden_size=512 batch=4 --hardware rnn16k",
    "tvm-tiling simulate gemm 512 512 512 dtype=int8 --hardware dla3 --map",
    "tvm-tiling simulate gemm 512 512 512 dtype=int8 --hardware dla3 --prefer energy",
    "tvm-tiling simulate model.onnx --calibration x.npz --hardware vta -o report.html",
)


def command(
    subject: list[str] = typer.Argument(  # noqa: B008
        metavar="MODEL|OPERATOR|PROGRAM",
        help="The file of a model or a program, or an operator as in explain; recurrent layers in int16.",
    ),
    hardware: str = typer.Option(
        "",
        "--hardware",
        autocompletion=presets,
        help="A preset or a TOML file; left out: the program's own, rnn16k for recurrent layers, else neartile.",
    ),
    batch: str = BATCH,
    dim: list[str] = DIM,
    shape: list[str] = SHAPE,
    calibration: list[str] = typer.Option(  # noqa: B008
        [], "--calibration", help="An .npz file of inputs to quantise a float model by; may be repeated."
    ),
    prefer: str = PREFER,
    mapped: bool = typer.Option(
        False, "--map", help="Print an operator's loops on the machine, what they move, and how often operands come."
    ),
    trace: str = typer.Option("", "--trace", help="Write the timeline to this file, for Perfetto."),
    output: str = typer.Option("", "--output", "-o", help="Write the report with plots to this HTML file."),
    save: str = typer.Option("", "--save", help="Write the program to this file."),
    check: bool = typer.Option(True, "--check/--no-check", help="Refuse a program's file that has hazards."),
    as_json: bool = typer.Option(False, "--json", help="Print every figure as JSON."),
) -> None:
    """Time a program, an operator or a model on an accelerator."""
    for path in filter(None, (trace, output, save)):
        refuse_unwritable(path)
    with working("recording"):
        found = subject_of(subject, hardware, ModelOptions(batch, dim, shape, calibration=calibration), prefer)
        program, layer = found.mapped() if mapped else (found.on_its_machine(), None)
    with working("simulating"):
        report = simulate(program, found.hardware, check=check and found.is_file)
    if save:
        program.save(save)
    if trace:
        report.save_trace(trace)
    if output:
        write_page(output, simulation_page(report, found.name, found.decision(), found.left, layer, found.nodes))
    if as_json:
        further = {} if found.left is None else {"on_cpu": dict(found.left)}
        print_json({**report.to_dict(), **further, **({"map": layer.to_dict()} if layer else {})})
    else:
        print_simulated(report, found)
        if layer is not None:
            print(f"\n{layer.text()}\n")
            print_table(layer.table().headings, layer.table().rows)
