"""The frame of the command line: the table of commands, and how errors end.

Exit codes: 0, 1 for an error (one line "error: ..." on standard error), 2 for wrong usage, 130 when interrupted,
143 when ended by SIGTERM, which keeps as much as Ctrl-C does. A Python traceback is shown with --debug only.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType, ModuleType
from typing import NamedTuple, NoReturn

import typer

from ..errors import TilingError


class Command(NamedTuple):
    """A row of the table. `module` is loaded when the command is called; its `command` is a function, or a typer.Typer
    that groups several commands. A function's words are parsed by the module's `Parsing` where it has one, and its help
    ends with the module's `EXAMPLES`, command lines."""

    name: str
    module: str
    help: str


COMMANDS = (
    Command(
        "explain", "tvm_tiling.cli.explain", "Show how an operator, or all of a model, is cut on a machine, and why."
    ),
    Command("compile", "tvm_tiling.cli.compile", "Compile a model to one file that runs without it."),
    Command("convert", "tvm_tiling.cli.convert", "Turn a Relay model into a Relax one, and say what became of it."),
    Command("run", "tvm_tiling.cli.run", "Run a model, or a compiled one, on inputs from a file."),
    Command("report", "tvm_tiling.cli.report", "Time a model and show where its time goes, operator by operator."),
    Command("demo", "tvm_tiling.cli.demo", "Compile and run a network and three products beside TVM and libraries."),
    Command("bench", "tvm_tiling.cli.bench", "Compare speed with other libraries, of a model or on suites of shapes."),
    Command(
        "simulate", "tvm_tiling.cli.simulate", "Time a model, an operator or a program on the simulated accelerator."
    ),
    Command("sweep", "tvm_tiling.cli.sweep", "Time it while one field of the accelerator takes several values."),
    Command("db", "tvm_tiling.cli.db", "Databases of measured shapes: list, match, generate, move and check them."),
    Command("tune", "tvm_tiling.cli.tune", "Search for faster cuts of a model or an operator by measuring."),
    Command("fleet", "tvm_tiling.cli.fleet", "Start workers that measure for tune, here or for a tracker elsewhere."),
    Command("hardware", "tvm_tiling.cli.hardware", "List, show, detect and check machine descriptions."),
    Command(
        "doctor", "tvm_tiling.cli.doctor", "Check versions, threads, caches and optional parts; say how to mend them."
    ),
)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line on `arguments` (left out: those of the process) and exit."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in words
    words = [word for word in words if word != "--debug"]
    if arguments is None:
        signal.signal(signal.SIGTERM, _terminate)
    try:
        typer.main.get_command(_frame(words))(args=words, prog_name="tvm-tiling")
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
        add_completion=False,
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    app.callback()(_options)
    called = next((word for word in words if not word.startswith("-")), None)
    for row in COMMANDS:
        module = importlib.import_module(row.module) if row.name == called else None
        command = module.command if module else _not_loaded
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=row.name, help=row.help)
        else:
            parsing = getattr(module, "Parsing", None)
            app.command(row.name, help=row.help, epilog=_epilog(module), cls=parsing)(command)
    return app


def _epilog(module: ModuleType | None) -> str | None:
    """The examples of a command, each on a line of its own."""
    examples = getattr(module, "EXAMPLES", None)
    return "\n".join(("\b", "Examples:", *(f"  {example}" for example in examples))) if examples else None


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
) -> None:
    """Options before the command. `main` has taken --debug out already; it is declared for the help."""
