"""Placement of the buffers of a scheduled function in the memories of the machine.

A buffer of scope "global.x" is placed in memory "x", sized for what is live at once: what one iteration of the
innermost loop around all its accesses writes. With several versions (double buffering), iterations use them in
rotation, also across consecutive loops, so that loads can run ahead as far as the versions allow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np
import tvm_ffi
from tvm import tirx
from tvm.ir import TensorLoad

from ...errors import HardwareError
from ...hardware.machine import Machine
from ...match.access import substitute
from ...match.evaluate import evaluate
from ..program.isa import ElementType
from ..program.tables import STORAGE
from ..timing.cost import capacity as memory_bytes
from .instances import Coupled, instances_of
from .nest import Leaf, Loop, Nest

EXTERNAL = "external"
ALIGNMENT = 64  # bytes


@dataclass(frozen=True, eq=False)
class Place:
    """The placement of a buffer: its first byte and the layout of its elements."""

    buffer: tirx.Buffer
    memory: str
    address: int
    shape: tuple[int, ...]  # elements of one version
    origin: tuple[tirx.Expr, ...]  # index of the first element of a version, over `loops`
    loops: tuple[Loop, ...]  # whose iterations rotate through the versions
    versions: int
    copies: int = 1  # of each version, contiguous: groups of instances of a level that hold the same data
    halo: int = 0  # elements after each copy: what instances hold of their neighbours' parts

    @property
    def kind(self) -> ElementType:
        return ElementType[str(self.buffer.dtype).upper()]

    @property
    def strides(self) -> tuple[int, ...]:
        return tuple(prod(self.shape[d + 1 :]) for d in range(len(self.shape)))

    @property
    def elements(self) -> int:
        """Elements of one copy."""
        return prod(self.shape) + self.halo

    @property
    def version_bytes(self) -> int:
        return self.copies * self.elements * self.kind.bytes

    def start(self, values: dict[tirx.Var, np.ndarray]) -> np.ndarray:
        """Return the byte address of the element at index 0, which may lie before the resident part."""
        turn = np.int64(0)
        for loop in self.loops:
            turn = turn * loop.most + values[loop.variable]
        address = self.address + turn % self.versions * self.version_bytes
        for origin, stride in zip(self.origin, self.strides, strict=True):
            first = evaluate(origin, values)
            assert first is not None  # checked when the place was made
            address = address - first * (stride * self.kind.bytes)
        return np.asarray(address, dtype=np.int64)


class Places:
    """The places of all buffers in the memories of a machine; HardwareError if one is too small."""

    def __init__(self, nest: Nest, params: Sequence[tirx.Var], machine: Machine) -> None:
        self.nest, self.machine = nest, machine
        self.used: dict[str, int] = {EXTERNAL: 0}
        self._by_buffer: dict[tirx.Buffer, Place] = {}
        self.readers: dict[tirx.Buffer, list[Leaf]] = {}
        self.writers: dict[tirx.Buffer, list[Leaf]] = {}
        for leaf in nest.leaves:
            for buffer in _written(leaf):
                self.writers.setdefault(buffer, []).append(leaf)
            for buffer in _read(leaf):
                self.readers.setdefault(buffer, []).append(leaf)
        for buffer in params:
            self._dense(buffer)
        for buffer in nest.buffers:
            if str(buffer.scope()) == "global":
                self._dense(buffer)
            else:
                self._on_chip(buffer)

    def __getitem__(self, buffer: tirx.Buffer) -> Place:
        found = self._by_buffer.get(buffer)
        if found is None:
            raise self.nest.refuse(f"buffer {buffer.name} is neither a parameter nor allocated")
        return found

    def reserve(self, memory: str, size: int, what: str) -> int:
        """Reserve `size` more bytes of a memory and return their address."""
        used = self.used.get(memory, 0)
        address = -(-used // ALIGNMENT) * ALIGNMENT
        capacity = memory_bytes(self.machine, memory)
        others = self._used_beside(memory)
        if capacity is not None and address + size + others > capacity:
            held = f", {used + others} of them in use" if used + others else ""
            raise HardwareError(
                f"{what} needs {size} bytes of memory {memory!r} of {self.machine.hardware.name}, which has "
                f"{capacity}{held}; expected smaller tiles, or fewer versions"
            )
        self.used[memory] = address + size
        return address

    def _used_beside(self, memory: str) -> int:
        """Return the bytes that other operands use of the capacity that a storage level shares."""
        owner = memory.rpartition(".")[0]
        shares = any(level.name == owner and level.bytes is not None for level in self.machine.hardware.levels)
        return sum(
            size for name, size in self.used.items() if shares and name.rpartition(".")[0] == owner and name != memory
        )

    def _dense(self, buffer: tirx.Buffer) -> None:
        shape = tuple(int(extent) for extent in buffer.shape)
        if str(buffer.dtype) not in STORAGE:
            raise self.nest.refuse(f"buffer {buffer.name} has type {buffer.dtype}; expected {', '.join(STORAGE)}")
        if buffer.strides and tuple(int(s) for s in buffer.strides) != tuple(
            prod(shape[d + 1 :]) for d in range(len(shape))
        ):
            raise self.nest.refuse(f"buffer {buffer.name} has custom strides; expected compact parameters")
        size = prod(shape) * STORAGE[str(buffer.dtype)].itemsize
        address = self.reserve(EXTERNAL, size, f"buffer {buffer.name}")
        zero = tuple(tirx.IntImm("int32", 0) for _ in shape)
        self._by_buffer[buffer] = Place(buffer, EXTERNAL, address, shape, zero, (), 1)

    def _on_chip(self, buffer: tirx.Buffer) -> None:
        writers, readers = self.writers.get(buffer, []), self.readers.get(buffer, [])
        if not writers or not readers:
            return  # unused
        if str(buffer.dtype) not in STORAGE:
            raise self.nest.refuse(f"buffer {buffer.name} has type {buffer.dtype}; expected {', '.join(STORAGE)}")
        memory = str(buffer.scope()).partition(".")[2]
        loops = _common([*writers, *readers])
        shape, origin = self._box(buffer, writers, loops)
        versions = self._versions(writers, readers, loops)
        copies = self._copies(writers)
        place = Place(buffer, memory, 0, shape, origin, loops, versions, copies, halo_elements(writers, shape))
        turns = f"{versions}" if copies == 1 else f"{versions} x {copies} copies"
        what = f"buffer {buffer.name} of {turns} x {list(shape)} {buffer.dtype}"
        address = self.reserve(memory, versions * place.version_bytes, what)
        self._by_buffer[buffer] = replace(place, address=address)

    def _copies(self, writers: list[Leaf]) -> int:
        asked = next((count for leaf in writers if (count := leaf.annotation("vsim.copies")) is not None), 1)
        if not isinstance(asked, int) or asked < 1:
            raise self.nest.refuse(f"block {writers[0].name!r} has vsim.copies = {asked!r}; expected 1 or more")
        return asked

    def _box(
        self, buffer: tirx.Buffer, writers: list[Leaf], loops: tuple[Loop, ...]
    ) -> tuple[tuple[int, ...], tuple[tirx.Expr, ...]]:
        """Return extents and first index of the region written for fixed `loops`; for several writers, the bounding
        box."""
        zero = tirx.IntImm("int32", 0)
        outer = {loop.variable for loop in loops}
        found = [part for writer in writers for part in self._boxes(buffer, writer, outer)]
        shape, origin = [], []
        for d, size in enumerate(int(extent) for extent in buffer.shape):
            first = found[0][d][1]
            if all(tvm_ffi.structural_equal(part[d][1], first) for part in found):
                shape.append(min(size, max(part[d][0] for part in found)))
                origin.append(first)
            else:
                shape.append(size)
                origin.append(zero)
        return tuple(shape), tuple(origin)

    def _boxes(self, buffer: tirx.Buffer, writer: Leaf, outer: set[tirx.Var]) -> list[list[tuple[int, tirx.Expr]]]:
        """Return, for each store to the buffer and each dimension, the number of elements covered and the first one
        over the outer loops; the whole dimension from 0 if it is not affine."""
        instances = next(instances_of(self.nest, writer))
        below = {loop.variable: tirx.const(0, str(loop.variable.ty)) for loop in writer.loops}
        below = {variable: zero for variable, zero in below.items() if variable not in outer}
        boxes = []
        for indices in _stored(writer, buffer):
            box = []
            for index, size in zip(indices, (int(extent) for extent in buffer.shape), strict=True):
                first = instances.analyzer.simplify(substitute(writer.bound(index), below))
                start = evaluate(first, instances.values)
                try:
                    if start is None:
                        raise Coupled
                    lowest, steps = instances.affine(index)
                    if min(steps, default=0) < 0 or (lowest < start).any():
                        raise Coupled
                    last = lowest + sum(s * (instances.extents[:, i] - 1) for i, s in enumerate(steps))
                    box.append((int((last - start).max(initial=0)) + 1, first))
                except Coupled:
                    box.append((size, tirx.IntImm("int32", 0)))
            boxes.append(box)
        return boxes

    def _versions(self, writers: list[Leaf], readers: list[Leaf], loops: tuple[Loop, ...]) -> int:
        """Return the number of versions: as the writer's annotation "vsim.versions" says, or as many as a software
        pipeline of the enclosing loop needs between the writing and the reading stage."""
        asked = [leaf.annotation("vsim.versions") for leaf in writers]
        if any(count is not None for count in asked):
            counts = [count for count in asked if isinstance(count, int) and count > 0]
            if not counts:
                raise self.nest.refuse(
                    f"block {writers[0].name!r} has vsim.versions = {asked[0]!r}; expected 1 or more"
                )
            return max(counts) if loops else 1
        if any(leaf.annotation("double_buffer_scope") is not None for leaf in writers):
            return 2 if loops else 1
        stages = loops[-1].stages if loops else None
        if stages is None:
            return 1
        depth = len(loops) - 1
        try:
            first = min(stages[leaf.path[depth]] for leaf in writers)
            last = max(stages[leaf.path[depth]] for leaf in readers)
        except IndexError:
            raise self.nest.refuse(
                f"loop {loops[-1].variable.name} has {len(stages)} stages but more parts; expected one stage per part"
            ) from None
        return max(1, last - first + 1)


def halo_elements(writers: Sequence[Leaf], shape: Sequence[int]) -> int:
    """Return the additional elements of a block of `shape` that the annotation "vsim.halo" of its writers requests."""
    halo = next((own for leaf in writers if (own := leaf.annotation("vsim.halo")) is not None), None)
    if halo is None:
        return 0
    d, _, overlap, parts = (int(number) for number in halo)  # type: ignore[attr-defined]
    return (parts - 1) * overlap * (prod(shape) // shape[d])


def _common(leaves: Sequence[Leaf]) -> tuple[Loop, ...]:
    """Return the loops around all of the leaves."""
    common = leaves[0].loops
    for leaf in leaves[1:]:
        length = next((i for i, (a, b) in enumerate(zip(common, leaf.loops, strict=False)) if a is not b), None)
        common = common[: min(len(common), len(leaf.loops)) if length is None else length]
    return common


def stores_of(leaf: Leaf) -> list[tirx.BufferStore]:
    """Return the stores of a block, including those that initialise a reduction."""
    found: list[tirx.BufferStore] = []
    for part in (leaf.block.init, leaf.block.body):
        if part is not None:
            tvm_ffi.structural_walk(part, (tirx.BufferStore, found.append))
    return found


def _written(leaf: Leaf) -> set[tirx.Buffer]:
    return {store.buffer for store in stores_of(leaf)}


def _stored(leaf: Leaf, buffer: tirx.Buffer) -> list[list[tirx.Expr]]:
    return [list(store.indices) for store in stores_of(leaf) if store.buffer.same_as(buffer)]


def _read(leaf: Leaf) -> set[tirx.Buffer]:
    found: list[TensorLoad] = []
    tvm_ffi.structural_walk(leaf.block.body, (TensorLoad, found.append))
    return {load.source for load in found}
