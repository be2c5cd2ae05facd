"""`tvm-tiling hardware`: list, show, detect, check and calibrate hardware descriptions."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import typer

from ..errors import HardwareError
from ..hardware import Cache, Hardware
from ..hardware.file import preset_names
from ..hardware.kernel_costs import KernelCosts
from ..hardware.machine import Machine
from .output import JSON, examples, print_json
from .table import print_table
from .wording import in_command_terms

CALIBRATE = "tvm-tiling hardware --calibrate"

command = typer.Typer()

TOML = typer.Option(False, "--toml", help="Print TOML for a file that --target accepts.")


@command.callback(invoke_without_command=True, epilog=examples(CALIBRATE, f"{CALIBRATE} -o mine.toml"))
def hardware(
    context: typer.Context,
    calibrate: bool = typer.Option(
        False,
        "--calibrate",
        help="Measure this machine (at most a minute), and use the results in its descriptions from now on.",
    ),
    output: Path = typer.Option(  # noqa: B008
        None, "--output", "-o", metavar="FILE", help="With --calibrate: write this TOML file instead."
    ),
    busy: bool = typer.Option(
        False, "--busy", help="With --calibrate: measure although other processes use the cores."
    ),
) -> None:
    """List, show, detect, check and calibrate hardware descriptions."""
    if calibrate and context.invoked_subcommand is None:
        from .calibrate import run

        run(output, busy)
    elif calibrate or output is not None or busy:
        given = "--calibrate" if calibrate else "--output" if output is not None else "--busy"
        how = "without a subcommand" if calibrate else "with --calibrate"
        raise HardwareError(f"{given} is supported only {how}")
    elif context.invoked_subcommand is None:
        print(context.get_help(), file=sys.stderr)  # as every group without a command
        raise typer.Exit(2)


@command.command("list", epilog=examples("tvm-tiling hardware list"))
def list_presets(as_json: bool = JSON) -> None:
    """List the presets."""
    machines = [Hardware.load(name) for name in preset_names()]
    if as_json:
        print_json([_record(machine) for machine in machines])
    else:
        print_table(("name", "machine", "fingerprint"), [(m.name, m.summary, m.fingerprint()) for m in machines])


@command.command(epilog=examples("tvm-tiling hardware show vta", "tvm-tiling hardware show vta --toml > mine.toml"))
def show(
    hardware: str = typer.Argument(metavar="TARGET", help="A preset or a TOML file."),
    as_json: bool = JSON,
    as_toml: bool = TOML,
) -> None:
    """Show a description field by field."""
    _print(Hardware.load(hardware), as_json, as_toml)


@command.command(
    epilog=examples("tvm-tiling hardware detect --toml > cpu.toml", "tvm-tiling hardware detect --no-calibration")
)
def detect(
    as_json: bool = JSON,
    as_toml: bool = TOML,
    no_calibration: bool = typer.Option(
        False, "--no-calibration", help="Use the defaults of the microarchitecture even if this machine was calibrated."
    ),
) -> None:
    """Describe this CPU, limited to the cores that this process may use."""
    _print(Hardware.detect(calibrated=not no_calibration), as_json, as_toml)


@command.command(epilog=examples("tvm-tiling hardware check mine.toml"))
def check(
    files: list[str] = typer.Argument(metavar="TARGET...", help="TOML files or presets."),  # noqa: B008
    as_json: bool = JSON,
) -> None:
    """Check descriptions; exit with code 1 if any is invalid."""
    results: list[dict[str, Any]] = []
    for file in files:
        try:
            machine = Hardware.load(Path(file) if Path(file).is_file() else file)
            if machine.cpu is None:
                Machine(machine)  # raises HardwareError for an impossible accelerator
            results.append({"file": file, "ok": True, "name": machine.name, "fingerprint": machine.fingerprint()})
        except HardwareError as error:
            results.append({"file": file, "ok": False, "error": str(error)})
    if as_json:
        print_json(results)
    for result in results:
        if not result["ok"]:
            typer.echo(f"error: {in_command_terms(result['error'])}", err=True)
        elif not as_json:
            print(f"{result['file']}: ok ({result['name']}, {result['fingerprint']})")
    if not all(result["ok"] for result in results):
        raise typer.Exit(1)


def _print(machine: Hardware, as_json: bool, as_toml: bool) -> None:
    if as_json and as_toml:
        raise HardwareError("--json and --toml are two formats; expected one of them")
    if as_json:
        print_json(_record(machine))
    elif as_toml:
        print(machine.to_toml(), end="")
    else:
        print(f"{machine}\n")
        print_table(("field", "value"), _rows(machine))


def _record(machine: Hardware) -> dict[str, Any]:
    return {**machine.to_dict(), "fingerprint": machine.fingerprint()}


def _rows(machine: Hardware) -> Iterator[tuple[str, str]]:
    """Field and value of everything but the name, one row per cache; kernel costs with units, also if default."""
    for unit, own in machine.to_dict().items():
        if unit not in ("name", "calibration"):
            yield from _cells(unit, own)
    if machine.cpu is not None:
        for cost in fields(KernelCosts):
            value = getattr(machine.cpu.kernel_costs, cost.name)
            yield f"cpu.costs.{cost.name}", f"{value:g} {cost.metadata['unit']}"
    if machine.calibration is not None:
        yield from ((f"calibration.{name}", text) for name, text in machine.calibration.rows())
    yield "fingerprint", machine.fingerprint()


def _cells(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """A row for every plain value in `value`; nested tables are flattened and None is omitted."""
    if name == "cpu.costs":
        return
    if name == "cpu.caches":
        yield from ((f"{name}.l{cache['level']}", _cache_text(Cache(**cache))) for cache in value)
    elif isinstance(value, dict) and ("." not in name or name.startswith("memories")):
        for key, item in value.items():
            yield from _cells(f"{name}.{key}", item)
    elif name == "levels":
        for level in value:
            own = {key: item for key, item in level.items() if key != "name"}
            yield from ((f"levels.{level['name']}.{key}", _cell(item)) for key, item in own.items() if item is not None)
    elif value is not None:
        yield name, _cell(value)


def _cell(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return " ".join(map(str, value)) or "-"
    if isinstance(value, dict):
        return ", ".join(f"{key} {_cell(item)}" for key, item in value.items()) or "-"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _cache_text(cache: Cache) -> str:
    shared = "one core" if cache.cores == 1 else f"shared by {cache.cores} cores"
    return f"{cache.size / 1024:g} KiB, {cache.ways} ways, {cache.sets} sets, {cache.line}-byte lines, {shared}"
