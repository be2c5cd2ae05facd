"""Equal models give equal files, and files contain nothing that does not come from the model."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest
import tvm
from networks import Network
from saving import SAVED, odd_convolutions
from tvm import relax, te, tirx
from tvm.support import cc

import tvm_tiling as tt
from tvm_tiling.lowering import size_order  # noqa: F401 - what frontends and passes import
from tvm_tiling.lowering.prim_func import packed_memory
from tvm_tiling.model import operators
from tvm_tiling.model.build import build_packing
from tvm_tiling.model.passes.constants import Collection
from tvm_tiling.runtime.arrays import ALIGNMENT

PROGRAM = Path(__file__).with_name("saving.py")
SECRET = b"0123456789abcdef"
SEEDS = ("17", "99")  # of hashes; also the byte that freed memory is filled with, fresh memory with its complement


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="MALLOC_PERTURB_ is of the GNU C library")
@pytest.mark.parametrize("form", SAVED)
def test_two_processes_give_equal_files(form, tmp_path):
    """Their hashes are in different orders, and their fresh memory holds different bytes."""
    if form == "linked" and cc.get_cc() is None:
        pytest.skip("no C compiler")
    folders = [tmp_path / name for name in ("first", "second")]
    processes = []
    for folder, seed in zip(folders, SEEDS, strict=True):
        folder.mkdir()
        settings = {"PYTHONHASHSEED": seed, "MALLOC_PERTURB_": seed}
        command = [sys.executable, str(PROGRAM), str(folder), form]
        processes.append(subprocess.Popen(command, env={**os.environ, **settings}, stderr=subprocess.PIPE))
    for process in processes:
        _, said = process.communicate(timeout=600)
        assert process.returncode == 0, said.decode()[-2000:]
    names = sorted(path.name for path in folders[0].iterdir())
    assert names == sorted(f"{name}.tar" for name in SAVED[form])
    assert names == sorted(path.name for path in folders[1].iterdir())
    for name in names:
        first, second = (contents(folder / name) for folder in folders)
        assert first.keys() == second.keys()
        assert [member for member in first if first[member] != second[member]] == [], name
        assert (folders[0] / name).read_bytes() == (folders[1] / name).read_bytes(), name
        for byte in map(int, SEEDS):
            assert not any(bytes([fill]) * 16 in (folders[0] / name).read_bytes() for fill in (byte, byte ^ 0xFF)), name
        assert any(member.endswith(".so" if form == "linked" else ".objects") for member in first)


def test_sizes_are_passed_in_the_order_of_their_use():
    """TVM's own set of them would be in the order of addresses: one time in 720 that of their use."""
    names = "cafebd"
    sizes = [tirx.Var(name, "int64") for name in names]
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((4,), "float32"))
    with builder.function("main", [x, *(relax.Var(f"of {size.name}", relax.ShapeType([size])) for size in sizes)]):
        builder.emit_func_output(builder.emit_te(times_total, x, *sizes))
    (func,) = (func for func in builder.get().functions.values() if isinstance(func, tirx.PrimFunc))
    assert [param.name for param in func.params][1:-1] == list(names)


def times_total(x: te.Tensor, *sizes: tirx.Var) -> te.Tensor:
    return te.compute((4,), lambda i: x[i] * sum(sizes[1:], sizes[0]))


