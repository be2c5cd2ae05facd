"""What the commands that take a model have in common: their options, inputs from files, a model or an executable."""

from __future__ import annotations

import tarfile
import zipfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ..errors import ModelFormatError, WorkloadError
from ..hardware.file import preset_names
from ..operand_types import BLOCK
from .output import working

if TYPE_CHECKING:
    from ..model.executable import Executable

MODEL = typer.Argument(metavar="MODEL", help="A model file, or what `tvm-tiling compile` wrote.")
INPUT = typer.Option("", "--input", help="Inputs by name in an .npz file; left out: random numbers.")
BATCH = typer.Option("", "--batch", help="Size of the first dimension where the model leaves it open: 4, or 1,4,8.")
DIM = typer.Option([], "--dim", help="Size of an open dimension by its name: seq=128, or seq=64,128.")
SHAPE = typer.Option([], "--shape", help="Whole shape of an input that leaves it open: name=1,3,224,224.")
PRECISION = typer.Option(
    "float32",
    "--precision",
    help="What the CPU keeps and multiplies of a float32 model: float32, bfloat16, float16, int8, or auto, the fastest "
    "that is close enough. int8 and auto need --calibration.",
)
CALIBRATION = typer.Option(
    [],
    "--calibration",
    help="An .npz file of inputs that results are compared on, and tensors quantised by; may repeat.",
)
TOLERANCE = typer.Option(
    None, "--tolerance", help="The error beside float32 that --precision auto accepts; left out: 0.01."
)
WEIGHTS = typer.Option(
    "", "--weights", help="Keep the weights of products in int4 or int8, a scale for each --block of them."
)
WEIGHT_BLOCK = typer.Option(BLOCK, "--block", help="Weights that share a scale: 16, 32, 64, 128 or 256.")
ACTIVATIONS = typer.Option(
    "",
    "--activations",
    help="How far the rows that weights in blocks multiply may be rounded: int8, int16 or float32; left out: as the "
    "model says, else int16.",
)
LOGITS = typer.Option("all", "--logits", help="Of a GGUF model: all, or last, those that generation takes.")
PREPACKED = typer.Option(False, "--prepacked", help="An operator's weights are prepacked, as those of a model are.")
PREFER = typer.Option(
    "utilisation",
    "--prefer",
    help="What a decision is best in, on accelerators with a matrix engine: utilisation (cycles), traffic (bytes from "
    "memory, of what is about as fast), energy, or edp (energy times cycles).",
)

MODEL_OPTIONS = "--batch, --dim, --shape, --precision, --calibration, --tolerance, --weights and --activations"
ACCEPTED_ARRAYS = "accepted: what numpy.savez wrote"


def _old_flag(old: str, new: str) -> Any:
    """A flag by the name it had in the version before; used, it warns."""

    def warn(given: bool) -> bool:
        if given:
            typer.echo(f"warning: {old} is deprecated; use {new}", err=True)
        return given

    return typer.Option(False, old, hidden=True, callback=warn)


AHEAD = _old_flag("--ahead", "--prepacked")


@dataclass(frozen=True)
class ModelOptions:
    """What settles how a model is compiled, as it was typed: --batch, --dim, --shape, --precision, --calibration,
    --tolerance, --weights, --block and --activations; `logits` are those that a command needs."""

    batch: str = ""
    dims: Sequence[str] = ()
    shapes: Sequence[str] = ()
    precision: str = "float32"
    calibration: Sequence[str] = ()
    tolerance: float | None = None
    weights: str = ""
    block: int = BLOCK
    activations: str = ""
    logits: str = "all"

    @property
    def given(self) -> bool:
        """Whether any was typed."""
        return bool(self.batch or self.dims or self.shapes or self.weights or self.activations or self.of_precision)

    @property
    def of_precision(self) -> bool:
        """Whether --precision, --calibration or --tolerance was typed."""
        return self.precision != "float32" or bool(self.calibration) or self.tolerance is not None

    def settled(self) -> dict[str, Any]:
        """The arguments of compile(); WorkloadError quotes what is not a size, or an option without its other one."""
        if self.tolerance is not None and self.precision != "auto":
            raise WorkloadError(f"--tolerance {self.tolerance:g} belongs to --precision auto")
        if self.precision in ("int8", "auto") and not self.calibration:
            raise WorkloadError(
                f"--precision {self.precision} runs the model on inputs; accepted: them, by --calibration inputs.npz"
            )
        numbers = {
            "precision": self.precision,
            "calibration": [arrays_of(file) for file in self.calibration] or None,
            "tolerance": self.tolerance,
            "weights": self.weights or None,
            "block": self.block,
            "activations": self.activations or None,
            "logits": self.logits,
        }
        return {**self.sizes(), **numbers}

    def sizes(self) -> dict[str, Any]:
        """Those of open dimensions."""
        dims = [_named("--dim", text, "seq=128, or seq=1..512", _open_sizes) for text in self.dims]
        shapes = [_named("--shape", text, "name=1,3,224,224", _sizes) for text in self.shapes]
        return {
            "batch": _open_sizes("--batch", self.batch, self.batch, "4, or 1,4,8, or 1..16") if self.batch else None,
            "dims": dict(dims),
            "shapes": dict(shapes),
        }


