"""Options and inputs shared by the commands that take a model."""

from __future__ import annotations

import functools
import inspect
import math
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

import typer

from ..errors import HardwareError, ModelFormatError, WorkloadError, nearest
from ..hardware import Hardware
from ..hardware.file import preset_names
from ..operand_types import BLOCK
from .output import working
from .threads import THREADS as THREADS  # shown besides the options of a command

if TYPE_CHECKING:
    from ..model.executable import Executable

PRECISIONS = ("float32", "bfloat16", "float16", "int8", "auto")
WEIGHT_TYPES = ("int4", "int8")
ROW_TYPES = ("int8", "int16", "float32")
LOGITS_OF = ("all", "last")
GOALS = ("utilisation", "traffic", "energy", "edp")
ACCELERATOR = "an accelerator, as a preset or a TOML file"
THIS_CPU = ("cpu", "llvm")  # names of this machine as a target
PREFIX = "vsim/"  # which targets of the Python API have before an accelerator


def presets(incomplete: str) -> list[str]:
    """Shell completion of hardware presets."""
    return [name for name in preset_names() if name.startswith(incomplete)]


def targets(incomplete: str) -> list[str]:
    """Shell completion of targets."""
    known = ("cpu", *preset_names(), *(f"{PREFIX}{name}" for name in preset_names() if incomplete.startswith(PREFIX)))
    return [name for name in known if name.startswith(incomplete)]


def target_option(default: str = "this CPU", accepted: str = "cpu (this machine), a preset or a TOML file") -> Any:
    """--target with its former name --hardware; `default` describes the behaviour without it."""
    return typer.Option(
        "",
        "--target",
        "--hardware",
        metavar="TARGET",
        autocompletion=targets,
        help=f"Hardware: {accepted}; default: {default}.",
    )


def deprecated_flag(old: str, new: str) -> Any:
    """A hidden flag under its former name, which warns when it is used."""

    def warn(given: bool) -> bool:
        if given:
            typer.echo(f"warning: {old} is deprecated; use {new}", err=True)
        return given

    return typer.Option(False, old, hidden=True, callback=warn)


def deprecated_text(old: str, new: str) -> Any:
    """A hidden option under its former name, which warns when it is used."""

    def warn(given: str) -> str:
        if given:
            typer.echo(f"warning: {old} is deprecated; use {new}", err=True)
        return given

    return typer.Option("", old, hidden=True, callback=warn)


def _seconds(value: float) -> float:
    if not math.isfinite(value):
        raise WorkloadError(f"--seconds {value}: expected a finite number")
    return value


def seconds_option(what: str, default: float = 2.0, least: float = 0.01) -> Any:
    """--seconds: how long to measure."""
    return typer.Option(default, "--seconds", metavar="S", min=least, callback=_seconds, help=what)


MODEL = typer.Argument(metavar="MODEL", help="A model file, or a file written by `tvm-tiling compile`.")
TARGET = target_option()
INPUT = typer.Option("", "--input", metavar="FILE", help="Inputs by name, an .npz file; default: random values.")
BATCH = typer.Option(
    "",
    "--batch",
    metavar="SIZES",
    help="Size of a dynamic batch dimension: one (4), several (1,4,8) or a range (1..16).",
)
DIM = typer.Option(
    [],
    "--dim",
    metavar="NAME=SIZES",
    help="Size of a dynamic dimension: one (seq=128), several (seq=64,128) or a range (seq=1..512); repeatable.",
)
SHAPE = typer.Option(
    [], "--shape", metavar="NAME=SIZES", help="Shape of an input with dynamic dimensions: x=1,3,224,224; repeatable."
)
PRECISION = typer.Option(
    "float32",
    "--precision",
    metavar="TYPE",
    help="Type in which a CPU stores and multiplies float32 operands: float32, bfloat16, float16, int8, or auto, the "
    "fastest that is accurate enough. int8 and auto need --calibration.",
)
NARROW_PRECISION = typer.Option(
    "float32",
    "--precision",
    metavar="TYPE",
    help="Type in which a CPU stores and multiplies float32 operands of a model: float32, bfloat16 or float16.",
)
CALIBRATION = typer.Option(
    [],
    "--calibration",
    metavar="FILE",
    help="Representative inputs, an .npz file, for quantisation and for the error of a precision; repeatable.",
)
TOLERANCE = typer.Option(
    None,
    "--tolerance",
    metavar="ERROR",
    help="Largest relative error against float32 that --precision auto accepts; default: 0.01.",
)
WEIGHTS = typer.Option(
    "", "--weights", metavar="TYPE", help="Store the weights of matrix multiplications as int4 or int8 in blocks."
)
WEIGHT_BLOCK = typer.Option(
    BLOCK, "--block", metavar="N", help="Number of weights that share a scale: 16, 32, 64, 128 or 256."
)
ACTIVATIONS = typer.Option(
    "",
    "--activations",
    metavar="TYPE",
    help="Type to which activations are rounded before they are multiplied by weights in blocks: int8, int16 or "
    "float32 (not rounded); default: the model's own, else int16.",
)
DETERMINISTIC = typer.Option(
    False,
    "--deterministic",
    help="Add numbers in an order that does not depend on the batch or the number of cores, so that results are equal "
    "bit for bit.",
)
LOGITS = typer.Option(
    "all",
    "--logits",
    metavar="WHICH",
    help="Positions for which a GGUF model returns logits: all, or last (only the last one).",
)
PREPACKED = typer.Option(
    False, "--prepacked", help="The operator's weights are prepacked, as the weights of a compiled model are."
)
PREFER = typer.Option(
    "utilisation",
    "--prefer",
    metavar="GOAL",
    help="Objective on accelerators with a matrix engine: utilisation (fewest cycles), traffic (fewest bytes from "
    "memory among tilings that are about as fast), energy, or edp (energy-delay product).",
)
AHEAD = deprecated_flag("--ahead", "--prepacked")

