"""`tvm-tiling simulate`: a program, a model or an operator on the simulated accelerator."""

from __future__ import annotations

import typer

from ..accel.simulate import simulate
from .output import print_json, print_table
from .simulated import subject_of


def command(
    subject: list[str] = typer.Argument(  # noqa: B008
        metavar="MODEL|OPERATOR|PROGRAM",
        help="The file of a model or a program, or an operator as in explain: "
        '"gemm M K N", "gemm m=64 k=512 n=64 dtype=int8". The quotation marks may be left out.',
    ),
    hardware: str = typer.Option(
        "", "--hardware", help="A preset or a TOML file; left out: the program's own machine, for others neartile."
    ),
    calibration: list[str] = typer.Option(  # noqa: B008
        [], "--calibration", help="An .npz file with inputs of a float model, to quantise it by; may be repeated."
    ),
    trace: str = typer.Option("", "--trace", help="Write the timeline to this file (Chrome trace format, Perfetto)."),
    output: str = typer.Option("", "--output", "-o", help="Write the report with plots to this HTML file."),
    save: str = typer.Option("", "--save", help="Write the program to this file."),
    as_json: bool = typer.Option(False, "--json", help="Print every figure as JSON."),
) -> None:
    """Time a program on an accelerator, e.g. tvm-tiling simulate gemm 512 512 512 dtype=int8 --hardware vta"""
    found = subject_of(subject, hardware, calibration)
    program = found.on_its_machine()
    report = simulate(program, found.hardware)
    if save:
        program.save(save)
    if trace:
        report.save_trace(trace)
    if output:
        report.save_html(output)
    if as_json:
        print_json(report.to_dict())
        return
    from ..accel.report_text import headline, tables

    print("\n".join(headline(report)))
    for table in tables(report):
        print()
        print_table(table.headings, table.rows)
