"""Program files: round trips, atomic writes, and cheap clean errors for corrupted files."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
import tracemalloc
import zlib

import numpy as np
import pytest
from accel_programs import product
from hypothesis import given, settings
from hypothesis import strategies as st

from tvm_tiling.accel.program.isa import INSTRUCTION
from tvm_tiling.accel.program.program import Program
from tvm_tiling.errors import ModelFormatError, ProgramError


@pytest.fixture(scope="module")
def content(tmp_path_factory):
    path = tmp_path_factory.mktemp("program") / "p.vsim"
    product(m=9, n=4, k=6).save(path)
    return path.read_bytes()


def load_bytes(folder, data):
    path = folder / "changed.vsim"
    path.write_bytes(data)
    return Program.load(path)


def signed(data):
    """Return the same file with a matching checksum."""
    return data[:12] + struct.pack("<I", zlib.crc32(data[16:])) + data[16:]


def with_header(data, change):
    """Return the same file with a changed header."""
    (length,) = struct.unpack_from("<Q", data, 16)
    header = json.loads(data[24 : 24 + length])
    change(header)
    text = json.dumps(header).encode()
    return signed(data[:16] + struct.pack("<Q", len(text)) + text + data[24 + length :])


def test_a_program_comes_back_equal(tmp_path):
    program = product()
    program.save(tmp_path / "p.vsim")
    again = Program.load(tmp_path / "p.vsim")
    assert again == program and again.hardware == program.hardware
    assert again.instructions.dtype == INSTRUCTION
    np.testing.assert_array_equal(again.constants["b"], program.constants["b"])
    assert again != product(m=33)


def test_saving_is_whole_or_not_at_all(tmp_path):
    path = tmp_path / "p.vsim"
    product().save(path)
    before = path.read_bytes()
    broken = product()
    object.__setattr__(broken, "instructions", None)
    with pytest.raises(TypeError):
        broken.save(path)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["p.vsim"]


def test_files_load_without_tvm_and_pickle(tmp_path):
    product().save(tmp_path / "p.vsim")
    code = (
        "import sys\nfrom tvm_tiling.accel.program.program import Program\n"
        f"assert len(Program.load({str(tmp_path / 'p.vsim')!r})) == 17\n"
        "loaded = {name.split('.')[0] for name in sys.modules}\n"
        "assert not loaded & {'tvm', 'tvm_ffi', 'pickle_compat'}\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")


def test_every_prefix_is_refused(tmp_path, content):
    for length in range(len(content)):
        with pytest.raises(ProgramError):
            load_bytes(tmp_path, content[:length])
    assert load_bytes(tmp_path, content) == product(m=9, n=4, k=6)


def test_every_changed_byte_is_refused(tmp_path, content):
    for place in range(len(content)):
        with pytest.raises(ProgramError):
            load_bytes(tmp_path, content[:place] + bytes([content[place] ^ 0x41]) + content[place + 1 :])


@given(data=st.data())
@settings(max_examples=400, deadline=None)
def test_changed_bytes_that_fit_the_checksum_are_a_program_or_refused(tmp_path_factory, content, data):
    changed = bytearray(content)
    for _ in range(data.draw(st.integers(1, 4))):
        changed[data.draw(st.integers(16, len(content) - 1))] = data.draw(st.integers(0, 255))
    folder = tmp_path_factory.mktemp("fuzz")
    try:
        program = load_bytes(folder, signed(bytes(changed)))
    except ProgramError as error:
        assert "\n" not in str(error)
    else:
        program.save(folder / "again.vsim")
        assert Program.load(folder / "again.vsim") == program


HUGE = 1 << 62


@pytest.mark.parametrize(
    ("change", "part"),
    [
        (
            lambda h: h.update(instructions=HUGE),
            "instructions = 4611686018427387904; expected at most as many as the file",
        ),
        (lambda h: h.update(instructions=True), "instructions = True"),
        (lambda h: h["tensors"][1].update(shape=[HUGE, HUGE]), "constant 'b' is truncated"),
        (lambda h: h["tensors"][0].update(shape=[HUGE]), "tensor 'a': shape (4611686018427387904,); expected whole"),
        (
            lambda h: h["tensors"][0].update(address=HUGE),
            "tensor 'a': 54 bytes at address 4611686018427387904 exceed memory",
        ),
        (lambda h: h["tensors"][0].update(address=-1), "tensor 'a': 54 bytes at address -1 exceed memory 'external'"),
        (lambda h: h["tensors"][0].update(shape=["3"]), "tensor 'a': shape ('3',)"),
        (lambda h: h["tensors"][0].update(dtype="int9"), "tensor 'a': dtype = 'int9'; did you mean 'int8'?"),
        (lambda h: h["tensors"][1].update(dtype=3), "a row of tensors must contain exactly name, dtype"),
        (lambda h: h["tensors"][0].update(role="imput"), "tensor 'a': role = 'imput'; did you mean 'input'?"),
        (lambda h: h["tensors"][1].update(role="input"), "24 bytes after the last constant; expected none"),
        (lambda h: h["tensors"].append(h["tensors"][0]), "tensor 'a'; expected non-empty"),
        (lambda h: h["tensors"].append(3), "a row of tensors must contain exactly"),
        (lambda h: h["memories"][0].update(bytes=HUGE), "memory 'external': 4611686018427387904 bytes; expected"),
        (lambda h: h["memories"].pop(), "instruction 3: a_memory = 3; expected 0 to 2"),
        (lambda h: h.update(memories={}), "memories = {}; expected a list"),
        (lambda h: h["queues"].pop(), "instruction 4: queue = 4; expected 0 to 3"),
        (lambda h: h["queues"].extend("abcd"), "9 entries of kind queue; expected at most 8"),
        (lambda h: h.update(queues=[1]), "queue 1; expected non-empty"),
        (lambda h: h.update(regions=[{"name": 1}]), "a row of regions must contain exactly"),
        (lambda h: h.pop("regions"), "its header must contain exactly hardware, instructions, memories"),
        (lambda h: h["hardware"]["near_tile"].update(buf_a=0), "near_tile: buf_a = 0; expected a whole number"),
        (lambda h: h.update(hardware=[]), "hardware: []; expected a table"),
    ],
)
def test_impossible_headers_are_refused(tmp_path, content, change, part):
    with pytest.raises(ProgramError) as caught:
        load_bytes(tmp_path, with_header(content, change))
    assert part in str(caught.value) and "changed.vsim: " in str(caught.value)


def test_claims_of_size_take_no_memory(tmp_path, content):
    lengths = [content[:16] + struct.pack("<Q", HUGE) + content[24:], content[:24]]
    tracemalloc.start()
    for data in (*map(signed, lengths), with_header(content, lambda h: h.update(instructions=1 << 40))):
        with pytest.raises(ProgramError):
            load_bytes(tmp_path, data)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20


def test_other_files_and_versions(tmp_path, content):
    assert issubclass(ProgramError, ModelFormatError)
    for data, part in (
        (b"", "is not a program of the simulated accelerator"),
        (b"PK\x03\x04" + content, "is not a program of the simulated accelerator"),
        (content[:8] + struct.pack("<I", 2) + content[12:], "format version 2, written by a newer tvm-tiling"),
        (signed(content[:24] + b"{" + content[25:].replace(b"{", b"[")), "its header is not valid JSON"),
    ):
        with pytest.raises(ProgramError, match=part):
            load_bytes(tmp_path, data)
    with pytest.raises(ProgramError, match="cannot be read: No such file"):
        Program.load(tmp_path / "absent.vsim")
    with pytest.raises(ProgramError, match="cannot be read: Is a directory"):
        Program.load(tmp_path)