EXPECTED_ARRAYS = "expected a file written by numpy.savez"


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """The options that determine how a model is compiled, as they were typed."""

    batch: str = ""
    dim: Sequence[str] = ()
    shape: Sequence[str] = ()
    precision: str = "float32"
    calibration: Sequence[str] = ()
    tolerance: float | None = None
    weights: str = ""
    block: int = BLOCK
    activations: str = ""
    logits: str = "all"
    target: str = ""
    threads: int | None = None
    deterministic: bool = False

    @property
    def typed(self) -> list[str]:
        """The options that were typed, apart from the number of threads."""
        usual = ModelOptions(threads=self.threads)
        values = ((f"--{each.name}", getattr(self, each.name), getattr(usual, each.name)) for each in fields(self))
        return [name for name, value, default in values if value != default and value != []]

    @property
    def given(self) -> bool:
        """Whether any of them was typed, apart from the target and the number of threads."""
        return self.typed not in ([], ["--target"])

    def settled(self) -> dict[str, Any]:
        """The arguments of compile(). WorkloadError quotes an option that cannot be used."""
        self.check_precision()
        choose("--weights", self.weights, WEIGHT_TYPES)
        choose("--activations", self.activations, ROW_TYPES)
        choose("--logits", self.logits, LOGITS_OF)
        if self.block != BLOCK and not self.weights:
            raise WorkloadError(f"--block {self.block} needs --weights int4 or --weights int8")
        if self.tolerance is not None and self.precision != "auto":
            raise WorkloadError(f"--tolerance {self.tolerance:g} needs --precision auto")
        on_cpu = machine_of(self.target) is None
        if on_cpu and self.precision in ("int8", "auto") and not self.calibration:
            raise WorkloadError(f"--precision {self.precision} needs inputs; use --calibration inputs.npz")
        if on_cpu and self.precision == "float32" and self.calibration:
            raise WorkloadError("--calibration has no effect with --precision float32 on a CPU; use --precision int8")
        numbers = {
            "precision": self.precision,
            "calibration": [arrays_of(file) for file in self.calibration] or None,
            "tolerance": self.tolerance,
            "weights": self.weights or None,
            "block": self.block,
            "activations": self.activations or None,
            "logits": self.logits,
            "threads": self.threads,
            "deterministic": self.deterministic,
        }
        return {**self.sizes(), **numbers}

    def check_precision(self) -> None:
        """WorkloadError for a --precision that does not exist."""
        choose("--precision", self.precision, PRECISIONS)

    def sizes(self) -> dict[str, Any]:
        """The arguments of compile() for dynamic dimensions."""
        dims = [_named("--dim", text, "seq=128, seq=64,128 or seq=1..512", _dynamic_sizes) for text in self.dim]
        shapes = [_named("--shape", text, "name=1,3,224,224", _sizes) for text in self.shape]
        for option, pairs in (("--dim", dims), ("--shape", shapes)):
            if twice := next((name for name, _ in pairs if [n for n, _ in pairs].count(name) > 1), None):
                raise WorkloadError(f"{option} {twice} is given twice; expected once, with all sizes: {twice}=1,4")
        return {
            "batch": _dynamic_sizes("--batch", self.batch, self.batch, "4, 1,4,8 or 1..16") if self.batch else None,
            "dims": dict(dims),
            "shapes": dict(shapes),
        }


