"""What the demo leaves in its directory, and the commands that continue from there."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..atomic_file import refuse_unwritable
from ..errors import WorkloadError
from .array_file import write_arrays
from .bench_model import timed_model

if TYPE_CHECKING:
    from ..model.executable import Executable
    from ..model.profile import Profile
    from ..model.report import Benchmark

DIRECTORY = "tvm-tiling-demo"
MARKER = ".tvm-tiling-demo"  # an empty file in directories of earlier demos, whose files may be replaced


@dataclass(frozen=True)
class DemoFiles:
    """The files of a demo: `model` is the file given by the user, or a path in `directory`; the others are written."""

    directory: Path
    model: Path
    executable: Path = field(init=False)
    inputs: Path = field(init=False)
    report: Path = field(init=False)

    def __post_init__(self) -> None:
        for name, file in (("executable", "model.tar"), ("inputs", "input.npz"), ("report", "report.html")):
            object.__setattr__(self, name, self.directory / file)

    @classmethod
    def prepare(cls, directory: Path, model: str) -> DemoFiles:
        """The files for a model, or for the built-in one if `model` is empty. Creates the directory. Raises OSError if
        it or a file cannot be written, or if a file of those names is not from an earlier demo."""
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            raise NotADirectoryError(f"-o {directory} is not a directory; expected a directory to write to") from None
        except OSError as error:
            raise type(error)(f"-o {directory} cannot be created: {error.strerror or error}") from None
        files = cls(directory, Path(model) if model else directory / "model.onnx")
        written = files.written if model else (files.model, *files.written)
        if not (directory / MARKER).exists() and (found := [path for path in written if path.exists()]):
            raise FileExistsError(f"{found[0]} exists and is not from an earlier demo; use another directory for -o")
        for path in written:
            refuse_unwritable(path)
        (directory / MARKER).touch()
        return files

    @property
    def written(self) -> Sequence[Path]:
        """The files that a demo of any model writes."""
        return self.executable, self.inputs, self.report

    def save(self, title: str, executable: Executable, inputs: Mapping[str, Any], measured: Benchmark) -> None:
        """Write the executable, its inputs and its report."""
        from ..report.save import save_report

        executable.save(self.executable)
        write_arrays(self.inputs, inputs)
        timed = timed_model(title, executable.report(), measured, profile=_profile(executable, inputs))
        save_report(timed, self.report)

    def to_dict(self) -> dict[str, str]:
        """Paths as strings, for JSON."""
        paths = {"model": self.model, "executable": self.executable, "inputs": self.inputs, "report": self.report}
        return {name: str(path) for name, path in paths.items()}

    def next_commands(self) -> list[str]:
        """Three commands that work on these files, as they can be pasted into a shell."""
        output, database = self.directory / "output.npz", self.directory / "shapes.db"
        commands = (
            ("run", self.executable, "--input", self.inputs, "-o", output),
            ("explain", self.model),
            ("tune", self.model, "--database", database, "--trials", "16"),
        )
        program = _program()
        return [shlex.join([*program, *map(str, words)]) for words in commands]


def _profile(executable: Executable, inputs: Mapping[str, Any]) -> Profile | None:
    """A profile; None for an executable in TVM's thread pool, which has none."""
    try:
        return executable.profile(**inputs)
    except WorkloadError:
        return None


def _program() -> list[str]:
    """The words that call this program: its name if the shell finds it, otherwise its path or its module."""
    called, found = Path(sys.argv[0]), shutil.which("tvm-tiling")
    if not called.is_file() or (found is not None and os.path.samefile(found, called)):
        return ["tvm-tiling"]
    return ["python", "-m", "tvm_tiling"] if called.name == "__main__.py" else [str(called)]