def _named(
    option: str, text: str, example: str, read: Callable[[str, str, str, str], Sequence[int]]
) -> tuple[str, Sequence[int]]:
    name, equals, sizes = text.rpartition("=")
    if not equals or not name:
        raise WorkloadError(f"{option} {text}: no sizes with a name, accepted: {example}")
    return name, read(option, text, sizes, example)


def _open_sizes(option: str, text: str, sizes: str, example: str) -> Sequence[int]:
    """One size, several to be compiled each, or a range of them, first and last."""
    first, dots, last = sizes.partition("..")
    if not dots:
        return _sizes(option, text, sizes, example)
    least = [0] if first.strip() == "0" else _sizes(option, text, first, example)
    ends = [*least, *_sizes(option, text, last, example)]
    if len(ends) != 2 or ends[0] > ends[1]:
        raise WorkloadError(f"{option} {text}: no range of sizes, accepted: {example}")
    return range(ends[0], ends[1] + 1)


def _sizes(option: str, text: str, sizes: str, example: str) -> list[int]:
    parts = sizes.split(",")
    if not all(part.strip().isdigit() and int(part) for part in parts):
        raise WorkloadError(f"{option} {text}: no sizes, accepted: {example}")
    return [int(part) for part in parts]


def is_model(text: str) -> bool:
    """Whether a word names a file, or would if it were there, and neither a suite nor an operator."""
    return (
        Path(text).is_file()
        or "/" in text
        or Path(text).suffix in (".onnx", ".tflite", ".gguf", ".relay", ".json", ".tar")
    )


def opened(path: str, sizes: ModelOptions, cache: bool = True, foreign: bool = False) -> Executable:
    """A saved executable, with `foreign` also one that this CPU cannot run, or a model, which is compiled."""
    from ..model.load import load

    if not is_executable(path):
        from ..model.compile import compile_model

        with working(f"compiling {path}"):
            return compile_model(path, cache=cache, **sizes.settled())
    if sizes.given:
        raise WorkloadError(f"{path} is compiled already; {MODEL_OPTIONS} are for models")
    return load(path, foreign=foreign)


def is_executable(path: str) -> bool:
    """Whether the file is a saved executable, by its content; ModelFormatError where there is none."""
    if not Path(path).is_file():
        raise ModelFormatError(f"{path} is not a file; accepted: a model, or what `tvm-tiling compile` wrote")
    if not tarfile.is_tarfile(path):
        return False
    from ..frontend.relay.archive import members
    from ..frontend.relay.params import mapped
    from ..model.saved import CONSTANTS

    # A Relay model may be an archive too; only what save() wrote has constants apart.
    return CONSTANTS in members(mapped(Path(path)), path)


def is_gguf(path: str) -> bool:
    """Whether a file is one of GGUF's."""
    from ..model.cache import GGUF  # which brings no frontend

    if not Path(path).is_file():
        return False  # which opening it tells
    with Path(path).open("rb") as file:
        return file.read(len(GGUF)) == GGUF


def inputs_of(executable: Executable, file: str) -> dict[str, Any]:
    """Inputs from an .npz file by name; without a file, random numbers from 0 to 1, the same each time."""
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
    """The arrays of an .npz file by name; ModelFormatError for another file."""
    import numpy as np

    try:
        arrays = np.load(file, allow_pickle=False)
        if isinstance(arrays, np.ndarray):
            raise ValueError("one array without a name")
        with arrays:
            return {name: arrays[name] for name in arrays.files}
    except OSError as error:
        raise ModelFormatError(f"{file} cannot be read: {error.strerror or error}; {ACCEPTED_ARRAYS}") from None
    except (ValueError, EOFError, zipfile.BadZipFile, zlib.error):
        raise ModelFormatError(f"{file} holds no arrays by name, or is corrupted; {ACCEPTED_ARRAYS}") from None


def presets(incomplete: str) -> list[str]:
    """Names of presets that begin so, for shells that complete a line."""
    return [name for name in preset_names() if name.startswith(incomplete)]


def targets(incomplete: str) -> list[str]:
    """What --target takes that begins so."""
    names = ("llvm", *preset_names(), *(f"vsim/{preset}" for preset in preset_names()))
    return [name for name in names if name.startswith(incomplete)]
