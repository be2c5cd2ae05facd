"""`tvm-tiling report`: where the time of a model, a simulation or a benchmark goes, in the terminal or as HTML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ..accel.program.magic import is_program
from ..errors import HardwareError, ModelFormatError, WorkloadError
from ..measure import Condition, Side, StopRule, paired
from ..plain_text import plain_json
from ..runtime.threads import own_core
from .bench_model import latency_text, on_cpu, timed_model
from .model_options import (
    INPUT,
    THREADS,
    ModelOptions,
    inputs_of,
    is_executable,
    machine_of,
    model_options,
    opened,
    seconds_option,
    target_option,
    unknown_subject,
)
from .operator_text import OPERATORS
from .output import check_outputs, print_json, working
from .table import print_report, print_table

if TYPE_CHECKING:
    from ..model.executable import Executable
    from ..model.profile import Profile
    from ..report.versus import Versus
    from ..tuning.trial import Trial

NO_OPTIONS = ModelOptions()

_JSON = (
    "a JSON file written by `report --json`, `bench MODEL --json`, `bench SUITE -o`, `tune --json` or `tune --log`, "
    "or a Relay module"
)
TRIALS = ("trial", "operator", "predicted", "measured", "best so far", "failure")

EXAMPLES = (
    "tvm-tiling report model.onnx -o report.html",
    "tvm-tiling report model.tar --seconds 0.5 --json > report.json",
    "tvm-tiling report model.tar --trace trace.json",
    "tvm-tiling report report.json -o report.html",
    "tvm-tiling report model.tar --against model.onnx -o comparison.html",
    "tvm-tiling report trials.jsonl -o tuning.html",
    "tvm-tiling report gemm 512 512 512 dtype=int8 --target vta -o report.html",
)


@model_options("logits", "threads", target=target_option("this CPU for models, neartile for operators"))
def command(
    subject: list[str] = typer.Argument(  # noqa: B008
        metavar="MODEL|PROGRAM|OPERATOR|RESULT",
        help="A model or a compiled file, which is timed on this CPU; a program or an operator, as in explain, which "
        "is simulated; or a JSON file written by `report --json`, `bench MODEL --json`, `bench SUITE -o`, "
        "`tune --json` or `tune --log`.",
    ),
    output: str = typer.Option("", "--output", "-o", metavar="FILE", help="Write the full report to this HTML file."),
    threads: int | None = THREADS,
    *,
    options: ModelOptions,
    input_file: str = INPUT,
    against: str = typer.Option(
        "",
        "--against",
        metavar="MODEL|RESULT",
        help="Compare with this baseline: another build of the model, or another result of `report --json` or "
        "`bench MODEL --json`. Models run alternately.",
    ),
    seconds: float = seconds_option("How long to measure."),
    trace: str = typer.Option(
        "", "--trace", metavar="FILE", help="Write a timeline of the threads in a run of the model, for Perfetto."
    ),
    as_json: bool = typer.Option(False, "--json", help="Print all measurements and decisions as JSON."),
) -> None:
    """Time a model, simulate an operator or read a result, and show where the time goes; or compare two of them.

    The HTML report is a single file without external resources.
    """
    name = " ".join(subject)
    check_outputs([output, trace], [name, against, input_file, options.target, *options.calibration])
    machine = machine_of(options.target)
    accelerated = machine is not None and machine.cpu is None
    result = _result(name)
    if trace and (against or result is not None):
        raise WorkloadError("--trace applies to a model on this CPU; for a simulation use tvm-tiling simulate --trace")
    if against:
        _compare(name, against, options, input_file, seconds, output, as_json)
    elif result is not None:
        if options.target or input_file or options.given:
            raise WorkloadError(f"{name} is a result; only --output and --json apply to it")
        _read(name, result, output, as_json)
    elif accelerated or not _for_this_cpu(name):
        if machine is not None and not accelerated:
            raise HardwareError(
                f"--target {options.target} is a CPU; operators and programs are simulated on accelerators"
            )
        if trace:
            raise WorkloadError(
                "--trace applies to a model on this CPU; for a simulation use tvm-tiling simulate --trace"
            )
        of_precision = options.precision != "float32" or options.tolerance is not None
        of_cpu = of_precision or options.weights or options.activations or options.deterministic
        if input_file or of_cpu:
            raise WorkloadError(
                "--input, --precision, --tolerance, --weights, --activations and --deterministic apply to models on "
                "this CPU"
            )
        _simulate(subject, options, output, as_json)
    else:
        _time(name, options, input_file, seconds, output, trace, as_json)


def _result(name: str) -> Mapping[str, Any] | None:
    """The content of a JSON result or a log of trials; None for any other file. Raises
    ModelFormatError for any other JSON file, except for a Relay module."""
    from ..frontend.relay.archive import is_relay
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
    except ValueError as error:
        raise ModelFormatError(f"{name}: {error}; expected {_JSON}") from None
    if is_result(plain):
        return plain
    if is_relay(path.read_bytes()):
        return None
    raise ModelFormatError(f"{name} is not a result; expected {_JSON}")


def _for_this_cpu(name: str) -> bool:
    """Whether the subject is timed on this CPU rather than simulated. ModelFormatError if it is neither file nor
    operator."""
    if not Path(name).is_file():
        if name.split()[:1] and name.split()[0] in OPERATORS:
            return False
        raise ModelFormatError(
            unknown_subject(
                name, f"a model, a program, a result, or an operator that begins with one of {', '.join(OPERATORS)}"
            )
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
    _say_written(output)


def _trial(trial: Trial) -> Sequence[object]:
    from ..tuning.outcome import cost_text

    costs = ["" if cost is None else cost_text(cost, trial.unit) for cost in (trial.predicted, trial.cost, trial.best)]
    return trial.number, trial.operator, *costs, trial.reason or ""


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _simulate(subject: Sequence[str], options: ModelOptions, output: str, as_json: bool) -> None:
    from ..accel.timing.simulate import simulate
    from ..report.page import write_page
    from ..report.simulation_page import simulation_page
    from .simulated import print_simulated, subject_of

    with working("recording the program"):
        found = subject_of(subject, options.target, options)
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


def _time(
    name: str, options: ModelOptions, input_file: str, seconds: float, output: str, trace: str, as_json: bool
) -> None:
    from ..report.save import save_report

    executable = on_cpu(opened(name, options), name)
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
    _say_written(output)


def _profiled(executable: Executable, inputs: Mapping[str, Any], trace: str) -> Profile | None:
    """A profile, also written to the file `trace`; None if the model has none and no file is requested."""
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
    options: ModelOptions,
    input_file: str,
    seconds: float,
    output: str,
    as_json: bool,
) -> None:
    """A model or a result compared with a baseline of the same kind."""
    from ..report.save import save_report
    from ..report.timed_model import FORMAT, timed_from_dict
    from ..report.versus import Versus

    results = [(each, _result(each)) for each in (name, against)]
    if options.target:
        raise WorkloadError(f"--against compares models on this CPU; --target {options.target} does not apply")
    if all(result is not None for _, result in results):
        if options.given or input_file:
            raise WorkloadError(f"{name} is a result; only --against, --output and --json apply to it")
        for each, result in results:
            if result is None or result["format"] != FORMAT:
                raise WorkloadError(f"{each} is not the result of a model; expected what `report --json` wrote")
        subject, baseline = (timed_from_dict(result or {}, each) for each, result in results)
        versus = Versus(subject=subject, baseline=baseline)
    elif any(result is not None for _, result in results):
        raise WorkloadError("--against takes two models or two results, and not one of each")
    else:
        versus = _compared(name, against, options, input_file, seconds)
    if output:
        save_report(versus, output)
    if as_json:
        print_json(versus.to_dict())
    else:
        _print_compared(versus)
    _say_written(output)


def _compared(name: str, against: str, options: ModelOptions, input_file: str, seconds: float) -> Versus:
    """Two builds of a model, run alternately on the same inputs, then each by itself for the times of its operators."""
    from ..report.versus import Versus

    subject, baseline = (opened(each, NO_OPTIONS if is_executable(each) else options) for each in (name, against))
    taken = [(s.input_names, s.input_shapes, s.input_dtypes) for s in (subject.signature, baseline.signature)]
    if taken[0] != taken[1]:
        raise WorkloadError(f"{against} takes other inputs than {name}; expected two builds of one model")
    inputs = inputs_of(subject, input_file)
    ours, theirs = (Side(lambda exe=exe: exe.run(inputs), own_core) for exe in (subject, baseline))  # type: ignore[misc]
    with working("measuring paired runs"):
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
        print(f"{versus.subject.name} compared with {versus.baseline.name}: speedup {versus.speedup:.2f}\n")
    rows = []
    for both in matched(versus.subject.report.operators, versus.baseline.report.operators):
        forms = [record.form or record.kind if record else "" for record in (both.subject, both.baseline)]
        cells = ["" if time is None else f"{time * 1e6:.0f}" for time in (*both.seconds, -both.saved)]
        rows.append((nodes_text(both.record.nodes) or both.record.name, *forms, *cells))
    print_table(("operator", "subject", "baseline", "subject µs", "baseline µs", "difference µs"), rows)


def _say_written(output: str) -> None:
    if output:
        typer.echo(f"report: {output}", err=True)
