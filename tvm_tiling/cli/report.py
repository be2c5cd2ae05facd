"""`tvm-tiling report`: where the time of a model, a simulation or a comparison goes, in a terminal or as a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ..accel.program.magic import is_program
from ..atomic_file import refuse_unwritable
from ..errors import HardwareError, ModelFormatError, WorkloadError
from ..hardware import Hardware
from ..measure import Condition, Side, StopRule, paired
from ..plain_text import plain_json
from ..runtime.threads import own_core
from .bench_model import latency_text, timed_model
from .model_options import (
    BATCH,
    CALIBRATION,
    DIM,
    INPUT,
    PRECISION,
    SHAPE,
    TOLERANCE,
    WEIGHT_BLOCK,
    WEIGHTS,
    ModelOptions,
    inputs_of,
    is_executable,
    opened,
    presets,
)
from .operator_text import OPERATORS
from .output import print_json, working
from .table import print_report, print_table

if TYPE_CHECKING:
    from ..model.executable import Executable
    from ..model.profile import Profile
    from ..report.versus import Versus
    from ..tuning.trial import Trial

NO_OPTIONS = ModelOptions()

TRIALS = ("trial", "operator", "predicted", "measured", "best so far", "failed because")

EXAMPLES = (
    "tvm-tiling report model.onnx -o report.html",
    "tvm-tiling report model.tar --seconds 0.5 --json > report.json",
    "tvm-tiling report model.tar --trace trace.json",
    "tvm-tiling report report.json -o report.html",
    "tvm-tiling report model.tar --against model.onnx -o comparison.html",
    "tvm-tiling report trials.jsonl -o tuning.html",
    "tvm-tiling report gemm 512 512 512 dtype=int8 --hardware vta -o report.html",
)


def command(
    subject: list[str] = typer.Argument(  # noqa: B008
        metavar="MODEL|PROGRAM|OPERATOR|RESULT",
        help="A model file, or what `tvm-tiling compile` wrote, which is timed; a program, or an operator as in "
        "explain, which is simulated; or JSON that `report --json`, `bench MODEL --json`, `bench SUITE -o`, "
        "`tune --json` or `tune --log` wrote.",
    ),
    output: str = typer.Option("", "--output", "-o", help="Write the whole report to this HTML file."),
    against: str = typer.Option(
        "",
        "--against",
        metavar="MODEL|RESULT",
        help="Compare with this baseline: of a model, another build of it, which is run in turns; of a result, another "
        "one that `report --json` or `bench MODEL --json` wrote.",
    ),
    hardware: str = typer.Option(
        "",
        "--hardware",
        autocompletion=presets,
        help="An accelerator to simulate on: a preset or a TOML file; left out: a model runs here.",
    ),
    input_file: str = INPUT,
    batch: str = BATCH,
    dim: list[str] = DIM,
    shape: list[str] = SHAPE,
    precision: str = PRECISION,
    calibration: list[str] = CALIBRATION,
    tolerance: float | None = TOLERANCE,
    weights: str = WEIGHTS,
    block: int = WEIGHT_BLOCK,
    seconds: float = typer.Option(2.0, min=0.01, help="How long to measure."),
    trace: str = typer.Option(
        "", "--trace", help="Of a model on this CPU: write what each thread did to this file, for Perfetto."
    ),
    as_json: bool = typer.Option(False, "--json", help="Print every figure and decision as JSON."),
) -> None:
    """Time a model, simulate an operator or read a result, and show where the time goes; or compare two of them.

    The HTML file needs nothing else: open it in a browser, send it, print it.
    """
    for path in filter(None, (output, trace)):
        refuse_unwritable(path)
    name = " ".join(subject)
    sizes = ModelOptions(batch, dim, shape, precision, () if hardware else calibration, tolerance, weights, block)
    result = _result(name)
    if trace and (against or result is not None):
        raise WorkloadError("--trace is of a model that runs here; simulate has a --trace of its own")
    if against:
        _compare(name, against, sizes, hardware, input_file, seconds, output, as_json)
    elif result is not None:
        if hardware or calibration or input_file or sizes.given:
            raise WorkloadError(f"{name} is a result; of the options it takes --output and --json alone")
        _read(name, result, output, as_json)
    elif hardware or not _for_this_cpu(name):
        if trace:
            raise WorkloadError("--trace is of a model that runs here; simulate has a --trace of its own")
        if input_file or weights or sizes.of_precision:
            raise WorkloadError("--input, --precision, --tolerance and --weights are for models that run here")
        _simulate(subject, hardware, ModelOptions(batch, dim, shape, calibration=calibration), output, as_json)
    else:
        _time(name, sizes, input_file, seconds, output, trace, as_json)


def _result(name: str) -> Mapping[str, Any] | None:
    """What a JSON file, or a log of trials, holds if it is a result; None of any other file."""
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
        return None  # whoever reads models says what is wrong
    return plain if is_result(plain) else None


def _for_this_cpu(name: str) -> bool:
    """Whether something is timed here; otherwise it is simulated. ModelFormatError if it is neither."""
    if not Path(name).is_file():
        if name.split()[:1] and name.split()[0] in OPERATORS:
            raise HardwareError(f"{name}: an operator is simulated; accepted: --hardware, an accelerator")
        raise ModelFormatError(
            f"{name!r} is neither a file nor an operator; accepted: a model, a program, a result, or an operator that "
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
    from ..report import suite_result, versus
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
    elif result["format"] == versus.FORMAT:
        _print_compared(versus.versus_from_dict(result, name))
    else:
        print_report(timed_from_dict(result, name).report)
    _told(output)


def _trial(trial: Trial) -> Sequence[object]:
    from ..tuning.outcome import cost_text

    costs = ["" if cost is None else cost_text(cost, trial.unit) for cost in (trial.predicted, trial.cost, trial.best)]
    return trial.number, trial.operator, *costs, trial.reason or ""


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _simulate(subject: Sequence[str], hardware: str, model: ModelOptions, output: str, as_json: bool) -> None:
    from ..accel.timing.simulate import simulate
    from ..report.page import write_page
    from ..report.simulation_page import simulation_page
    from .simulated import print_simulated, subject_of

    if hardware and Hardware.load(hardware).cpu is not None:
        raise HardwareError(f"--hardware {hardware} is a CPU; accepted: an accelerator, or none: this CPU")
    with working("recording"):
        found = subject_of(subject, hardware, model)
        program = found.on_its_machine()
    with working("simulating"):
        report = simulate(program, found.hardware, check=found.is_file)
    if output:
        write_page(output, simulation_page(report, found.name, found.decision(), found.left, nodes=found.nodes))
    if as_json:
        print_json(report.to_dict())
    else:
        print_simulated(report, found)
    _told(output)


def _time(
    name: str, sizes: ModelOptions, input_file: str, seconds: float, output: str, trace: str, as_json: bool
) -> None:
    from ..report.save import save_report

    executable = opened(name, sizes)
    inputs = inputs_of(executable, input_file)
    with working("measuring"):
        measured = executable.benchmark(seconds=seconds, **inputs)
    report = executable.report()
    profile = _profiled(executable, inputs, trace) if output or as_json or trace else None
    if output or as_json:
        whole = timed_model(name, report, measured, profile=profile)
        if output:
            save_report(whole, output)
        if as_json:
            print_json(whole.to_dict())
    if not as_json:
        print(f"{name}: {latency_text(measured)}\n")
        print_report(report)
    _told(output)


def _profiled(executable: Executable, inputs: Mapping[str, Any], trace: str) -> Profile | None:
    """A profile, also written to the file `trace`; None where the model has none and no file is asked for."""
    try:
        with working("profiling"):
            profile = executable.profile(**inputs)
    except WorkloadError:
        if trace:
            raise
        return None
    if trace:
        profile.save(trace)
        typer.echo(f"trace: {trace}", err=True)
    return profile


def _compare(
    name: str,
    against: str,
    sizes: ModelOptions,
    hardware: str,
    input_file: str,
    seconds: float,
    output: str,
    as_json: bool,
) -> None:
    """A model or a result beside a baseline of the same kind."""
    from ..report.save import save_report
    from ..report.timed_model import FORMAT, timed_from_dict
    from ..report.versus import Versus

    results = [(each, _result(each)) for each in (name, against)]
    if hardware:
        raise WorkloadError("--against compares models on this CPU; --hardware does not apply")
    if all(result is not None for _, result in results):
        if sizes.given or input_file:
            raise WorkloadError(f"{name} is a result; of the options it takes --against, --output and --json alone")
        for each, result in results:
            if result is None or result["format"] != FORMAT:
                raise WorkloadError(f"{each} is not the result of a model; expected what `report --json` wrote")
        subject, baseline = (timed_from_dict(result or {}, each) for each, result in results)
        versus = Versus(subject=subject, baseline=baseline)
    elif any(result is not None for _, result in results):
        raise WorkloadError("--against takes two models or two results, and not one of each")
    else:
        versus = _compared(name, against, sizes, input_file, seconds)
    if output:
        save_report(versus, output)
    if as_json:
        print_json(versus.to_dict())
    else:
        _print_compared(versus)
    _told(output)


def _compared(name: str, against: str, sizes: ModelOptions, input_file: str, seconds: float) -> Versus:
    """Two builds of a model, run in turns on the same inputs, then each by itself for its operators."""
    from ..report.versus import Versus

    subject, baseline = (opened(each, NO_OPTIONS if is_executable(each) else sizes) for each in (name, against))
    taken = [(s.input_names, s.input_shapes, s.input_dtypes) for s in (subject.signature, baseline.signature)]
    if taken[0] != taken[1]:
        raise WorkloadError(f"{against} takes other inputs than {name}; expected two builds of one model")
    inputs = inputs_of(subject, input_file)
    ours, theirs = (Side(lambda exe=exe: exe.run(**inputs), own_core) for exe in (subject, baseline))  # type: ignore[misc]
    with working("measuring in turns"):
        pair = paired(ours, theirs, StopRule(most_seconds=seconds), Condition())
    if pair.reason:
        raise WorkloadError(f"the runs failed: {pair.reason}")
    timed = []
    with working("measuring operators"):
        for each, executable in ((name, subject), (against, baseline)):
            measured = executable.benchmark(seconds=seconds, **inputs)
            timed.append((each, executable.report(), measured))
    first, second = (timed_model(*each) for each in timed)
    return Versus(subject=first, baseline=second, paired=pair.to_dict())


def _print_compared(versus: Versus) -> None:
    from ..model.report import nodes_text
    from ..other_work import doubt
    from ..report.versus import matched

    for side, timed in (("subject", versus.subject), ("baseline", versus.baseline)):
        if said := doubt(timed.report.others):
            print(f"{side}: {said}")
    if versus.speedup is not None:
        print(f"{versus.subject.name} beside {versus.baseline.name}: speedup {versus.speedup:.2f}\n")
    rows = []
    for both in matched(versus.subject.report.operators, versus.baseline.report.operators):
        forms = [record.form or record.kind if record else "" for record in (both.subject, both.baseline)]
        cells = ["" if time is None else f"{time * 1e6:.0f}" for time in (*both.seconds, -both.saved)]
        rows.append((nodes_text(both.record.nodes) or both.record.name, *forms, *cells))
    print_table(("operator", "subject", "baseline", "subject us", "baseline us", "difference us"), rows)


def _told(output: str) -> None:
    if output:
        typer.echo(f"report: {output}", err=True)
