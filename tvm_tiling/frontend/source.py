"""Detection of the model format, by type or by content, and dispatch to its frontend."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import ModelFormatError
from ..limits import MAX_EXTENT, Limits, usual
from ..runtime.pages import Contents, FileContents
from ..sizes import MayBeEmpty
from .bounded import refuse_excess, refuse_tuples
from .gguf.file import MAGIC
from .imported import ImportedModel
from .relay.archive import is_relay
from .relay.params import read_params

ACCEPTED = (
    "a path or the bytes of an ONNX, TFLite, GGUF or Relay file, an onnx.ModelProto, a torch.export.ExportedProgram, a "
    "torch.nn.Module with example_inputs, or a Relax IRModule"
)
_GIVEN, _BYTES = "the model given", "the bytes given"
# Frontends by class, identified by name so that no framework is imported to check.
_CLASSES = {
    ("onnx", "ModelProto"): "onnx",
    ("torch", "ExportedProgram"): "program",
    ("torch", "Module"): "module",
    ("tvm", "IRModule"): "relax",
}
# Formats recognised by their first bytes, with advice.
_FOREIGN = {
    b"PK\x03\x04": "a zip archive, as written by PyTorch: load it with torch.export.load and pass the program",
    b"\x89HDF\r\n\x1a\n": "an HDF5 file",
    b"\x7fELF": "a compiled library",
    b"\x80": "a pickle, which is never opened",
    b"{": "JSON text, but not a Relay module: pass a Relax module as an object, not as a file",
}


def load_model(
    model: Any,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    batch: int | None = None,
    dims: Mapping[str, int] | None = None,
    params: Mapping[str, Any] | str | Path | bytes | None = None,
    example_inputs: Sequence[Any] | None = None,
    limits: Limits | None = None,
    leave_open: bool = False,
    may_be_empty: MayBeEmpty | None = None,
    last_logits: bool = False,
) -> ImportedModel:
    """A model of any supported framework as a Relax module with static shapes, or with `leave_open` with a variable for
    every dimension that is not given here: at least 1 element, or any number if it `may_be_empty`.

    model: a path or the bytes of an .onnx, .tflite or .gguf file or of a Relay model (text, JSON, or a tar archive of
    either with its parameters), detected by content; an onnx.ModelProto; a torch.export.ExportedProgram; a
    torch.nn.Module with `example_inputs` (the tuple of its arguments); a Relax IRModule. shapes: complete shapes of
    inputs by name, in elements, where the model leaves them dynamic. batch: the first dimension of every input that
    leaves it dynamic. dims: sizes of dynamic dimensions by name. params: constant values of inputs by name, or the path
    or the bytes of a .params file of TVM. limits: the maximum resources that the model may request; by default, the
    built-in limits with the changes in the environment variable TVM_TILING_LIMITS. last_logits: return only the logits
    of the last position of a GGUF model.

    Raises ModelFormatError if the model cannot be read or leaves shapes dynamic, LimitError if it requests too much,
    UnsupportedOperator with the names of all unsupported operators.
    """
    if batch is not None and (isinstance(batch, bool) or not isinstance(batch, int) or not 1 <= batch <= MAX_EXTENT):
        raise ModelFormatError(f"batch = {batch!r}; expected a number from 1 to {MAX_EXTENT}")
    limits = usual() if limits is None else limits
    options: dict[str, Any] = {
        "shapes": dict(shapes or {}),
        "batch": batch,
        "dims": dict(dims or {}),
        "params": read_params(params),
        "leave_open": leave_open,
        "may_be_empty": MayBeEmpty() if may_be_empty is None else may_be_empty,
        "last_logits": last_logits,
    }
    if isinstance(model, str | Path):
        where, imported = str(model), _from_file(Path(model), options, params, limits)
    elif isinstance(model, bytes | bytearray | memoryview):
        where, imported = _BYTES, _from_contents(Contents(model), _BYTES, None, options, params, limits)
    else:
        where, imported = _GIVEN, _from_object(model, options, example_inputs, limits)
    refuse_excess(imported.module, limits, where)
    return imported


def _from_object(
    model: Any, options: dict[str, Any], example_inputs: Sequence[Any] | None, limits: Limits
) -> ImportedModel:
    _refuse_last_logits(options, _GIVEN)
    kind = _kind(model)
    if kind == "onnx":
        return _onnx_importer(_GIVEN)(model, where=_GIVEN, limits=limits, **options)
    if kind == "relax":
        from .relax_model import import_relax

        _refuse_options(
            options, ("shapes",), "a Relax module declares the ranks of its inputs and names its dynamic dimensions"
        )
        refuse_tuples(model, limits, _GIVEN)
        del options["shapes"]
        return import_relax(model, options.pop("params"), where=_GIVEN, **options)
    if kind in ("module", "program"):
        from .torch import import_torch

        _refuse_options(options, ("shapes", "params"), "a PyTorch model is exported with its shapes and weights")
        if kind == "module":
            _refuse_options(options, ("batch", "dims"), "a torch.nn.Module is exported for its example_inputs")
            return import_torch.import_module(model, example_inputs, where=_GIVEN)
        del options["shapes"], options["params"]
        return import_torch.import_program(model, where=_GIVEN, **options)
    raise ModelFormatError(f"the model has type {type(model).__name__}; expected {ACCEPTED}")


def _kind(model: Any) -> str | None:
    for base in type(model).__mro__:
        found = _CLASSES.get((base.__module__.split(".")[0], base.__name__))
        if found:
            return found
    return None


def _refuse_options(options: dict[str, Any], names: tuple[str, ...], why: str) -> None:
    given = [name for name in names if options[name]]
    if given:
        raise ModelFormatError(f"{', '.join(given)} cannot be given: {why}")


def _refuse_last_logits(options: dict[str, Any], where: str) -> None:
    if options.pop("last_logits"):
        raise ModelFormatError(f"{where}: logits = 'last' is supported only for GGUF files; expected 'all'")


def _from_file(path: Path, options: dict[str, Any], params: Any, limits: Limits) -> ImportedModel:
    if not path.is_file():
        what = "is not a file" if path.exists() else "does not exist"
        raise ModelFormatError(f"{path} {what}; expected {ACCEPTED}")
    try:
        held = FileContents(path)
    except OSError as error:
        raise ModelFormatError(f"{path} cannot be read: {error.strerror or error}") from None
    return _from_contents(held, str(path), path.parent, options, params, limits)


def _from_contents(
    held: Contents, where: str, folder: Path | None, options: dict[str, Any], params: Any, limits: Limits
) -> ImportedModel:
    view = held.content
    if view[:4] == MAGIC:
        from .gguf.import_gguf import import_gguf

        _refuse_options(options, ("params",), "a GGUF file holds its weights")
        del options["params"]
        return import_gguf(held, where=where, limits=limits, **options)
    _refuse_last_logits(options, where)
    if is_relay(view):
        from .relay.import_relay import read_relay

        given = {name: options[name] for name in ("shapes", "batch", "dims", "leave_open")}
        return read_relay(view, params=params, where=where, limits=limits, **given).imported
    if view[4:8] == b"TFL3":
        from .tflite_model import import_tflite

        _refuse_options(options, ("params", "dims"), "a TFLite file holds its weights and names no dimensions")
        return import_tflite(bytes(view), options["shapes"], options["batch"], where=where, limits=limits)
    for start, what in _FOREIGN.items():
        if view[: len(start)] == start:
            if what.startswith("a zip") and bytes(view[30:512]).find(b".npy") >= 0:  # the name of its first member
                what = "a file of arrays, as written by numpy.savez"
            raise ModelFormatError(f"{where} is {what}; expected {ACCEPTED}")
    return _onnx_importer(where)(held, where=where, folder=folder, limits=limits, **options)


def _onnx_importer(where: str) -> Callable[..., ImportedModel]:
    try:
        from .onnx.import_onnx import import_onnx
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] != "onnx":
            raise
        raise ModelFormatError(
            f"{where}: ONNX models require the onnx package, which is not installed; use pip install 'tvm-tiling[onnx]'"
        ) from None
    return import_onnx
