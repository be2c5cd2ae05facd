"""A compiled model: run it, time it, say where its time goes, keep it in one file."""

from __future__ import annotations

import io
import json
import os
import statistics
import tarfile
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import relax

from ..errors import ModelFormatError, WorkloadError, nearest
from ..lowering.threads import own_core, use_all_cores
from ..measure import interquartile_range
from .operators import Operator

FORMAT = "tvm-tiling-executable"
VERSION = 1
LIBRARY, METADATA = "model.so", "model.json"
LARGEST_METADATA = 64 << 20  # bytes


@dataclass(frozen=True, kw_only=True)
class Signature:
    """What a model takes and gives: names in graph order, shapes in elements, TVM's names of types."""

    input_names: tuple[str, ...]
    input_shapes: tuple[tuple[int, ...], ...]
    input_dtypes: tuple[str, ...]
    output_names: tuple[str, ...]

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> Signature:
        """What asdict() made of one, as JSON gives it back."""
        return cls(
            input_names=tuple(plain["input_names"]),
            input_shapes=tuple(tuple(int(size) for size in shape) for shape in plain["input_shapes"]),
            input_dtypes=tuple(plain["input_dtypes"]),
            output_names=tuple(plain["output_names"]),
        )


@dataclass(frozen=True, kw_only=True)
class OperatorRecord:
    """One operator of a model: times are seconds of all its calls in one run, None where unknown or not measured."""

    name: str
    kind: str
    calls: int
    flops: int
    form: str | None = None
    why: str = ""
    predicted_seconds: float | None = None
    measured_seconds: float | None = None
    decision: dict[str, Any] | None = None

    @classmethod
    def of(cls, operator: Operator) -> OperatorRecord:
        tiling = operator.tiling
        predicted = tiling.predicted_seconds if tiling is not None else None
        return cls(
            name=operator.name,
            kind=operator.kind,
            calls=operator.calls,
            flops=operator.flops * operator.calls,
            form=tiling.form if tiling is not None else None,
            why=tiling.why("form") if tiling is not None else "",
            predicted_seconds=None if predicted is None else predicted * operator.calls,
            decision=json.loads(tiling.to_json()) if tiling is not None else None,
        )


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """Seconds of a run, median and interquartile range, and of each operator, all its calls together."""

    median: float
    spread: float
    runs: int
    operators: dict[str, float]


@dataclass(frozen=True, kw_only=True)
class Report:
    """Every operator with its decision, predicted and measured time, the slowest first."""

    operators: tuple[OperatorRecord, ...]
    seconds: float | None

    def share(self, record: OperatorRecord) -> float | None:
        """Part of the measured time that an operator takes."""
        total = sum(o.measured_seconds or 0.0 for o in self.operators)
        return None if not total or record.measured_seconds is None else record.measured_seconds / total

    def to_dict(self) -> dict[str, Any]:
        return {
            "seconds": self.seconds,
            "operators": [{**asdict(o), "share": self.share(o)} for o in self.operators],
        }

    def __str__(self) -> str:
        lines = [
            f"{'operator':<44} {'kind':<12} {'form':<12} {'calls':>5} {'predicted':>12} {'measured':>12} {'share':>6}"
        ]
        for o in self.operators:
            share = self.share(o)
            lines.append(
                f"{o.name[:44]:<44} {o.kind:<12} {o.form or '-':<12} {o.calls:>5} {_us(o.predicted_seconds):>12} "
                f"{_us(o.measured_seconds):>12} {'-' if share is None else f'{share:.1%}':>6}"
            )
        return "\n".join(lines)


def _us(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e6:.0f} us"


