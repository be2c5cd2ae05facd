"""A matrix multiplication with its operands and sums brought onto the chip: the common start of the accelerator
schedules."""

from __future__ import annotations

import tvm
from tvm import s_tir, tirx

from ..errors import HardwareError, UnsupportedOperator
from ..hardware.description import Hardware
from ..lowering.accel.flatten import flatten_axes
from ..lowering.accel.moves import Block, LoopRV
from ..lowering.accel.operands import further_operands
from ..match import GemmProgram
from ..match.access import Access, variables

# The type of sums, by the bytes per sum on the machine and the type of the operands.
SUMS = {
    4: {
        "int8": "int32",
        "uint8": "int32",
        "int16": "int32",
        "float32": "float32",
        "float16": "float32",
        "bfloat16": "float32",
    },
    2: {
        "int8": "int16",
        "uint8": "int16",
        "int16": "int16",
        "float32": "float16",
        "float16": "float16",
        "bfloat16": "bfloat16",
    },
}


def sum_types(hardware: Hardware) -> dict[str, str]:
    """Return the type of sums for each type of operands on `hardware.near_tile`. Raises HardwareError if it keeps too
    few bytes per sum."""
    unit = hardware.near_tile
    kept = (unit.acc_bytes_per_element if unit else None) or 4
    if kept not in SUMS and kept < 4:
        raise HardwareError(
            f"hardware {hardware.name!r}: near_tile.acc_bytes_per_element = {kept}; expected 2, or at least 4, for "
            "programs"
        )
    return SUMS[2 if kept == 2 else 4]


class ProductOnChip:
    """The schedule of a matrix multiplication with its blocks on the chip and one loop each for m, n and k.

    Operands are loaded to `memory_a` and `memory_b`, sums stay in `memory_sums`, and the epilogue's results are in
    `memory_out`. Raises UnsupportedOperator for operands that are computed or of unsupported types.
    """

    def __init__(
        self,
        program: GemmProgram,
        sums: dict[str, str],
        *,
        memory_sums: str,
        memory_a: str = "a",
        memory_b: str = "b",
        memory_out: str = "out",
    ) -> None:
        self.program = program
        self.a_first = False  # load order of two operands at the same loop
        self.memory_a, self.memory_b, self.memory_sums, self.memory_out = memory_a, memory_b, memory_sums, memory_out
        size = program.workload
        if size.dtype not in sums or program.a.dtype != program.b.dtype:
            raise UnsupportedOperator(
                f"{program.name}: multiplication of {program.a.dtype} by {program.b.dtype}; expected two operands of "
                "the "
                f"same type, one of {', '.join(sums)}"
            )
        self.sum_type = sums[size.dtype]
        for operand in (program.a, program.b):
            if operand.buffer is None:
                raise UnsupportedOperator(
                    f"{program.name}: the operand {operand.expr} is computed; expected operands that are read from "
                    "memory"
                )
        self.sch = s_tir.Schedule(tvm.IRModule({program.name: program.func}), debug_mask="none")
        self.sch.work_on(program.name)
        self.product = self._product_block()

    def _product_block(self) -> Block:
        sch = self.sch
        for block in sch.get_child_blocks(sch.get_sblock("root")):
            if sch.get(block).init is not None:
                return block
        raise UnsupportedOperator(f"{self.program.name}: no block reduces")

    def bring_on_chip(self) -> tuple[list[LoopRV], LoopRV, LoopRV, LoopRV]:
        """Create the buffers and return the loops: batch, m, n and k. Afterwards `load_a` and `load_b` are the loading
        blocks, and `behind` the blocks after the sums."""
        consumers = self.sch.get_consumers(self.product)
        self.behind = self._sums_on_chip(consumers[0] if consumers else None)
        self.load_a, self.load_b = self._operands_on_chip()
        return self._axes()

    def _sums_on_chip(self, epilogue: Block | None) -> list[Block]:
        """Put the sums in the machine's memory and type; return the blocks after the matrix multiplication in order."""
        sch, scope = self.sch, f"global.{self.memory_sums}"
        if epilogue is None:
            sum_type = str(sch.get(self.product).body.buffer.dtype)
            behind = [sch.cache_write(self.product, 0, scope)]
            if sum_type != self.sum_type:
                behind.append(sch.cache_write(behind[0], 0, f"global.{self.memory_out}"))
        else:
            sum_type = str(sch.get(self.product).body.buffer.dtype)
            sch.set_scope(self.product, 0, scope)
            behind = [epilogue, sch.cache_write(epilogue, 0, f"global.{self.memory_out}")]
        if sum_type != self.sum_type:
            sch.unsafe_set_dtype(self.product, 0, self.sum_type)
        return behind

    def _operands_on_chip(self) -> tuple[Block, Block]:
        """Put A and B in their buffers with the reduction axis innermost in both, so that pieces of rows are
        contiguous."""
        sch, program = self.sch, self.program
        block = sch.get(self.product)
        own = [axis.var for axis in block.iter_vars]
        places = []
        for operand in (program.a, program.b):
            number = next(i for i, r in enumerate(block.reads) if r.source.same_as(operand.buffer))
            places.append(number)
        names = {variable.name: i for i, variable in enumerate(own)}

        def cached(operand: Access, number: int, scope: str, order: tuple[int, ...]) -> Block:
            used = {variable.name for variable in variables(operand.expr)}
            fresh = [tirx.Var(variable.name, str(variable.ty)) for variable in own]
            indices = [fresh[names[v.name]] for group in order for v in operand.axes[group] if v.name in used]
            return sch.reindex_cache_read(self.product, number, scope, tirx.IndexMap(fresh, indices, None))

        # The block created last comes first.
        made = {}
        for axis in "ba" if self.a_first else "ab":
            if axis == "a":
                made[axis] = cached(program.a, places[0], f"global.{self.memory_a}", (0, 1, 2))
            else:
                made[axis] = cached(program.b, places[1], f"global.{self.memory_b}", (0, 2, 1))
        return made["a"], made["b"]

    def _axes(self) -> tuple[list[LoopRV], LoopRV, LoopRV, LoopRV]:
        """Return the loops of the matrix multiplication as batch, m, n and k, a single one each except for the
        batch."""
        sch, program = self.sch, self.program
        groups = [program.out_axes[0], program.out_axes[1], program.out_axes[2], program.a.axes[2]]
        if any(len(group) != 1 for group in groups[1:]):
            flatten_axes(sch, self.product, (self.load_a, self.load_b), self.behind, groups)
            *batch, m, n, k = sch.get_loops(self.product)
            self.rows_and_columns = tuple(axis.var.name for axis in sch.get(self.product).iter_vars[-3:-1])
            return batch, m, n, k
        self.rows_and_columns = tuple(group[0].name for group in groups[1:3])
        block = sch.get(self.product)
        loops = {axis.var.name: loop for axis, loop in zip(block.iter_vars, sch.get_loops(self.product), strict=True)}
        batch, (m,), (n,), (k,) = ([loops[v.name] for v in group] for group in groups)
        sch.reorder(*batch, m, n, k)
        return batch, m, n, k

    def further_operands(self, block: Block) -> list[Block]:
        """Load what the epilogue reads in addition to the sums onto the chip."""
        sums = self.sch.get(self.product).body.buffer
        return further_operands(self.sch, block, [sums], self.memory_out)
