"""`tvm-tiling simulate`: simulate a program, a model or an operator on an accelerator."""

from __future__ import annotations

import typer

from ..accel.timing.simulate import simulate
from ..report.page import write_page
from ..report.simulation_page import simulation_page
from .model_options import (
    ACCELERATOR,
    BATCH,
    CALIBRATION,
    DIM,
    GOALS,
    PREFER,
    SHAPE,
    THREADS,
    ModelOptions,
    choose,
    target_option,
)
from .output import check_outputs, print_json, working
from .simulated import print_simulated, subject_of
from .table import print_table

EXAMPLES = (
    "tvm-tiling simulate gemm 512 512 512 dtype=int8 --target vta",
    "tvm-tiling simulate conv n=1 h=56 w=56 ci=64 co=64 kh=3 kw=3 padding=1 dtype=int8 --target wfold16",
    "tvm-tiling simulate lstm steps=100 input_size=256 hidden_size=512 batch=4 --target rnn16k",
    "tvm-tiling simulate gemm 512 512 512 dtype=int8 --target dla3 --map",
    "tvm-tiling simulate gemm 512 512 512 dtype=int8 --target dla3 --prefer energy",
    "tvm-tiling simulate model.onnx --calibration x.npz --target vta -o report.html",
)


def command(
    subject: list[str] = typer.Argument(  # noqa: B008
        metavar="MODEL|OPERATOR|PROGRAM",
        help="A model, a program, or an operator as in explain; recurrent layers are computed in int16.",
    ),
    target: str = target_option("that of the program, rnn16k for recurrent layers, else neartile", ACCELERATOR),
    batch: str = BATCH,
    dim: list[str] = DIM,
    shape: list[str] = SHAPE,
    threads: int | None = THREADS,
    calibration: list[str] = CALIBRATION,
    prefer: str = PREFER,
    mapped: bool = typer.Option(False, "--map", help="Print the loop mapping of an operator and its data movement."),
    trace: str = typer.Option("", "--trace", metavar="FILE", help="Write the timeline for Perfetto."),
    output: str = typer.Option("", "--output", "-o", metavar="FILE", help="Write an HTML report."),
    save: str = typer.Option("", "--save", metavar="FILE", help="Write the program."),
    check: bool = typer.Option(True, "--check/--no-check", help="Refuse a program file that has hazards."),
    as_json: bool = typer.Option(False, "--json", help="Print all results as JSON."),
) -> None:
    """Simulate a program, an operator or a model on an accelerator: cycles, stalls, data movement and energy."""
    check_outputs([trace, output, save], [" ".join(subject), target, *calibration])
    choose("--prefer", prefer, GOALS)
    model = ModelOptions(batch=batch, dim=dim, shape=shape, calibration=calibration)
    with working("recording the program"):
        found = subject_of(subject, target, model, prefer)
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
