"""Inner loops of AArch64 kernels: their instructions, and llvm-mca's analysis of them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import te

import tvm_tiling as tt

SUMS = {"float32": "float32", "float64": "float64", "float16": "float32", "bfloat16": "float32"}
ITERATIONS = 200


@dataclass(frozen=True)
class Loop:
    """A loop without inner loops: its instructions."""

    lines: tuple[str, ...]

    def count(self, pattern: str) -> int:
        return sum(bool(re.match(pattern, line)) for line in self.lines)

    @property
    def spills(self) -> list[str]:
        """Instructions that move vectors between registers and the stack, or between registers."""
        moves = r"(ldr|ldp|str|stp|ldur|stur)\s+[qds]\d.*\[sp|mov\s+v\d"
        return [line for line in self.lines if re.match(moves, line)]

    def cycles(self, processor: str) -> float:
        """Cycles per iteration according to llvm-mca."""
        body = "\n".join(line for line in self.lines if not re.match(r"b\.|cbn?z|tbn?z", line))
        command = [mca(), "-mtriple=aarch64", f"-mcpu={processor}", f"-iterations={ITERATIONS}"]
        command += ["-mattr=+dotprod,+bf16,+i8mm,+fullfp16"]
        done = subprocess.run(command, input=body, capture_output=True, text=True, check=True)
        found = re.search(r"Total Cycles:\s+(\d+)", done.stdout)
        assert found is not None
        return int(found[1]) / ITERATIONS


def mca() -> str:
    """Return llvm-mca of LLVM 19 or later, which supports Neoverse V1; empty if there is none."""
    return next((path for release in (22, 21, 20, 19) if (path := shutil.which(f"llvm-mca-{release}"))), "")


def inner_loops(assembly: str) -> list[Loop]:
    """Return every stretch from a block's label to a jump back to it without another such label in between."""
    found: list[Loop] = []
    label, lines = "", []
    for line in assembly.splitlines():
        text = line.split("//")[0].strip()
        if re.fullmatch(r"\.LBB\w+:", text):
            label, lines = text[:-1], []
        elif text and not text.startswith("."):
            lines.append(text)
            if re.match(r"b\.|cbn?z|tbn?z", text) and text.split()[-1] == label:
                found.append(Loop(tuple(lines)))
    return found


def product_loops(
    m: int, n: int, k: int, machine: tt.Hardware, dtype: str, **options: Any
) -> tuple[dict[str, Any], list[Loop]]:
    """Return (the decision, the loops) of one matrix multiplication."""
    a, b, acc = te.placeholder((m, k), dtype, "A"), te.placeholder((k, n), dtype, "B"), SUMS.get(dtype, "int32")
    x = te.reduce_axis((0, k), "x")
    op = te.compute((m, n), lambda i, j: te.sum(a[i, x].astype(acc) * b[x, j].astype(acc), x))
    sch = tt.tiling_schedule(op, machine, **options)
    lib = tvm.compile(sch.mod, target=tt.llvm_target(machine))
    return json.loads(str(sch.mod["main"].attrs["tvm_tiling.decision"])), inner_loops(lib.mod.inspect_source("asm"))


def microkernel(taken: dict[str, Any], loops: list[Loop], multiply: str) -> tuple[Loop, int]:
    """Return the loop of a whole register tile, and its number of steps along the reduction axis."""
    tile = taken["mr"] * taken["nr"] // taken["lanes"]
    for loop in loops:
        multiplied = loop.count(multiply)
        if multiplied and multiplied % tile == 0:
            return loop, multiplied // tile
    raise AssertionError(f"no loop of {tile} {multiply}, but {[loop.count(multiply) for loop in loops]}")
