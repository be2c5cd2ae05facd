"""The frame of the command line: the table of commands, and how errors end.

Exit codes: 0, 1 for an error (one line "error: ..." on standard error), 2 for wrong usage, 130 when interrupted,
143 when ended by SIGTERM, which keeps as much as Ctrl-C does. A Python traceback is shown with --debug only.
"""

from __future__ import annotations

import importlib
import inspect
import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import NamedTuple, NoReturn

import typer

from ..errors import TilingError
from ..lean_import import tvm_without_torch
from ..limits import VARIABLE, Limits
from .output import examples


class Command(NamedTuple):
    """A row of the table. `module` is loaded when the command is called; its `command` is a function, or a typer.Typer
    that groups several commands. A function's words are parsed by the module's `Parsing` where it has one, and its help
    is its docstring and, at the end, the module's `EXAMPLES`, command lines. `help`: what the list of commands says, in
    HELP_WIDTH columns, so that 80 of them show it whole."""

    name: str
    module: str
    help: str


HELP_WIDTH = 66
COMMANDS = (
    Command("explain", "tvm_tiling.cli.explain", "Show how an operator or a model is cut, and why."),
    Command("compile", "tvm_tiling.cli.compile", "Compile a model to one file that runs without it."),
    Command("export", "tvm_tiling.cli.export", "Write a model as a C library without TVM and Python."),
    Command("run", "tvm_tiling.cli.run", "Run a model, or a compiled one, on inputs from a file."),
    Command("generate", "tvm_tiling.cli.generate", "Write tokens behind a prompt by a language model."),
    Command("report", "tvm_tiling.cli.report", "Show where time goes: a model, a simulation, a comparison."),
    Command("bench", "tvm_tiling.cli.bench", "Compare speed with other libraries, on a model or suites."),
    Command("tune", "tvm_tiling.cli.tune", "Search for faster cuts of a model or an operator by measuring."),
    Command("simulate", "tvm_tiling.cli.simulate", "Time a model, an operator or a program on an accelerator."),
    Command("sweep", "tvm_tiling.cli.sweep", "Time it while one field of the accelerator varies."),
    Command("convert", "tvm_tiling.cli.convert", "Turn a Relay model into a Relax one."),
    Command("db", "tvm_tiling.cli.db", "List, match, generate, move and check measured shapes."),
    Command("fleet", "tvm_tiling.cli.fleet", "Start workers that measure for tune."),
    Command("hardware", "tvm_tiling.cli.hardware", "List, show, detect and check machine descriptions."),
    Command("demo", "tvm_tiling.cli.demo", "Compile and run a network and products beside others."),
    Command("doctor", "tvm_tiling.cli.doctor", "Check this installation, and say how to fix it."),
)
COMPLETING = "_TVM_TILING_COMPLETE"  # set by a shell that asks what may come next; what was typed is in the others
TYPED = ("COMP_WORDS", "_TYPER_COMPLETE_ARGS")


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line on `arguments` (left out: those of the process) and exit."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in words
    words, limits = _without_limits([word for word in words if word != "--debug"])
    before = os.environ.get(VARIABLE)
    if arguments is None:
        signal.signal(signal.SIGTERM, _terminate)
    try:
        try:
            if limits:
                text = ",".join([*filter(None, [before]), *limits])
                Limits().with_text(text)
                _put_limits(text)
            with tvm_without_torch():
                typer.main.get_command(_frame(words or _typed()))(args=words, prog_name="tvm-tiling")
        finally:
            sys.stdout.flush()
            _put_limits(before)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        # The reader of a pipe has gone. Nothing more can be written, not even when Python flushes at its exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except Exception as error:
        if debug:
            raise
        _fail(error)
    sys.exit(0)


def _without_limits(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The words without --model-limit, wherever it stands, and what follows it each time."""
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
    """Limits for this process and those that it starts."""
    if text is None:
        os.environ.pop(VARIABLE, None)
    else:
        os.environ[VARIABLE] = text


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    """End in order: what was measured is kept, children and folders go."""
    sys.exit(143)


def _fail(error: Exception) -> NoReturn:
    text = " ".join(str(error).split())
    if not isinstance(error, (TilingError, OSError)):
        text = f"unexpected {type(error).__name__}: {text} (this is a defect; --debug shows where)"
    print(f"error: {text}", file=sys.stderr)
    sys.exit(1)


def _frame(words: Sequence[str]) -> typer.Typer:
    """The application. Only the command that `words` calls is loaded; the others are there by name and help."""
    app = typer.Typer(
        help="Fast TVM kernels without tuning: tilings decided from formulas.",
        epilog=examples("tvm-tiling demo", "tvm-tiling report model.onnx -o report.html", "tvm-tiling doctor"),
        no_args_is_help=True,
        rich_markup_mode=None,
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


def _typed() -> list[str]:
    """The words behind the program's name in a line that a shell completes; none where it does not."""
    if COMPLETING not in os.environ:
        return []
    return next((os.environ[name] for name in TYPED if name in os.environ), "").split()[1:]


def _not_loaded() -> None:
    """Stands for a command that is not called."""


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import PackageNotFoundError, version

        try:
            print(version("tvm-tiling"))
        except PackageNotFoundError:
            print("unknown: run from source, not installed")
        raise typer.Exit


def _options(
    version: bool = typer.Option(False, "--version", callback=_print_version, is_eager=True, help="Print the version."),
    debug: bool = typer.Option(False, "--debug", help="Show the Python traceback of an error."),
    limit: list[str] = typer.Option(  # noqa: B008
        [],
        "--model-limit",
        help="Raise what a model may ask for, as in tensor_bytes=16G; may repeat. SECURITY.md lists them.",
    ),
) -> None:
    """Options before the command. `main` has taken two of them out already, which are declared for the help alone."""