class Executable:
    """A compiled model. `run` may be called from several threads at once; each has a state of its own."""

    def __init__(
        self,
        library: Any,
        signature: Signature,
        operators: Sequence[OperatorRecord],
        *,
        fingerprint: str,
        cores: int,
        content: bytes | None = None,
    ) -> None:
        """`library` is what relax.build returned, or a loaded module whose bytes are `content`; `cores` how many the
        kernels were made for."""
        self.signature, self.operators = signature, tuple(operators)
        self.fingerprint, self.cores = fingerprint, cores
        self._library, self._content = library, content
        self._state = threading.local()
        self._measured: Benchmark | None = None

    # ---- running ----------------------------------------------------------------------------------------------------

    def run(self, *arrays: Any, **named: Any) -> Any:
        """The model's outputs for NumPy inputs in graph order or by name; several outputs come as a tuple.

        WorkloadError says which input is missing, unknown, or of another shape or type than the model's.
        """
        return self._numpy(self._machine()["main"](*self._tensors(arrays, named)))

    def _machine(self) -> relax.VirtualMachine:
        if not hasattr(self._state, "machine"):
            use_all_cores(self.cores)
            self._state.machine = relax.VirtualMachine(self._library, tvm.cpu())
        machine: relax.VirtualMachine = self._state.machine
        return machine

    @staticmethod
    def _numpy(result: Any) -> Any:
        if isinstance(result, tvm.runtime.Tensor):
            return result.numpy()
        outputs = tuple(tensor.numpy() for tensor in result)
        return outputs[0] if len(outputs) == 1 else outputs

    def _tensors(self, arrays: Sequence[Any], named: dict[str, Any]) -> list[tvm.runtime.Tensor]:
        s = self.signature
        if len(arrays) > len(s.input_names):
            raise WorkloadError(
                f"{len(arrays)} inputs are given, the model takes {len(s.input_names)}: {_list(s.input_names)}"
            )
        values = dict(zip(s.input_names, arrays, strict=False))
        for name, value in named.items():
            known = name if name in s.input_names else _as_keyword(name, s.input_names)
            if known is None:
                raise WorkloadError(f"the model has no input {name!r}: {nearest(name, s.input_names)}")
            if known in values:
                raise WorkloadError(f"input {known!r} is given twice, accepted: once")
            values[known] = value
        if missing := [name for name in s.input_names if name not in values]:
            raise WorkloadError(f"input {missing[0]!r} is missing; the model takes {_list(s.input_names)}")
        checked = []
        for name, shape, dtype in zip(s.input_names, s.input_shapes, s.input_dtypes, strict=True):
            value = np.asarray(values[name])
            if value.shape != shape:
                raise WorkloadError(f"input {name!r} has shape {value.shape}, the model was compiled for {shape}")
            if value.dtype != np.dtype(dtype):
                raise WorkloadError(f"input {name!r} is {value.dtype}, the model takes {dtype}")
            checked.append(tvm.runtime.tensor(np.ascontiguousarray(value)))
        return checked

    # ---- measuring --------------------------------------------------------------------------------------------------

    def benchmark(self, *arrays: Any, seconds: float = 2.0, **named: Any) -> Benchmark:
        """Time runs on these inputs for about so many seconds, then each operator; the report shows it afterwards."""
        inputs, machine = self._tensors(arrays, named), self._machine()
        call = machine["main"]
        samples: list[float] = []
        with own_core():
            call(*inputs)
            until = time.perf_counter() + seconds
            while len(samples) < 5 or time.perf_counter() < until:
                start = time.perf_counter()
                call(*inputs)
                samples.append(time.perf_counter() - start)
            operators = self._operator_times(machine, inputs, runs=max(5, min(50, len(samples) // 4)))
        self._measured = Benchmark(
            median=statistics.median(samples),
            spread=interquartile_range(samples),
            runs=len(samples),
            operators=operators,
        )
        return self._measured

    def _operator_times(
        self, machine: relax.VirtualMachine, inputs: Sequence[tvm.runtime.Tensor], runs: int
    ) -> dict[str, float]:
        """Median seconds of each operator's calls together; what else the virtual machine does is named "runtime"."""
        known = {o.name for o in self.operators}
        totals: list[dict[str, float]] = []
        started = 0.0

        def instrument(_func: Any, symbol: str, before: bool, _result: Any, *_: Any) -> None:
            nonlocal started
            if before:
                started = time.perf_counter()
                return
            name = symbol.removesuffix("_packed")
            name = name if name in known else "runtime"
            totals[-1][name] = totals[-1].get(name, 0.0) + time.perf_counter() - started

        machine.set_instrument(instrument)
        try:
            for _ in range(runs):
                totals.append({})
                machine["main"](*inputs)
        finally:
            # A machine cannot be rid of its instrument; the next call makes another one.
            del self._state.machine
        names = dict.fromkeys(name for run in totals for name in run)
        return {name: statistics.median(run.get(name, 0.0) for run in totals) for name in names}

    def report(self) -> Report:
        """Operators with their decisions, and their times if `benchmark` has been called, the slowest first."""
        measured = self._measured.operators if self._measured is not None else {}
        records = [replace(o, measured_seconds=measured.get(o.name)) for o in self.operators]
        if "runtime" in measured:
            records.append(
                OperatorRecord(name="runtime", kind="runtime", calls=1, flops=0, measured_seconds=measured["runtime"])
            )
        records.sort(key=lambda o: -(o.measured_seconds or o.predicted_seconds or 0.0))
        return Report(operators=tuple(records), seconds=self._measured.median if self._measured else None)

    def describe(self) -> dict[str, Any]:
        """Signature and operators as plain values."""
        return {"signature": asdict(self.signature), "operators": [asdict(o) for o in self.operators]}

    def signature_lines(self) -> list[str]:
        """One line for each input, and one for the outputs."""
        s = self.signature
        lines = [
            f"input {name}: {' x '.join(map(str, shape)) or 'scalar'} {dtype}"
            for name, shape, dtype in zip(s.input_names, s.input_shapes, s.input_dtypes, strict=True)
        ]
        return [*lines, f"outputs: {', '.join(s.output_names)}"]

    # ---- files ------------------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to one file, whole or not at all. A C compiler links the kernels."""
        target = Path(path)
        metadata = {
            "format": FORMAT,
            "version": VERSION,
            "fingerprint": self.fingerprint,
            "cores": self.cores,
            **self.describe(),
        }
        with tempfile.TemporaryDirectory(prefix="tvm-tiling-") as folder:
            library = Path(folder) / LIBRARY
            self._export(library)
            handle, partial = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
            try:
                with os.fdopen(handle, "wb") as file, tarfile.open(fileobj=file, mode="w") as archive:
                    _add(archive, METADATA, json.dumps(metadata, sort_keys=True).encode())
                    archive.add(library, LIBRARY)
                os.replace(partial, target)
            except BaseException:
                Path(partial).unlink(missing_ok=True)
                raise

    def _export(self, path: Path) -> None:
        if self._content is not None:
            path.write_bytes(self._content)
        else:
            self._library.export_library(str(path))


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    archive.addfile(entry, io.BytesIO(content))


def load(path: str | os.PathLike[str]) -> Executable:
    """A saved executable. It is native code: load files of people you trust only.

    Needs neither the model nor a compiler. ModelFormatError says what is wrong with the file.
    """
    try:
        with tarfile.open(path, "r:") as archive:
            metadata = _read(archive, METADATA, LARGEST_METADATA, path)
            library = _read(archive, LIBRARY, None, path)
    except (tarfile.TarError, EOFError) as error:
        raise ModelFormatError(
            f"{os.fspath(path)} is no saved executable ({error}); accepted: what save() wrote"
        ) from None
    except OSError as error:
        raise ModelFormatError(f"{os.fspath(path)} cannot be read: {error.strerror or error}") from None
    try:
        known = json.loads(metadata)
        if (known["format"], known["version"]) != (FORMAT, VERSION):
            raise ModelFormatError(f"{os.fspath(path)} is of version {known['version']}; accepted: {VERSION}")
        signature = Signature.from_dict(known["signature"])
        operators = [OperatorRecord(**record) for record in known["operators"]]
    except (ValueError, KeyError, TypeError) as error:
        raise ModelFormatError(
            f"{os.fspath(path)}: its description is damaged ({error}); accepted: what save() wrote"
        ) from None
    with tempfile.TemporaryDirectory(prefix="tvm-tiling-") as folder:
        file = Path(folder) / LIBRARY
        file.write_bytes(library)
        # The system keeps the mapping when the file is gone.
        module = tvm.runtime.load_module(str(file))
    return Executable(
        module, signature, operators, fingerprint=known["fingerprint"], cores=known["cores"], content=library
    )


def _read(archive: tarfile.TarFile, name: str, most: int | None, path: str | os.PathLike[str]) -> bytes:
    try:
        member = archive.getmember(name)
    except KeyError:
        raise ModelFormatError(f"{os.fspath(path)} holds no {name}; accepted: what save() wrote") from None
    if not member.isreg() or (most is not None and member.size > most):
        raise ModelFormatError(f"{os.fspath(path)}: {name} is no file of at most {most} bytes")
    file = archive.extractfile(member)
    assert file is not None
    content = file.read()
    if len(content) != member.size:
        raise ModelFormatError(f"{os.fspath(path)} is cut short within {name}")
    return content


def _as_keyword(name: str, names: Sequence[str]) -> str | None:
    """The one input that `name` stands for where its own name is no Python identifier."""
    found = [n for n in names if "".join(c if c.isalnum() else "_" for c in n) == name]
    return found[0] if len(found) == 1 else None


def _list(names: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names)
