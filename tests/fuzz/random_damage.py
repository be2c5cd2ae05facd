"""Files of every kind with bytes changed, removed, duplicated or swapped: they are read as before, or refused with one
sentence; nothing else happens, and memory use is bounded by the file."""

from __future__ import annotations

import functools
import hashlib
import random
import resource
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from case import Case
from networks import Network
from onnx import TensorProto, helper, numpy_helper
from operators import product
from tvm import relax

import tvm_tiling as tt
from tvm_tiling.accel.record.function import record
from tvm_tiling.errors import TilingError
from tvm_tiling.frontend import load_model

Read = Callable[[Path], object]
MOST_GROWTH = 512 << 20  # bytes used by the process for one file


def _onnx() -> bytes:
    """Return a network with weights in every kind of storage, attributes, a constant branch and named dimensions."""
    weights = [
        numpy_helper.from_array(np.arange(24, dtype="float32").reshape(4, 6), "w"),
        helper.make_tensor("b", TensorProto.FLOAT, [6], [0.5] * 6),
        numpy_helper.from_array(np.array([2, 3], "int64"), "shape"),
    ]
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"]),
        helper.make_node("Add", ["p", "b"], ["s"]),
        helper.make_node("Softmax", ["s"], ["m"], axis=-1),
        helper.make_node("Reshape", ["m", "shape"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3])
    graph = helper.make_graph(nodes, "network", [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8).SerializeToString()


@functools.cache
def files() -> dict[str, tuple[bytes, Read]]:
    """Return, by kind, an intact file and its reader."""
    with tempfile.TemporaryDirectory() as folder:
        program, executable, shapes = (Path(folder) / name for name in ("p.vsim", "m.tar", "s.jsonl"))
        hardware = tt.Hardware.load("vta")
        record(tt.tiling_schedule(product(20, 30, 40, "int8"), target=hardware).mod, hardware).save(program)
        module = Network((2, 3)).module(lambda net, x: relax.op.matmul(x, net.c(3, 4)))
        tt.compile(module, cache=False).save(executable)
        with tt.ShapeDatabase(Path(folder) / "shapes.db") as database:
            workload = tt.GemmWorkload(m=64, n=64, k=64)
            database.add(workload, tt.decide(workload, tt.Hardware.detect()), 1e-4, target="llvm")
            database.export(shapes)
        return {
            "onnx": (_onnx(), load_model),
            "program": (program.read_bytes(), tt.load),
            "executable": (executable.read_bytes(), tt.load),
            "shapes": (shapes.read_bytes(), _imported),
            "machine": (hardware.to_toml().encode(), tt.Hardware.load),
        }


def _imported(path: Path) -> None:
    with tt.ShapeDatabase(path.with_suffix(".db")) as database:
        database.import_(path)


def damaged(content: bytes, rng: random.Random) -> bytes:
    """Return the content with one to four corruptions."""
    data = bytearray(content)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(data) + 1)
        kind = rng.choice(("change", "change", "cut", "insert", "double", "number", "end"))
        if kind == "change" and at < len(data):
            data[at] = rng.randrange(256)
        elif kind == "cut":
            del data[at : at + rng.randint(1, 40)]
        elif kind == "insert":
            data[at:at] = bytes(rng.choice((0, 0x7F, 0x80, 0xFF, 0x30)) for _ in range(rng.randint(1, 12)))
        elif kind == "double":
            data[at:at] = data[at : at + rng.randint(1, 60)]
        elif kind == "number":
            data[at : at + 8] = rng.choice((0, 1, 1 << 31, (1 << 63) - 1, (1 << 64) - 1)).to_bytes(8, "little")
        elif kind == "end":
            del data[at:]
    return bytes(data)


def random_damage(rng: random.Random) -> Case:
    """A corrupted file."""
    kind = rng.choice(sorted(files()))
    content, read = files()[kind]
    changed = damaged(content, rng)
    name = f"{kind} {changed.hex() if len(changed) < 2000 else hashlib.sha256(changed).hexdigest()}"
    return Case(name, lambda: check(kind, changed, read))


def check(kind: str, changed: bytes, read: Read) -> None:
    """A corrupted file is refused or read."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"damaged{'.toml' if kind == 'machine' else ''}"
        path.write_bytes(changed)
        path.chmod(0o600)
        try:
            read(path)
        except TilingError as error:
            assert str(error) and "\n" not in str(error), error
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10
    assert grown < MOST_GROWTH, f"{grown} bytes for a file of {len(changed)}"