def contents(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as archive:
        return {member.name: archive.extractfile(member).read() for member in archive}


def test_saved_files_hold_nothing_that_lay_in_freed_memory(tmp_path, monkeypatch):
    """A pattern in memory of every possible size of packed weights, freed just before they are packed."""

    kept = []

    def built(*arguments):
        libraries = build_packing(*arguments)
        kept.extend(plant())
        return libraries

    monkeypatch.setattr(operators, "build_packing", built)
    module = Network((1, 3, 17, 17)).module(odd_convolutions)
    tt.compile(module, cache=False).save(tmp_path / "model.tar")
    assert kept and SECRET not in (tmp_path / "model.tar").read_bytes()


def plant() -> list[tvm.runtime.Tensor]:
    """Freed memory with the pattern: gaps between tensors must be cleared."""
    made = [tvm.runtime.tensor(pattern(size)) for size in range(64, 1 << 15, 64) for _ in range(6)]
    return made[::2]


def pattern(size: int) -> np.ndarray:
    return np.frombuffer(SECRET * (size // len(SECRET)), np.uint8).copy()


def test_gaps_between_constants_are_zeros():
    collection = Collection()
    rng = np.random.default_rng(0)
    for size in (3, 65, 1, 200, 64):
        collection.add(tvm.runtime.tensor(rng.integers(1, 256, size).astype("uint8")))
    kept = plant()
    made = collection.together()
    used = np.zeros(made.block.size, bool)
    for place in made.places:
        used[place.offset : place.offset + place.size] = True
    assert (~used).sum() == sum(-size % ALIGNMENT for size in (3, 65, 1, 200, 64))
    assert kept and not made.block[~used].any() and made.block[used].all()


@pytest.mark.parametrize("dtype", ["float32", "int8", "bfloat16"])
def test_memory_for_packed_weights_is_zeros(dtype):
    kept = plant()
    packed = packed_memory((7, 13), dtype)
    assert kept and packed.dtype == dtype and packed.shape == (7, 13)
    size = 7 * 13 * tvm.DataType(dtype).bits // 8
    assert not packed._create_view((size,), "uint8").numpy().any()


def test_a_loaded_executable_reports_no_compile_time(tmp_path):
    executable = tt.compile(Network((1, 3, 17, 17)).module(odd_convolutions), cache=False)
    assert executable.compile_seconds > 0 and "compiled in" in str(executable.report())
    executable.save(tmp_path / "model.tar")
    loaded = tt.load(tmp_path / "model.tar")
    assert loaded.compile_seconds == 0 and "compiled in" not in str(loaded.report())


@pytest.mark.parametrize(
    "value", ["0", "-1", "true", "1.5", '"4"', "1" + "0" * 30, "5000", "NaN", "[" * 100_000, "null"]
)
def test_a_description_with_a_wrong_number_of_cores_is_refused(value, tmp_path):
    """It determines how many threads start when the file is loaded."""
    executable = tt.compile(Network((2, 3)).module(lambda net, x: relax.op.matmul(x, net.c(3, 4))), cache=False)
    executable.save(tmp_path / "model.tar")
    with tarfile.open(tmp_path / "model.tar") as archive, tarfile.open(tmp_path / "other.tar", "w") as copy:
        for member in archive:
            held = archive.extractfile(member).read()
            if member.name == "model.json":
                changed = held.replace(f'"cores": {executable.cores}'.encode(), f'"cores": {value}'.encode())
                assert changed != held
                held, member.size = changed, len(changed)
            copy.addfile(member, io.BytesIO(held))
    (tmp_path / "other.tar").chmod(0o600)
    with pytest.raises(tt.ModelFormatError, match="its description is corrupted") as refused:
        tt.load(tmp_path / "other.tar")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("bit", [0, 6])
@pytest.mark.parametrize("place", [0, 1 << 20, -1])
def test_a_bit_of_the_weights_that_changed_is_refused(place, bit, tmp_path):
    """No shape shows this: the model would run, and be wrong."""
    path = tmp_path / "model.tar"
    tt.compile(Network((1, 600)).module(lambda net, x: relax.op.matmul(x, net.c(600, 512))), cache=False).save(path)
    tt.load(path)
    with tarfile.open(path) as archive:
        member = archive.getmember("constants.bin")
    assert member.size > 1 << 20
    content = bytearray(path.read_bytes())
    content[member.offset_data + place % member.size] ^= 1 << bit
    path.write_bytes(content)
    with pytest.raises(tt.ModelFormatError, match=r"constants\.bin is corrupted \(its checksum is \d+") as refused:
        tt.load(path)
    assert "\n" not in str(refused.value)
