"""What `simulate` and `sweep` work on: a program's file, a model, or an operator as text, recorded for a machine."""

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
from .model_options import ModelOptions, arrays_of, is_executable
from .operator_text import OPERATORS, Workload, parse_operator
from .table import print_table, without_zeros

if TYPE_CHECKING:
    from ..accel.report.layer_map import LayerMap
    from ..model.accel.executable import AcceleratedExecutable

MACHINE = "neartile"  # for operators and models, where none is named
COLUMN_MACHINE = "rnn16k"  # for recurrent layers
NO_OPTIONS = ModelOptions()


@dataclass(frozen=True)
class Subject:
    """`program` for a machine, the same for every machine where it comes from a file or a model; `hardware` is where
    it runs. `left`: of a model, why operators run on the CPU, by name; None of anything else; `nodes`: the nodes of the
    model that these are. `is_file`: the program
    comes from a file of its own, so that nobody knows whether it is legal. `workload` is an operator's, whose decision
    is best in what it is told to `prefer`.
    """

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
        """The operator's program for `hardware`, and how it is mapped there. ProgramError for anything but a product or
        a convolution."""
        if not isinstance(self.workload, (GemmWorkload, ConvWorkload)):
            raise ProgramError(f"{self.name}: a map is of loops; accepted: a product or a convolution")
        from ..accel.report.layer_map import layer_map  # brings TVM
        from ..accel.workload_program import workload_blocks

        recorded = workload_blocks(self.workload, self.hardware, prefer=self.prefer)
        return recorded.program, layer_map(recorded)

    def decision(self) -> Decision | None:
        """How an operator is cut on `hardware`; None of anything else."""
        return None if self.workload is None else decide(self.workload, self.hardware, prefer=self.prefer)


def subject_of(
    words: Sequence[str], hardware: str, model: ModelOptions = NO_OPTIONS, prefer: str = "utilisation"
) -> Subject:
    """A file that Program.save wrote, a model or what was compiled of one for an accelerator, or else an operator such
    as "gemm 64 64 64".

    `hardware` is a preset or a TOML file; empty is the machine that the program was made for, for operators and models
    the preset neartile, for recurrent layers rnn16k. These are computed in int16 where no type is named. `model` has
    the sizes of a model, and names .npz files with inputs by which it is quantised; `prefer` is what the decision of a
    product or a convolution is best in, as decide() has it. ProgramError for what is none of these,
    OperatorTextError, with word and place, for an operator that cannot be read.
    """
    name = " ".join(words)
    if prefer != "utilisation" and (Path(name).is_file() or not name.startswith(("gemm ", "conv "))):
        raise ProgramError(f"{name}: --prefer is of one decision; accepted: a product or a convolution")
    if Path(name).is_file() and not _is_program(name):
        return _model(name, hardware, model)
    if model.given:
        raise ProgramError(f"--batch, --dim, --shape and --calibration are for models; {name!r} is not a model")
    if Path(name).is_file():
        program = Program.load(name)
        return Subject(name, Hardware.load(hardware) if hardware else program.hardware, program, is_file=True)
    if not words or name.split()[0] not in OPERATORS:
        raise ProgramError(
            f"{name!r} is neither a file nor an operator; accepted: a program that Program.save wrote, a model, or an "
            f"operator that begins with one of {', '.join(OPERATORS)}"
        )
    workload = parse_operator(name)
    if isinstance(workload, RnnWorkload):
        return _layers(name, workload, hardware)

    def record(machine: Hardware) -> Program:
        from ..accel.workload_program import workload_program  # brings TVM

        return workload_program(workload, machine, prefer=prefer)  # type: ignore[arg-type]

    return Subject(name, Hardware.load(hardware or MACHINE), record, workload=workload, prefer=prefer)  # type: ignore[arg-type]


def _layers(name: str, workload: RnnWorkload, hardware: str) -> Subject:
    """Recurrent layers, all steps of all sequences."""
    if not any(word.startswith(("dtype=", "acc_dtype=")) for word in name.split()):
        workload = replace(workload, dtype="int16", acc_dtype=None)

    def record(machine: Hardware) -> Program:
        from ..accel.recurrent.layer import FixedPoint
        from ..accel.recurrent.sequences import sequence_program

        return sequence_program(workload, decide_rnn(workload, machine), machine, FixedPoint())

    return Subject(name, Hardware.load(hardware or COLUMN_MACHINE), record, workload=workload)


def print_simulated(report: SimReport, subject: Subject) -> None:
    """The report as tables, and last what is left to the CPU."""
    from ..model.report import nodes_text

    print("\n".join(headline(report)))
    left = [(name, nodes_text(subject.nodes.get(name, ())), why) for name, why in (subject.left or {}).items()]
    further = [Table("On the CPU", ("on the CPU", "nodes", "why"), left)] if left else []
    for table in (*tables(report), *further):
        print()
        print_table(*without_zeros(table.headings, table.rows))


def _is_program(path: str) -> bool:
    """Whether a file is a program, or nothing else that could be meant."""
    return is_program(path) or Path(path).suffix == ".vsim"


def _model(path: str, hardware: str, options: ModelOptions) -> Subject:
    """A model's part on the accelerator, compiled for the machine or compiled before."""
    from ..model.accel.executable import AcceleratedExecutable

    if is_executable(path):
        from ..model.load import load

        executable = load(path)
        if options.given or not isinstance(executable, AcceleratedExecutable):
            raise ProgramError(f"{path} is compiled{'' if options.given else ' for a CPU'}; accepted: a model")
        on = Hardware.load(hardware) if hardware else executable.program.hardware
        return Subject(path, on, executable.program, executable.left, _nodes(executable))
    from ..model.compile import compile_model

    machine = Hardware.load(hardware or MACHINE)
    data = [arrays_of(file) for file in options.calibration] or None
    executable = compile_model(path, target=machine, calibration=data, **options.sizes())
    return Subject(path, machine, executable.program, executable.left, _nodes(executable))


def _nodes(executable: AcceleratedExecutable) -> dict[str, Sequence[str]]:
    """The nodes of each operator on the CPU."""
    return {operator.name: operator.nodes for operator in executable.operators}