# The type and the option of each field of ModelOptions, in the order of the help.
_TYPED: dict[str, tuple[Any, Any]] = {
    "target": (str, TARGET),
    "batch": (str, BATCH),
    "dim": (list[str], DIM),
    "shape": (list[str], SHAPE),
    "threads": (int | None, THREADS),
    "precision": (str, PRECISION),
    "calibration": (list[str], CALIBRATION),
    "tolerance": (float | None, TOLERANCE),
    "weights": (str, WEIGHTS),
    "block": (int, WEIGHT_BLOCK),
    "activations": (str, ACTIVATIONS),
    "logits": (str, LOGITS),
    "deterministic": (bool, DETERMINISTIC),
}


def model_options(*without: str, **instead: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of a model in place of its keyword-only parameter `options`, a ModelOptions.

    `without`: fields that the command does not offer; they keep their defaults. `instead`: options by field that differ
    from those of other commands.
    """
    fields = {name: (kind, instead.get(name, option)) for name, (kind, option) in _TYPED.items() if name not in without}

    def offer(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def called(**given: Any) -> None:
            options = ModelOptions(**{name: given.pop(name) for name in fields})
            command(**given, options=options)

        hints = get_type_hints(command)
        parameters: list[inspect.Parameter] = []
        for own in inspect.signature(command).parameters.values():
            shown = fields if own.name == "options" else {own.name: (hints[own.name], own.default)}
            for name, (kind, option) in shown.items():
                parameters.append(
                    inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=option, annotation=kind)
                )
        # Typer reads both.
        called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        called.__annotations__ = {each.name: each.annotation for each in parameters}
        return called

    return offer


def applying(names: Sequence[str]) -> str:
    """Options as the subject of a sentence, with its verb: "--batch and --dim apply"."""
    listed = " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
    return f"{listed} {'applies' if len(names) == 1 else 'apply'}"


def choose(option: str, value: str, known: Sequence[str]) -> None:
    """WorkloadError unless `value` is empty or one of the known ones."""
    if value and value not in known:
        raise WorkloadError(f"{option} {value} is not supported; {nearest(value, known)}")


def machine_of(target: str) -> Hardware | None:
    """The machine of a --target: a preset or a TOML file; None for this CPU."""
    if target in ("", *THIS_CPU):
        return None
    return Hardware.load(target.removeprefix(PREFIX))


def accelerator_of(target: str, default: str) -> Hardware:
    """The accelerator of a --target. HardwareError for a CPU."""
    machine = machine_of(target or default)
    if machine is None or machine.cpu is not None:
        raise HardwareError(f"--target {target} is a CPU; expected an accelerator, see `tvm-tiling hardware list`")
    return machine


def _named(
    option: str, text: str, example: str, read: Callable[[str, str, str, str], Sequence[int]]
) -> tuple[str, Sequence[int]]:
    name, equals, sizes = text.rpartition("=")
    if not equals or not name:
        raise WorkloadError(f"{option} {text}: expected a name and sizes, as in {example}")
    return name, read(option, text, sizes, example)


def _dynamic_sizes(option: str, text: str, sizes: str, example: str) -> Sequence[int]:
    """One size, several of which each is compiled for itself, or a range from the first to the last."""
    first, dots, last = sizes.partition("..")
    if not dots:
        return _sizes(option, text, sizes, example)
    least = [0] if first.strip() == "0" else _sizes(option, text, first, example)
    ends = [*least, *_sizes(option, text, last, example)]
    if len(ends) != 2 or ends[0] > ends[1]:
        raise WorkloadError(f"{option} {text} is not a range of sizes; expected {example}")
    return range(ends[0], ends[1] + 1)


def _sizes(option: str, text: str, sizes: str, example: str) -> list[int]:
    parts = [part.strip() for part in sizes.split(",")]
    if not all(part.isascii() and part.isdigit() and len(part) < 19 and int(part) for part in parts):
        raise WorkloadError(f"{option} {text} is not a size; expected {example}")
    return [int(part) for part in parts]


def is_model(text: str) -> bool:
    """Whether a word names a file, existing or not, rather than a suite or an operator."""
    return (
        Path(text).is_file()
        or "/" in text
        or Path(text).suffix in (".onnx", ".tflite", ".gguf", ".relay", ".json", ".tar")
    )


def opened(path: str, options: ModelOptions, cache: bool = True, foreign: bool = False) -> Executable:
    """A saved executable, or a model compiled with the options; to be run on this machine unless `foreign`."""
    from ..model.load import load

    machine = machine_of(options.target)
    if not is_executable(path):
        from ..model.compile import compile_model

        _refuse_other_architecture(machine, options.target)
        settled = options.settled()
        with working(f"compiling {path}"):
            executable: Executable = compile_model(path, target=machine or "llvm", cache=cache, **settled)
        if machine is not None and machine.cpu is not None and not foreign:
            _refuse_foreign(executable, options.target)
        return executable
    if options.given or machine is not None:
        raise WorkloadError(f"{path} is compiled already; {applying(options.typed)} to models")
    return load(path, foreign=foreign, threads=options.threads)


def _refuse_other_architecture(machine: Hardware | None, target: str) -> None:
    """HardwareError if the target is a CPU of another architecture, whose code does not run here."""
    own = None if machine is None or machine.cpu is None else Hardware.detect().cpu
    if own is not None and machine is not None and machine.cpu is not None and machine.cpu.arch != own.arch:
        raise HardwareError(f"--target {target} is an {machine.cpu.arch} CPU; this command runs on {own.arch}")


def _refuse_foreign(executable: Executable, target: str) -> None:
    """HardwareError if this CPU lacks instructions of what was compiled for another one."""
    for variant in executable.variants:
        needed = variant.library.instructions
        if needed is not None and (lacking := needed.lacking()):
            raise HardwareError(
                f"--target {target}: this CPU lacks {lacking}, so the model cannot run here; use tvm-tiling compile to "
                "write a file for that machine"
            )


def require_file(path: str, expected: str = "a model, or a file written by `tvm-tiling compile`") -> None:
    """Raise ModelFormatError unless the path is that of a file."""
    if not Path(path).is_file():
        fault = "is a directory" if Path(path).is_dir() else "does not exist"
        raise ModelFormatError(f"{path} {fault}; expected {expected}")


def unknown_subject(name: str, expected: str) -> str:
    """The message for words that name neither a file nor an operator."""
    fault = "is a directory" if Path(name).is_dir() else "is neither a file nor an operator"
    return f"'{name}' {fault}; expected {expected}"


def require_model(path: str) -> None:
    """Raise ModelFormatError unless the path is that of a file, and WorkloadError if that is a saved executable."""
    require_file(path, "a model")
    if is_executable(path):
        raise WorkloadError(f"{path} is compiled already; expected a model")


def is_executable(path: str) -> bool:
    """Whether the file, judged by content, is a saved executable. ModelFormatError if there is no such file."""
    require_file(path)
    if not tarfile.is_tarfile(path):
        return False
    from ..frontend.relay.archive import members
    from ..frontend.relay.params import mapped
    from ..model.saved import CONSTANTS

    # A Relay model may be an archive too; only saved executables have constants apart.
    return CONSTANTS in members(mapped(Path(path)), path)


def is_gguf(path: str) -> bool:
    """Whether the file is in the GGUF format; False if it does not exist."""
    from ..model.cache import GGUF  # without importing a frontend

    if not Path(path).is_file():
        return False
    with Path(path).open("rb") as file:
        return file.read(len(GGUF)) == GGUF


def inputs_of(executable: Executable, file: str) -> dict[str, Any]:
    """Inputs by name from an .npz file; without a file, uniform random values in [0, 1) with a fixed seed."""
    import numpy as np

    signature = executable.signature
    if file:
        return arrays_of(file)
    rng = np.random.default_rng(0)
    return {
        name: rng.random(shape).astype(dtype)
        for name, shape, dtype in zip(
            signature.input_names, signature.example_shapes, signature.input_dtypes, strict=True
        )
    }


def arrays_of(file: str) -> dict[str, Any]:
    """The arrays of an .npz file by name. ModelFormatError for anything else."""
    import numpy as np

    try:
        arrays = np.load(file, allow_pickle=False)
        if isinstance(arrays, np.ndarray):
            raise ValueError("one array without a name")
        with arrays:
            return {name: arrays[name] for name in arrays.files}
    except OSError as error:
        raise ModelFormatError(f"{file} cannot be read: {error.strerror or error}; {EXPECTED_ARRAYS}") from None
    except (ValueError, EOFError, zipfile.BadZipFile, zlib.error):
        raise ModelFormatError(f"{file} has no named arrays, or is corrupted; {EXPECTED_ARRAYS}") from None
