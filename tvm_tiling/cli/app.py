"""The command-line frame: the table of commands and how errors end.

Exit codes: 0, 1 for an error, 2 for wrong usage, 130 after Ctrl-C, 143 after SIGTERM, which keeps as much as Ctrl-C
does. An error is one line, "error: ...", on standard error. --debug shows the Python traceback instead.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import io
import os
import signal
import sys
from collections.abc import Iterable, Sequence
from types import FrameType
from typing import Any, NamedTuple, NoReturn

import typer

from ..errors import TilingError
from ..lean_import import tvm_without_torch
from ..limits import VARIABLE, Limits
from .output import examples
from .threads import restricted_to
from .wording import in_command_terms, usage_sentence


class Command(NamedTuple):
    """A row of the table. `module` is imported when the command is called; its `command` is a function, or a
    typer.Typer that groups several commands. The module may define `Parsing`, the class that parses the arguments, and
    `EXAMPLES`, command lines for the end of the help; the rest of the help is the function's docstring. `help`: the
    line in the list of commands, at most HELP_WIDTH columns, so that it fits a terminal of 80."""

    name: str
    module: str
    help: str


HELP_WIDTH = 66
COMMANDS = (
    Command("explain", "tvm_tiling.cli.explain", "Show the tiling of an operator or a model, with reasons."),
    Command("compile", "tvm_tiling.cli.compile", "Compile a model to a single self-contained file."),
    Command("export", "tvm_tiling.cli.export", "Export a model as a C library without TVM or Python."),
    Command("run", "tvm_tiling.cli.run", "Run a model once."),
    Command("generate", "tvm_tiling.cli.generate", "Generate text or tokens with a language model."),
    Command("report", "tvm_tiling.cli.report", "Report where the time of a model or a simulation goes."),
    Command("bench", "tvm_tiling.cli.bench", "Benchmark a model or operator suites against other libraries."),
    Command("tune", "tvm_tiling.cli.tune", "Search for faster tilings by measuring."),
    Command("simulate", "tvm_tiling.cli.simulate", "Simulate a model or an operator on an accelerator."),
    Command("sweep", "tvm_tiling.cli.sweep", "Sweep hardware parameters of an accelerator."),
    Command("convert", "tvm_tiling.cli.convert", "Convert a Relay model to Relax."),
    Command("db", "tvm_tiling.cli.db", "Manage databases of measured shapes."),
    Command("fleet", "tvm_tiling.cli.fleet", "Manage workers that measure for tune."),
    Command("hardware", "tvm_tiling.cli.hardware", "List, show, detect, check and calibrate hardware descriptions."),
    Command("demo", "tvm_tiling.cli.demo", "Compile and benchmark a small network; no download needed."),
    Command("doctor", "tvm_tiling.cli.doctor", "Check this installation."),
)
HELP = {"help_option_names": ["-h", "--help"]}
COMPLETING = "_TVM_TILING_COMPLETE"  # set by a shell that completes a line; the variables in TYPED hold the line
TYPED = ("COMP_WORDS", "_TYPER_COMPLETE_ARGS")


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line on `arguments`, by default those of the process, and exit."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in words
    words, limits = _without_limits([word for word in words if word != "--debug"])
    before = os.environ.get(VARIABLE)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # an output encoding without µ must not end a command
    if arguments is None:
        signal.signal(signal.SIGTERM, _terminate)
    try:
        try:
            if limits:
                text = ",".join([*filter(None, [before]), *limits])
                Limits().with_text(text)
                _put_limits(text)
            with restricted_to(words), tvm_without_torch():
                command = _with_plain_arguments(typer.main.get_command(_frame(words or _typed())))
                code = command.main(args=words, prog_name="tvm-tiling", standalone_mode=False)
        finally:
            sys.stdout.flush()
            _put_limits(before)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        # Nothing reads the pipe any more, and Python must not flush into it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except Exception as error:
        if hasattr(error, "format_message"):  # of Typer, or of Click below older releases of Typer
            _misused(error)
        if debug:
            raise
        _fail(error)
    sys.exit(code if isinstance(code, int) else 0)


def _misused(error: Exception) -> NoReturn:
    """End with code 2: the help of a group that is called without a command, or one sentence."""
    if type(error).__name__ == "NoArgsIsHelpError":
        print(error.ctx.get_help(), file=sys.stderr)  # type: ignore[attr-defined]
    else:
        print(f"error: {usage_sentence(error, [row.name for row in COMMANDS])}", file=sys.stderr)
    sys.exit(2)


def _without_limits(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the words without --model-limit, and the values of that option."""
    left: list[str] = []
    given: list[str] = []
    at = 0
    while at < len(words):
        if words[at] == "--model-limit" and at + 1 < len(words):
            at += 1
            given.append(words[at])
        elif words[at].startswith("--model-limit="):
            given.append(words[at].removeprefix("--model-limit="))
        else:
            left.append(words[at])
        at += 1
    return left, given


