"""`tvm-tiling report`: where the time of a model, a simulation or a benchmark goes, in the terminal or as HTML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ..accel.program.magic import is_program
from ..atomic_file import refuse_unwritable
from ..errors import HardwareError, ModelFormatError, WorkloadError
from ..plain_text import plain_json
from .bench_model import latency_text, on_cpu, timed_model
from .model_options import (
    ACTIVATIONS,
    BATCH,
    CALIBRATION,
    DIM,
    INPUT,
    PRECISION,
    SHAPE,
    THREADS,
    TOLERANCE,
    WEIGHT_BLOCK,
    WEIGHTS,
    ModelOptions,
    inputs_of,
    is_executable,
    machine_of,
    opened,
    seconds_option,
    target_option,
)
from .operator_text import OPERATORS
from .output import print_json, working
from .table import print_report, print_table

if TYPE_CHECKING:
    from ..tuning.trial import Trial

TRIALS = ("trial", "operator", "predicted", "measured", "best so far", "failure")

EXAMPLES = (
    "tvm-tiling report model.onnx -o report.html",
    "tvm-tiling report model.tar --seconds 0.5 --json > report.json",
    "tvm-tiling report report.json -o report.html",
    "tvm-tiling report trials.jsonl -o tuning.html",
    "tvm-tiling report gemm 512 512 512 dtype=int8 --target vta -o report.html",
)


def command(
    subject: list[str] = typer.Argument(  # noqa: B008
        metavar="MODEL|PROGRAM|OPERATOR|RESULT",
        help="A model or a compiled file, which is timed on this CPU; a program or an operator, as in explain, which "
        "is simulated; or a JSON file written by `report --json`, `bench MODEL --json`, `bench SUITE -o`, "
        "`tune --json` or `tune --log`.",
    ),
    output: str = typer.Option("", "--output", "-o", metavar="FILE", help="Write the full report to this HTML file."),
    target: str = target_option("this CPU for models, neartile for operators"),
    input_file: str = INPUT,
    batch: str = BATCH,
    dim: list[str] = DIM,
    shape: list[str] = SHAPE,
    threads: int | None = THREADS,
    precision: str = PRECISION,
    calibration: list[str] = CALIBRATION,
    tolerance: float | None = TOLERANCE,
    weights: str = WEIGHTS,
    block: int = WEIGHT_BLOCK,
    activations: str = ACTIVATIONS,
    seconds: float = seconds_option("How long to measure."),
    as_json: bool = typer.Option(False, "--json", help="Print all measurements and decisions as JSON."),
) -> None:
    """Time a model, simulate an operator or read a result, and show where the time goes.

    The HTML report is a single file without external resources.
    """
    if output:
        refuse_unwritable(output)
    name = " ".join(subject)
    machine = machine_of(target)
    accelerated = machine is not None and machine.cpu is None
    sizes = ModelOptions(
        batch, dim, shape, precision, calibration, tolerance, weights, block, activations, target=target
    )
    result = _result(name)
    if result is not None:
        if target or input_file or sizes.given:
            raise WorkloadError(f"{name} is a result; only --output and --json apply to it")
        _read(name, result, output, as_json)
    elif accelerated or not _for_this_cpu(name):
        if machine is not None and not accelerated:
            raise HardwareError(f"--target {target} is a CPU; operators and programs are simulated on accelerators")
        if input_file or weights or activations or precision != "float32" or tolerance is not None:
            raise WorkloadError(
                "--input, --precision, --tolerance, --weights and --activations apply to models on this CPU"
            )
        _simulate(subject, target, sizes, output, as_json)
    else:
        _time(name, sizes, input_file, seconds, output, as_json)


def _result(name: str) -> Mapping[str, Any] | None:
    """The content of a JSON result or a log of trials; None for any other file."""
    from ..report.save import is_result
    from ..tuning.trial import FORMAT, MOST_HEADER, VERSION, is_log, read_trials

    path = Path(name)
    if not path.is_file():
        return None
    with path.open("rb") as file:
        if is_log(file.readline(MOST_HEADER)):
            return {"format": FORMAT, "version": VERSION, "log": [trial.to_dict() for trial in read_trials(path)]}
    if path.suffix != ".json":
        return None
    try:
        plain = plain_json(path.read_bytes())
    except ValueError:
        return None  # the reader of models reports the error
    return plain if is_result(plain) else None


def _for_this_cpu(name: str) -> bool:
    """Whether the subject is timed on this CPU rather than simulated. ModelFormatError if it is neither file nor
    operator."""
    if not Path(name).is_file():
        if name.split()[:1] and name.split()[0] in OPERATORS:
            return False
        raise ModelFormatError(
            f"'{name}' is neither a file nor an operator; expected a model, a program, a result, or an operator that "
            f"begins with one of {', '.join(OPERATORS)}"
        )
    if is_program(name) or Path(name).suffix == ".vsim":
        return False
    if not is_executable(name):
        return True
    from ..model.accel.executable import AcceleratedExecutable
    from ..model.load import load

    return not isinstance(load(name), AcceleratedExecutable)


def _read(name: str, result: Mapping[str, Any], output: str, as_json: bool) -> None:
    from ..report import suite_result
    from ..report.page import write_page
    from ..report.save import result_page
    from ..report.timed_model import timed_from_dict
    from ..report.tuning_page import FORMATS, operators_of

    page = result_page(result, name)
    if output:
        write_page(output, page)
    if as_json:
        print_json(result)
    elif result["format"] == suite_result.FORMAT:
        rows = [
            (s["group"], s["rows"], _ratio(s["geometric_mean"]), _ratio(s["worst"]), s["worst_case"])
            for s in result["summary"]
        ]
        print_table(("group", "cases", "speedup", "worst", "worst case"), rows)
    elif result["format"] in FORMATS:
        print_table(TRIALS, [_trial(trial) for own in operators_of(result) for trial in own["log"]])
    else:
        print_report(timed_from_dict(result, name).report)
    _say_written(output)


def _trial(trial: Trial) -> Sequence[object]:
    from ..tuning.outcome import cost_text

    costs = ["" if cost is None else cost_text(cost, trial.unit) for cost in (trial.predicted, trial.cost, trial.best)]
    return trial.number, trial.operator, *costs, trial.reason or ""


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _simulate(subject: Sequence[str], target: str, model: ModelOptions, output: str, as_json: bool) -> None:
    from ..accel.timing.simulate import simulate
    from ..report.page import write_page
    from ..report.simulation_page import simulation_page
    from .simulated import print_simulated, subject_of

    with working("recording the program"):
        found = subject_of(subject, target, model)
        program = found.on_its_machine()
    with working("simulating"):
        report = simulate(program, found.hardware, check=found.is_file)
    if output:
        write_page(output, simulation_page(report, found.name, found.decision(), found.left, nodes=found.nodes))
    if as_json:
        print_json(report.to_dict())
    else:
        print_simulated(report, found)
    _say_written(output)


def _time(name: str, sizes: ModelOptions, input_file: str, seconds: float, output: str, as_json: bool) -> None:
    from ..report.save import save_report

    executable = on_cpu(opened(name, sizes), name)
    inputs = inputs_of(executable, input_file)
    with working("measuring"):
        measured = executable.benchmark(seconds=seconds, **inputs)
    report = executable.report()
    if output or as_json:
        whole = timed_model(name, report, measured)
        if output:
            save_report(whole, output)
        if as_json:
            print_json(whole.to_dict())
    if not as_json:
        print(f"{name}: {latency_text(measured)}\n")
        print_report(report)
    _say_written(output)


def _say_written(output: str) -> None:
    if output:
        typer.echo(f"report: {output}", err=True)
