"""Validate the simulator against published counters of MLPs and LSTMs on TPU v1. Run from a checkout: python -m
benchmarks.validation_tpu

The counters report how the matrix unit spends its cycles: active, waiting for weights, shifting weights in, and idle
for other reasons. The batch and the number of weights and of layers of each network are published, shapes are not:
NETWORKS has shapes that yield these numbers. One batch is simulated from the host's memory and back. The tiling of each
layer is chosen on its own; the layers' programs are concatenated, so that weights are prefetched as far as the FIFO
holds them.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from tvm import te, tirx, topi

import tvm_tiling as tt
from tvm_tiling.accel.instructions.row import Instruction
from tvm_tiling.accel.instructions.table import Opcode
from tvm_tiling.accel.program.builder import At, ProgramBuilder
from tvm_tiling.accel.program.join import Part, join
from tvm_tiling.accel.program.program import Program
from tvm_tiling.accel.record.function import record
from tvm_tiling.accel.timing.simulate import Simulation
from tvm_tiling.accel.timing.timing import ordering
from tvm_tiling.hardware.description import Hardware
from tvm_tiling.plain_text import plain_toml

PUBLISHED = Path(__file__).parent / "published"
SHIFT = 8  # bits by which sums are shifted to become int8 again
SUMS = "sums"
TILE = 256  # rows and columns of a weight tile


@dataclass(frozen=True)
class Mlp:
    """Fully connected layers of `widths`, the first of which is the input's."""

    widths: tuple[int, ...]

    @property
    def weights(self) -> int:
        """Number of weights."""
        return sum(inputs * outputs for inputs, outputs in itertools.pairwise(self.widths))


@dataclass(frozen=True)
class Lstm:
    """`cells` stacked cells of `hidden` units, one time step: four matrix multiplications of (input, state) by the
    weights of each gate, then `vectors` vector layers, 2 or 5; `classes` outputs of a final matrix multiplication, 0:
    none."""

    cells: int
    hidden: int
    vectors: int
    classes: int = 0

    @property
    def weights(self) -> int:
        """Number of weights."""
        return self.cells * 4 * 2 * self.hidden**2 + self.hidden * self.classes


NETWORKS: Mapping[str, Mlp | Lstm] = {
    "MLP0": Mlp((2048, 2048, 2048, 2048, 2048, 2048)),
    "MLP1": Mlp((1280, 1024, 1280, 1024, 1280)),
    "LSTM0": Lstm(cells=6, hidden=1024, vectors=5),
    "LSTM1": Lstm(cells=9, hidden=680, vectors=2, classes=1000),
}
"""5 and 4 layers, 6 x 4 of 24 with 6 x 5 of 34 vector layers, 9 x 4 + 1 of 37 with 9 x 2 of 19."""


@dataclass(frozen=True)
class Shares:
    """Cycles of a batch, and the shares in which the matrix unit is active, waits for weights, shifts weights in, and
    does none of these."""

    cycles: int
    active: float
    weight_stall: float
    weight_shift: float
    non_matrix: float


def tpu(*, sixteen_bits: bool = False) -> Hardware:
    """Return the description in benchmarks/published/tpu_v1.toml. With 16-bit activations the array takes two cycles
    per example, and the bandwidths of activations are halved."""
    machine = Hardware.load(PUBLISHED / "tpu_v1.toml")
    if not sixteen_bits:
        return machine
    tile = machine.near_tile
    assert tile is not None
    half = {name: rate / 2 for name, rate in tile.bandwidth.items()}
    return replace(
        machine,
        near_tile=replace(tile, column_cycles=2 * tile.column_cycles, bandwidth=half),
        memories={name: replace(machine.memories[name], bytes_per_cycle=rate) for name, rate in half.items()},
    )


