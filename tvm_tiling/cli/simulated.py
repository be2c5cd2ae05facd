"""The subjects of `simulate` and `sweep`: the file of a program, a model, or an operator as text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..accel.program.magic import is_program
from ..accel.program.program import Program
from ..accel.report.report import SimReport, Table, headline, tables
from ..decide.decide import decide
from ..decide.gemm.best import Prefer
from ..decide.rnn.column import decide_rnn
from ..decide.tiling import Decision
from ..errors import ProgramError
from ..hardware import Hardware
from ..workload import ConvWorkload, GemmWorkload, RnnWorkload
from .model_options import ModelOptions, accelerator_of, arrays_of, is_executable, unknown_subject
from .operator_text import OPERATORS, Workload, parse_operator
from .table import print_table, without_zeros

if TYPE_CHECKING:
    from ..accel.report.layer_map import LayerMap
    from ..model.accel.executable import AcceleratedExecutable

MACHINE = "neartile"  # default for operators and models
COLUMN_MACHINE = "rnn16k"  # default for recurrent layers
NO_OPTIONS = ModelOptions()


@dataclass(frozen=True)
class Subject:
    """What to simulate, and where. `program`: a program, or a function that records it for a machine. `hardware`: the
    machine to simulate. `left`: for a model, the reason why each operator on the CPU is there, by name; `nodes`: the
    nodes of the model that it computes. `is_file`: the program comes from a file and may have hazards. `workload`: of
    an operator, whose decision optimises `prefer`."""

    name: str
    hardware: Hardware
    program: Program | Callable[[Hardware], Program]
    left: Mapping[str, str] | None = None
    nodes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    is_file: bool = False
    workload: Workload | None = None
    prefer: Prefer = "utilisation"

    def on_its_machine(self) -> Program:
        """The program for `hardware`."""
        return self.program if isinstance(self.program, Program) else self.program(self.hardware)

    def mapped(self) -> tuple[Program, LayerMap]:
        """The operator's program for `hardware` with its loop mapping. ProgramError for anything but a matrix
        multiplication or a convolution."""
        if not isinstance(self.workload, (GemmWorkload, ConvWorkload)):
            raise ProgramError(f"{self.name} has no loop mapping; --map expects a gemm or a conv")
        from ..accel.report.layer_map import layer_map  # imports TVM
        from ..accel.workload_program import workload_blocks

        recorded = workload_blocks(self.workload, self.hardware, prefer=self.prefer)
        return recorded.program, layer_map(recorded)

    def decision(self) -> Decision | None:
        """The tiling of an operator on `hardware`; None for other subjects."""
        return None if self.workload is None else decide(self.workload, self.hardware, prefer=self.prefer)


def subject_of(
    words: Sequence[str], target: str, model: ModelOptions = NO_OPTIONS, prefer: str = "utilisation"
) -> Subject:
    """The subject that `words` name: a program's file, a model, a model compiled for an accelerator, or an operator
    such as "gemm 64 64 64".

    `target`: an accelerator; by default the one that a program was made for, neartile for operators and models, rnn16k
    for recurrent layers, which are computed in int16 unless they name a type. `model`: options of a model. `prefer`:
    the objective of a gemm or a conv. ProgramError if `words` name none of these, OperatorTextError, with the place of
    the word, if an operator cannot be parsed.
    """
    name = " ".join(words)
    if prefer != "utilisation" and (Path(name).is_file() or not name.startswith(("gemm ", "conv "))):
        raise ProgramError(f"--prefer applies to a single gemm or conv; {name} is neither")
    if Path(name).is_file() and not _is_program(name):
        return _model(name, target, model)
    if model.given:
        raise ProgramError(f"--batch, --dim, --shape and --calibration apply to models; '{name}' is not a model")
    if Path(name).is_file():
        program = Program.load(name)
        return Subject(name, accelerator_of(target, "") if target else program.hardware, program, is_file=True)
    if not words or not name.split() or name.split()[0] not in OPERATORS:
        raise ProgramError(
            unknown_subject(name, f"a program, a model, or an operator that begins with one of {', '.join(OPERATORS)}")
        )
    workload = parse_operator(name)
    if isinstance(workload, RnnWorkload):
        return _layers(name, workload, target)

    def record(machine: Hardware) -> Program:
        from ..accel.workload_program import workload_program  # imports TVM

        return workload_program(workload, machine, prefer=prefer)  # type: ignore[arg-type]

    return Subject(name, accelerator_of(target, MACHINE), record, workload=workload, prefer=prefer)  # type: ignore[arg-type]


def _layers(name: str, workload: RnnWorkload, target: str) -> Subject:
    """Recurrent layers: all steps of all sequences."""
    if not any(word.startswith(("dtype=", "acc_dtype=")) for word in name.split()):
        workload = replace(workload, dtype="int16", acc_dtype=None)

    def record(machine: Hardware) -> Program:
        from ..accel.recurrent.layer import FixedPoint
        from ..accel.recurrent.sequences import sequence_program

        return sequence_program(workload, decide_rnn(workload, machine), machine, FixedPoint())

    return Subject(name, accelerator_of(target, COLUMN_MACHINE), record, workload=workload)


def print_simulated(report: SimReport, subject: Subject) -> None:
    """Print the report as tables, then the operators that run on the CPU."""
    from ..model.report import nodes_text

    print("\n".join(headline(report)))
    left = [(nodes_text(subject.nodes.get(name, ())), name, why) for name, why in (subject.left or {}).items()]
    further = [Table("On the CPU", ("on the CPU", "kernel", "reason"), left)] if left else []
    for table in (*tables(report), *further):
        print()
        print_table(*without_zeros(table.headings, table.rows))


def _is_program(path: str) -> bool:
    """Whether a file is a program, by its content or its suffix."""
    return is_program(path) or Path(path).suffix == ".vsim"


def _model(path: str, target: str, options: ModelOptions) -> Subject:
    """The part of a model that runs on the accelerator. The model is compiled for it unless the file is compiled."""
    from ..model.accel.executable import AcceleratedExecutable

    if is_executable(path):
        from ..model.load import load

        executable = load(path)
        if options.given:
            raise ProgramError(f"{path} is compiled already; --batch, --dim, --shape and --calibration apply to models")
        if not isinstance(executable, AcceleratedExecutable):
            raise ProgramError(f"{path} is compiled for a CPU; expected a model, or one compiled for an accelerator")
        on = accelerator_of(target, "") if target else executable.program.hardware
        return Subject(path, on, executable.program, executable.left, _nodes(executable))
    from ..model.compile import compile_model

    machine = accelerator_of(target, MACHINE)
    data = [arrays_of(file) for file in options.calibration] or None
    executable = compile_model(path, target=machine, calibration=data, **options.sizes())
    return Subject(path, machine, executable.program, executable.left, _nodes(executable))


def _nodes(executable: AcceleratedExecutable) -> dict[str, Sequence[str]]:
    """The nodes of each operator on the CPU, by the operator's name."""
    return {operator.name: operator.nodes for operator in executable.operators}
