"""AArch64 on this computer: kernels and exported models are linked by a cross compiler and run by qemu-user.

If TVM_TILING_EMULATED is set to the name of a preset, the whole suite treats that machine as this CPU: see emulate().
"""

from __future__ import annotations

import ctypes
import functools
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm

import tvm_tiling as tt
from tvm_tiling.errors import WorkloadError
from tvm_tiling.model.export.export import export_variant
from tvm_tiling.model.foreign_variant import ForeignVariant
from tvm_tiling.model.kernels import Kernels
from tvm_tiling.runtime.arrays import numpy_type
from tvm_tiling.runtime.launcher import SOURCE as LAUNCH
from tvm_tiling.runtime.plan_runner import SOURCE as PLAN
from tvm_tiling.target import this_cpu

DRIVER = Path(__file__).with_name("emulated_kernel.c")
SYSROOT = Path("/usr/aarch64-linux-gnu")
COMPILER, QEMU = "aarch64-linux-gnu-gcc", "qemu-aarch64"
GUARD = 256  # bytes of ones before and after every tensor
ALIGNMENT = 64
SECONDS = 600  # limit for one run

needs_emulator = pytest.mark.skipif(
    not (shutil.which(COMPILER) and shutil.which(QEMU) and SYSROOT.is_dir()),
    reason=f"needs the emulator and the cross compiler: {QEMU}, {COMPILER}",
)


