"""Untrusted archives: nothing is unpacked, no name or link leads outside, no false length costs memory."""

from __future__ import annotations

import io
import tarfile
import tracemalloc

import pytest
from relay_files import DENSE, tar_bytes

from tvm_tiling.errors import ModelFormatError
from tvm_tiling.frontend import load_model
from tvm_tiling.frontend.relay import archive
from tvm_tiling.frontend.relay.archive import members

MODEL = DENSE.encode()


def entry(kind: bytes, name: str = "model.relay", **fields: object) -> bytes:
    """Return the block of one member of a tar archive; its size may be wrong."""
    found = tarfile.TarInfo(name)
    found.type = kind
    for field, value in fields.items():
        setattr(found, field, value)
    return found.tobuf(tarfile.GNU_FORMAT)


def refused(data: bytes, said: str) -> None:
    """`data` is refused, using less than a megabyte."""
    tracemalloc.start()
    try:
        with pytest.raises(ModelFormatError, match=said) as raised:
            members(memoryview(data), "m.tar")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < (1 << 20) + 8 * len(data)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("name", ["../model.relay", "/model.relay", "src/../../model.relay", "/etc/passwd"])
def test_names_that_lead_out(name):
    refused(tar_bytes({name: MODEL}), "leads out of the archive")


@pytest.mark.parametrize(
    "kind",
    [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE, tarfile.GNUTYPE_SPARSE],
    ids=["symbolic link", "hard link", "character device", "block device", "pipe", "sparse file"],
)
def test_what_is_not_a_plain_file(kind):
    refused(entry(kind, linkname="/etc/passwd") + bytes(1024), r"'model\.relay' is a link or not a regular file")


@pytest.mark.parametrize("kind", [tarfile.REGTYPE, tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME])
@pytest.mark.parametrize("size", [1 << 20, 1 << 32, 1 << 60, -512, -(1 << 60)])
def test_sizes_that_lie(kind, size):
    refused(entry(kind, size=size) + MODEL + bytes(2048), "truncated|corrupted|leads out")


def test_headers_that_lead_to_headers():
    chain = entry(tarfile.GNUTYPE_LONGNAME, size=6) + b"a/b/c\0".ljust(512, b"\0")
    refused(chain * 3000 + entry(tarfile.REGTYPE, size=0) + bytes(1024), "corrupted")


def test_many_members(monkeypatch):
    monkeypatch.setattr(archive, "MAX_MEMBERS", 50)
    refused(tar_bytes({f"codegen/{number}.c": b"" for number in range(51)}), "more than 50 members")


def test_names_in_extended_headers_are_checked_too():
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w", format=tarfile.PAX_FORMAT) as made:
        named = tarfile.TarInfo("model.relay")
        named.size = len(MODEL)
        named.pax_headers = {"path": "../../model.relay"}
        made.addfile(named, io.BytesIO(MODEL))
    refused(held.getvalue(), "leads out of the archive")


def test_archives_that_are_none_of_ours():
    for files, said in (
        ({"model.txt": b""}, "contains no Relay model"),
        ({"src/a.relay": b"", "src/b.relay": b""}, r"contains 2 models \(src/a.relay, src/b.relay\)"),
        ({"model.relay": MODEL, "model.params": b"none"}, r"model\.params: truncated"),
    ):
        with pytest.raises(ModelFormatError, match=said):
            load_model(tar_bytes(files))
