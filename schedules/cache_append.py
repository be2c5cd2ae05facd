"""Appends new rows to a cache, in place if the result shares the memory of the past rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from tvm import tirx
from tvm.script.ir_builder import tirx as T  # noqa: N812

from ..decide.vector.cache_append import AppendTiling, CacheAppend, decide_append
from ..hardware.description import Cpu
from ..lowering.described import declare
from ..lowering.loops import share, when
from ..lowering.prim_func import ScheduledOperator, root, write_function
from ..lowering.registers import counted
from ..lowering.samples import is_open
from ..match.described import at_sample

Expr: TypeAlias = tirx.Expr
Index: TypeAlias = tirx.Expr | int


_APART = "tvm_tiling.apart"
# TVM cannot compare addresses, so LLVM code does. It is on one line, as TVMScript prints it.
_LLVM = (
    f"define i64 @{_APART}(ptr %a, ptr %b) {{ %apart = icmp ne ptr %a, %b %found = zext i1 %apart to i64 "
    "ret i64 %found }"
)


def _held(value: Index) -> Expr:
    return counted(tirx.Cast("int64", value) if is_open(value) else tirx.const(int(value), "int64"), 0)


class _Emitter:
    def __init__(self, sizes: CacheAppend, tiling: AppendTiling, buffers: Mapping[str, tirx.Var]) -> None:
        self.a, self.tiling, self.buffers = sizes, tiling, buffers

    def emit(self) -> None:
        a, b, tasks = self.a, self.buffers, self.tiling.tasks
        with T.parallel(0, tasks) if tasks > 1 else T.serial(0, 1) as task:
            room, length, every = map(_held, (a.room, a.length, a.every))
            addresses = [T.address_of(b[name][0]) for name in ("past", "present")]
            apart = counted(T.call_pure_extern("int64", _APART, *addresses), 0)
            first, end = share(a.batch * a.groups, task, tasks)
            with T.serial(0, end - first) as turn:
                head = _held(first + turn)
                batch, group = tirx.floordiv(head, a.groups), tirx.floormod(head, a.groups)
                before = _held(tirx.min(tirx.Cast("int64", b["before"][batch]), every))
                behind = _held(tirx.min(before + length, every))
                source, target = head * room * a.width, head * every * a.width
                with when(apart > 0):
                    self.copy(source, target, tirx.min(before, room))
                    kept = _held(tirx.max(tirx.min(room, every), behind))
                    self.copy(source + behind * a.width, target + behind * a.width, kept - behind)
                    self.clear(target + kept * a.width, every - kept)
                with T.serial(0, behind - before) as row:
                    start = ((batch * length + row) * a.groups + group) * a.width
                    self.row("new", start, target + (before + row) * a.width)

    def copy(self, source: Expr, target: Expr, rows: Expr) -> None:
        with T.serial(0, rows) as row:
            self.row("past", source + row * self.a.width, target + row * self.a.width)

    def row(self, name: str, source: Expr, target: Expr) -> None:
        """Copy one row of `width` elements."""
        lanes, width = self.tiling.lanes, self.a.width
        for start in range(0, width, lanes):
            with T.vectorized(0, min(lanes, width - start)) as lane:
                T.buffer_store(
                    self.buffers["present"], self.buffers[name][source + start + lane], [target + start + lane]
                )

    def clear(self, target: Expr, rows: Expr) -> None:
        with T.serial(0, rows * self.a.width) as element:
            T.buffer_store(self.buffers["present"], tirx.const(0.0, "float32"), [target + element])


def schedule_append(sizes: CacheAppend, name: str, cpu: Cpu) -> ScheduledOperator:
    """Return the kernel; its parameters are those of the description in order."""
    chosen = decide_append(at_sample(sizes), cpu)

    def main() -> None:
        buffers = declare(sizes)
        with root(), T.attr({"pragma_import_llvm": _LLVM}):
            _Emitter(sizes, chosen, {called: each.view(-1) for called, each in buffers.items()}).emit()

    return ScheduledOperator(chosen, write_function(name, chosen, main))