def done(*command: object, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    words = [str(word) for word in command]
    return subprocess.run(words, capture_output=True, text=True, timeout=SECONDS, cwd=folder, check=False)


def compiled(*arguments: object) -> None:
    """Run the cross compiler."""
    made = done(COMPILER, *arguments)
    assert made.returncode == 0, made.stderr


def emulated(
    program: Path, *arguments: object, folder: Path | None = None, processor: str = "max"
) -> subprocess.CompletedProcess[str]:
    """Run a program for AArch64; the processor "max" has all extensions that the emulator supports."""
    return done(QEMU, "-cpu", processor, "-L", SYSROOT, program, *arguments, folder=folder)


@functools.cache
def _parts() -> tuple[Path, list[Path]]:
    """The program that calls kernels, and the objects that are linked with it."""
    folder = Path(tempfile.mkdtemp(prefix="tvm-tiling-emulator-"))
    include = f"-I{PLAN.parent}"
    compiled("-O1", include, DRIVER, "-o", folder / "driver", "-ldl")
    objects = []
    for source in (LAUNCH, PLAN):
        objects.append(folder / f"{source.stem}.o")
        compiled("-O2", "-fPIC", "-pthread", "-c", source, "-o", objects[-1])
    return folder / "driver", objects


class EmulatedLibrary:
    """A module compiled by tvm.compile for AArch64: functions by name, which run in the emulator on tensors of this
    process."""

    def __init__(self, executable: Any) -> None:
        self.mod = executable.mod
        self._folder = tempfile.TemporaryDirectory(prefix="tvm-tiling-emulated-")
        self.path = Path(self._folder.name) / "kernels.so"

    def __getitem__(self, name: str) -> Any:
        self._link()
        return functools.partial(self._run, name)

    def __call__(self, *arguments: Any) -> None:
        self["main"](*arguments)

    def _link(self) -> None:
        if self.path.exists():
            return
        _, objects = _parts()
        kernels = self.path.with_suffix(".o")
        self.mod.write_to_file(str(kernels), "o")
        compiled("-shared", "-o", self.path, kernels, *objects, "-pthread", "-lm")

    def _run(self, name: str, *arguments: Any) -> None:
        driver, _ = _parts()
        request = Request(arguments)
        path = self.path.with_suffix(".request")
        path.write_bytes(request.content)
        ended = emulated(driver, self.path, f"__tvm_ffi_{name}", path)
        if ended.returncode:
            raise RuntimeError(ended.stderr.strip() or f"the kernel ended with {ended.returncode}")
        request.take(path.read_bytes())


class Request:
    """Arguments of a kernel as the file that the driver maps, including its results."""

    def __init__(self, arguments: Sequence[Any]) -> None:
        self._tensors: list[tuple[Any, int, int]] = []  # with their offset and bytes
        numbers: list[int] = [len(arguments)]
        places: list[int] = []  # where in `numbers` the offsets of tensors are
        for argument in arguments:
            if isinstance(argument, int):
                numbers += [0, argument]
                continue
            shape, steps = tuple(map(int, argument.shape)), _steps(argument)
            dtype = tvm.DataType(str(argument.dtype))
            numbers += [1, int(dtype.type_code), int(dtype.bits), 0, len(shape), *shape, *steps]
            places.append(len(numbers) - 2 - 2 * len(shape))
            last = sum((size - 1) * step for size, step in zip(shape, steps, strict=True)) + 1
            extent = 0 if 0 in shape else last * -(-int(dtype.bits) // 8)
            self._tensors.append((argument, 0, extent))
        end = -(-8 * len(numbers) // ALIGNMENT) * ALIGNMENT
        for index, (argument, _, extent) in enumerate(self._tensors):
            start = end + GUARD
            numbers[places[index]] = start
            self._tensors[index] = (argument, start, extent)
            end = -(-(start + extent + GUARD) // ALIGNMENT) * ALIGNMENT
        content = np.full(end, 0xFF, np.uint8)
        content[: 8 * len(numbers)] = np.array(numbers, np.int64).view(np.uint8)
        for argument, start, extent in self._tensors:
            content[start : start + extent] = _bytes(argument, extent)
        self.content = content.tobytes()

    def take(self, content: bytes) -> None:
        """Copy what the kernel wrote to the tensors. Raises AssertionError if it wrote outside of them."""
        found, before = np.frombuffer(content, np.uint8), np.frombuffer(self.content, np.uint8)
        beside = np.ones(len(found), bool)
        for argument, start, extent in self._tensors:
            beside[start : start + extent] = False
            _bytes(argument, extent)[...] = found[start : start + extent]
        assert np.array_equal(found[beside], before[beside]), "the kernel wrote beside its tensors"


def _steps(tensor: Any) -> tuple[int, ...]:
    if tensor.strides:
        return tuple(map(int, tensor.strides))
    shape = tuple(map(int, tensor.shape))
    return tuple(int(np.prod(shape[axis + 1 :], dtype=np.int64)) for axis in range(len(shape)))


def _bytes(tensor: Any, extent: int) -> np.ndarray:
    """Return the memory of a tensor."""
    if not extent:
        return np.empty(0, np.uint8)
    return np.frombuffer((ctypes.c_uint8 * extent).from_address(tensor.data_ptr()), np.uint8)


class ExportedModel:
    """A variant of a model as the C library of export(), built with its example in C."""

    def __init__(self, variant: Any, constants: Any) -> None:
        self._held = tempfile.TemporaryDirectory(prefix="tvm-tiling-exported-")
        self.folder = Path(self._held.name)
        self.plan = variant.library.plan
        self.exported = export_variant(variant, constants, self.folder / "model", "model")
        sources = [self.exported / f"{name}.c" for name in ("model", "plan", "launch", "main")]
        objects = sorted(self.exported.glob("*.o"))
        warnings = ("-Wall", "-Wextra", "-Werror")
        self.program = self.folder / "example"
        compiled("-std=c99", "-O1", *warnings, *sources, *objects, "-o", self.program, "-lm", "-pthread")

    def run(self, arrays: Sequence[np.ndarray], processor: str = "max") -> list[np.ndarray]:
        """Return the outputs. Raises WorkloadError with the library's message if it refuses an input."""
        files = []
        for number, array in enumerate(arrays):
            files.append(self.folder / f"input_{number}.bin")
            np.ascontiguousarray(array).tofile(files[-1])
        weights = self.exported / "model.weights"
        ended = emulated(self.program, weights, *files, folder=self.folder, processor=processor)
        if ended.returncode:
            raise WorkloadError(ended.stderr.strip() or f"the program ended with {ended.returncode}")
        found = []
        for number, kind in enumerate(self.plan.outputs):
            array = np.fromfile(self.folder / f"output_{number}.bin", numpy_type(kind.dtype))
            found.append(array.reshape(kind.shape))
        return found


def exported(executable: Any) -> ExportedModel:
    """Return the model of one variant."""
    (variant,) = executable.variants
    return ExportedModel(variant, executable._constants)


def _run_foreign(variant: ForeignVariant, arrays: Sequence[np.ndarray], threads: int | None = None) -> Any:
    """Run ForeignVariant.run in the emulator, with the threads that the model was compiled for."""
    found = getattr(variant, "exported", None)
    if found is None:
        found = variant.exported = ExportedModel(variant, variant.store)  # type: ignore[attr-defined]
    outputs = found.run(arrays)
    return outputs[0] if len(outputs) == 1 else tuple(outputs)


def _run_foreign_into(
    variant: ForeignVariant, arrays: Sequence[np.ndarray], outputs: Any, threads: int | None = None
) -> None:
    found = variant.run(arrays)
    outputs.write(list(found) if isinstance(found, tuple) else [found])


@contextmanager
def emulate(preset: str) -> Iterator[None]:
    """Treat the machine `preset` as this CPU, and run kernels and models for it in the emulator."""
    compile_here = tvm.compile
    machine = tt.Hardware.load(preset)

    def compile_there(mod: Any, target: Any = None, *options: Any, **named: Any) -> Any:
        made = compile_here(mod, target, *options, **named)
        triple = getattr(target, "attrs", {}).get("mtriple", "")
        return EmulatedLibrary(made) if "aarch64" in str(triple) else made

    make, here = ForeignVariant.__init__, tt.llvm_target()

    def with_store(variant: ForeignVariant, parts: Any) -> None:
        make(variant, parts)
        variant.store = parts.store  # type: ignore[attr-defined]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ForeignVariant, "__init__", with_store)
        patch.setattr(Kernels, "_target_here", lambda kernels: here)
        patch.setattr(ForeignVariant, "run", _run_foreign)
        patch.setattr(ForeignVariant, "run_into", _run_foreign_into)
        patch.setattr(tt.Hardware, "detect", classmethod(lambda cls: machine))
        patch.setattr(tvm, "compile", compile_there)
        this_cpu.cache_clear()
        try:
            yield
        finally:
            this_cpu.cache_clear()