def _whole(units: int) -> int:
    """Return the units rounded up to full tiles: the weight memory holds whole tiles, the unified buffer rows of as
    many units."""
    return -(-units // TILE) * TILE


def network_program(network: Mlp | Lstm, batch: int, machine: Hardware) -> Program:
    """Return one batch: input from the host, all layers, output to the host. Inputs are host_x, the weights w0, w1, ...
    and, for an LSTM, state0, cell0, ...; the output is host_y."""
    build = _Network(batch, machine)
    if isinstance(network, Mlp):
        widths = [_whole(units) for units in network.widths]
        at = build.host_in(widths[0])
        for inputs, outputs in itertools.pairwise(widths):
            at = build.dense(at, inputs, outputs)
        return build.host_out(at, widths[-1])
    hidden, classes = _whole(network.hidden), _whole(network.classes)
    at = build.host_in(hidden)
    for cell in range(network.cells):
        at = build.cell(at, hidden, network.vectors, cell)
    if classes:
        at = build.dense(at, hidden, classes)
    return build.host_out(at, classes or hidden)


class _Network:
    """Parts of a network's program; activations are int8[units, batch] in the unified buffer, identified by name."""

    def __init__(self, batch: int, machine: Hardware) -> None:
        self.batch, self.machine = batch, machine
        self.parts: list[Part] = []
        self.names = (f"y{number}" for number in itertools.count())
        self.weights = 0

    def host_in(self, units: int) -> str:
        """Append the input, in the unified buffer."""
        near = next(self.names)
        self._host(near, units, "host_x", Opcode.LOAD, "load_b")
        return near

    def host_out(self, at: str, units: int) -> Program:
        """Return the whole program, whose output is `at`."""
        self._host(at, units, "host_y", Opcode.STORE, "store")
        return join(self.parts, ["host_y"], {})

    def _host(self, near: str, units: int, far: str, op: Instruction, engine: str) -> None:
        build, inward = ProgramBuilder(self.machine), op is Opcode.LOAD
        build.region(far)
        roles = {far: ("input", "output"), near: ("output", "input")}
        places = {}
        for name, memory in ((far, "external"), (near, "internal")):
            role = roles[name][0 if inward else 1]
            tensor = build.tensor(name, "int8", (units, self.batch), role=role, operand="b", memory=memory)
            places[name] = At(memory, tensor.address, (1,), "int8")
        source, target = (far, near) if inward else (near, far)
        build.append(op, engine, (units * self.batch,), a=places[source], c=places[target])
        self.parts.append(Part(build.build()))

    def dense(self, at: str, inputs: int, outputs: int) -> str:
        """Append a layer with new weights."""
        name = self._append(dense_layer(outputs, inputs, self.batch, self.machine), [at], f"w{self.weights}")
        self.weights += 1
        return name

    def vector(self, kind: str, units: int, *given: str) -> str:
        """Append a vector layer, see VECTORS."""
        return self._append(vector_layer(kind, units, self.batch, self.machine), given)

    def cell(self, x: str, hidden: int, vectors: int, number: int) -> str:
        """Append one step of an LSTM cell. Two matrix multiplications of the input and two of the state produce two
        gates each."""
        state, cell = f"state{number}", f"cell{number}"
        pairs = [self.dense(at, hidden, 2 * hidden) for at in (x, x, state, state)]
        (of_x, go_of_x), (of_h, go_of_h) = pairs[:2], pairs[2:]
        if vectors == 2:
            new = self.vector("cell_of_sums", hidden, of_x, of_h, go_of_x, go_of_h, cell)
            return self.vector("result_of_sums", hidden, go_of_x, go_of_h, new)
        first, second = self.vector("gates", 2 * hidden, of_x, of_h), self.vector("gates", 2 * hidden, go_of_x, go_of_h)
        new = self.vector("cell", hidden, first, second, cell)
        return self.vector("result", hidden, second, self.vector("limits", hidden, new))

    def _append(self, program: Program, given: Sequence[str], weights: str = "") -> str:
        """Return the output of a layer that is appended."""
        output = next(self.names)
        names = {f"x{place}": name for place, name in enumerate(given)} | {"w": weights}
        (result,) = program.of_role("output")
        near = {tensor.name: "internal" for tensor in program.tensors if tensor.name != "w"}
        self.parts.append(Part(program, {**names, result.name: output}, memories=near))
        return output


@functools.cache
def dense_layer(outputs: int, inputs: int, batch: int, machine: Hardware) -> Program:
    """y[outputs, batch] = w x, shifted to 8 bits, then ReLU."""
    x = te.placeholder((inputs, batch), "int8", name="x0")
    w = te.placeholder((outputs, inputs), "int8", name="w")
    k = te.reduce_axis((0, inputs), name="k")
    sums = te.compute(
        (outputs, batch), lambda o, b: te.sum(w[o, k].astype("int32") * x[k, b].astype("int32"), axis=k), name=SUMS
    )
    return _layer(_to_bytes(sums, SHIFT), machine)


VECTORS: Mapping[str, tuple[tuple[int, ...], Callable[..., Any], int]] = {
    "gates": ((1, 1), lambda at, x, y: at(x) + at(y), 0),
    "cell": ((2, 2, 1), lambda at, first, second, cell: at(first, 1) * at(cell) + at(first) * at(second), 7),
    "limits": ((1,), lambda at, cell: at(cell), 0),
    "result": ((2, 1), lambda at, second, cell: at(second, 1) * at(cell), 7),
    "cell_of_sums": (
        (2, 2, 2, 2, 1),
        lambda at, x, h, gx, gh, cell: (at(x, 1) + at(h, 1)) * at(cell) + (at(x) + at(h)) * (at(gx) + at(gh)),
        8,
    ),
    "result_of_sums": ((2, 2, 1), lambda at, gx, gh, cell: (at(gx, 1) + at(gh, 1)) * at(cell), 7),
}
"""Vector layers: for each operand its size in multiples of the units, the value of an element, given at(operand, part),
and the number of bits by which it is shifted. Clipping stands for sigmoid and tanh, which take as long."""


@functools.cache
def vector_layer(kind: str, units: int, batch: int, machine: Hardware) -> Program:
    """A row of VECTORS."""
    parts, value, shift = VECTORS[kind]
    given = [te.placeholder((units * part, batch), "int8", name=f"x{place}") for place, part in enumerate(parts)]

    def element(u: tirx.Var, b: tirx.Var) -> tirx.Expr:
        return value(lambda operand, part=0: operand[u + part * units, b].astype("int32"), *given)

    return _layer(_to_bytes(te.compute((units, batch), element, name="value"), shift), machine)


def _to_bytes(value: te.Tensor, shift: int) -> te.Tensor:
    shifted = topi.right_shift(value, shift) if shift else value
    return topi.cast(topi.clip(shifted, 0, 127), "int8")


def _layer(result: te.Tensor, machine: Hardware) -> Program:
    """Return the program of a layer, tiled for operands in the unified buffer. Sums of one row of tiles are stored
    while those of the next are accumulated: the chip has accumulators for two."""
    tile = machine.near_tile
    assert tile is not None
    near = tile.bandwidth["internal"]
    decided = replace(
        machine,
        near_tile=replace(tile, bw_b=near, bw_out=near),
        memories={**machine.memories, "external": machine.memories["internal"]},
    )
    schedule = tt.tiling_schedule(result, target=decided)
    if SUMS in str(schedule.mod):
        block = schedule.get_sblock(SUMS)
        schedule.unannotate(block, "vsim.versions")
        schedule.annotate(block, "vsim.versions", 2)
    return replace(record(schedule.mod, decided), hardware=machine)


def shares(program: Program) -> Shares:
    """Return the shares of the matrix unit's cycles in a program. It waits for weights if a matrix multiplication lacks
    nothing else; otherwise it is idle."""
    machine = program.hardware.near_tile
    assert machine is not None
    report = Simulation(program).on()
    timing, rows, order = report.timing, program.instructions, ordering(program)
    products = np.flatnonzero(rows["queue"] == program.queues.index("matrix"))
    extent = rows["extent"][products].astype(np.int64)
    tiles = -(-extent[:, 0] // machine.block_m) * -(-extent[:, 5] // machine.block_k)
    of_weights = order.queue[order.producer] == program.queues.index("load_a")
    others = np.where(of_weights, 0, timing.done[order.producer])
    ready = np.array([others[order.first[row] : order.first[row + 1]].max(initial=0) for row in products])
    waited = timing.start[products] - np.maximum(ready, np.concatenate([[0], timing.end[products][:-1]]))
    shift = float(tiles.sum()) * machine.block_change
    parts = (report.engines["matrix"].busy - shift, float(waited.sum()), shift)
    active, stall, shift = (part / report.cycles for part in parts)
    return Shares(report.cycles, active, stall, shift, 1 - active - stall - shift)


def network_shares(name: str, batch: int) -> Shares:
    """Return the shares for a network of NETWORKS. LSTMs have 16-bit activations: their published active share
    corresponds to two cycles per example."""
    network = NETWORKS[name]
    return shares(network_program(network, batch, tpu(sixteen_bits=isinstance(network, Lstm))))


def published_shares() -> dict[str, tuple[int, Shares, float]]:
    """Return the batch of each published network of NETWORKS, its shares (cycles 0: not published) and tera-operations
    per second."""
    table = plain_toml((PUBLISHED / "published.toml").read_text())["tpu_v1"]
    columns = [f"{what}_percent" for what in ("array_active", "weight_stall", "weight_shift", "non_matrix")]
    return {
        name: (table["batch"][at], Shares(0, *(table[column][at] / 100 for column in columns)), table["teraops"][at])
        for at, name in enumerate(table["networks"])
        if name in NETWORKS
    }


def main(arguments: Sequence[str] = ()) -> None:
    """Print the table of docs/validation.md."""
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args(arguments)
    clock = tpu().clock_mhz
    assert clock is not None
    for name, (batch, silicon, teraops) in published_shares().items():
        own, weights = network_shares(name, batch), NETWORKS[name].weights
        print(f"{name}: {weights / 1e6:.1f} M weights, batch {batch}, {own.cycles} cycles")
        for share in ("active", "weight_stall", "weight_shift", "non_matrix"):
            print(f"  {share}: measured {getattr(silicon, share):.1%}, simulated {getattr(own, share):.1%}")
        print(f"  teraops: measured {teraops}, simulated {2 * weights * batch / own.cycles * clock / 1e6:.1f}")


if __name__ == "__main__":
    main(sys.argv[1:])