def _put_limits(text: str | None) -> None:
    """Set the limits of this process and its children."""
    if text is None:
        os.environ.pop(VARIABLE, None)
    else:
        os.environ[VARIABLE] = text


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    """Exit through the finally clauses: measurements are kept, child processes and temporary folders go."""
    sys.exit(143)


def _fail(error: Exception) -> NoReturn:
    text = in_command_terms(" ".join(str(error).split()))
    if not isinstance(error, (TilingError, OSError)):
        text = f"unexpected {type(error).__name__}: {text} (a defect of tvm-tiling; --debug shows the traceback)"
    print(f"error: {text}", file=sys.stderr)
    sys.exit(1)


def _frame(words: Sequence[str]) -> typer.Typer:
    """The application. Only the command that `words` call is imported; the others have their name and help alone."""
    app = typer.Typer(
        help="Fast TVM kernels without tuning: loop tilings are chosen analytically.",
        epilog=examples("tvm-tiling demo", "tvm-tiling report model.onnx -o report.html", "tvm-tiling doctor"),
        no_args_is_help=True,
        rich_markup_mode=None,
        context_settings=HELP,
        options_metavar="[OPTIONS]",
        subcommand_metavar="COMMAND [ARGS]...",
    )
    app.callback()(_options)
    called = next((word for word in words if not word.startswith("-")), None)
    for row in COMMANDS:
        module = importlib.import_module(row.module) if row.name == called else None
        command = module.command if module else _not_loaded
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=row.name, help=row.help, short_help=row.help)
            continue
        lines = getattr(module, "EXAMPLES", ())
        app.command(
            row.name,
            help=inspect.getdoc(command) if module else row.help,
            short_help=row.help,
            epilog=examples(*lines) if lines else None,
            cls=getattr(module, "Parsing", None),
        )(command)
    return app


def _with_plain_arguments(command: Any) -> Any:
    """The command, with arguments in usage and help by their metavars alone: MODEL instead of {MODEL} <str>."""
    for own in (command, *(each for row in getattr(command, "commands", {}).values() for each in _and_its_own(row))):
        for parameter in own.params:
            if parameter.param_type_name == "argument":
                name = parameter.metavar or parameter.name.upper()
                parameter.get_usage_pieces = functools.partial(lambda name, _: [name], name)
                parameter.get_help_record = functools.partial(lambda *found: found[:2], name, parameter.help or "")
    return command


def _and_its_own(command: Any) -> Iterable[Any]:
    return command, *getattr(command, "commands", {}).values()


def _typed() -> list[str]:
    """The words after the program's name in a line that a shell completes; [] outside completion."""
    if COMPLETING not in os.environ:
        return []
    return next((os.environ[name] for name in TYPED if name in os.environ), "").split()[1:]


def _not_loaded() -> None:
    """Stand in for a command that is not called."""


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import PackageNotFoundError, version

        try:
            print(version("tvm-tiling"))
        except PackageNotFoundError:
            print("unknown (run from source, not installed)")
        raise typer.Exit


def _options(
    version: bool = typer.Option(False, "--version", callback=_print_version, is_eager=True, help="Print the version."),
    debug: bool = typer.Option(False, "--debug", help="Show the Python traceback of an error."),
    limit: list[str] = typer.Option(  # noqa: B008
        [],
        "--model-limit",
        metavar="NAME=NUMBER",
        help="Raise a limit on what a model may allocate or compute, as in tensor_bytes=16G; repeatable. SECURITY.md "
        "lists the limits.",
    ),
) -> None:
    """Options before the command. `main` handles --debug and --model-limit itself; they are declared for the help."""
