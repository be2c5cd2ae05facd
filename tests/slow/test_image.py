"""The image in docker/, built twice from the last commit on a base made by debootstrap, and used.

Needs root, buildah, debootstrap, and the mirrors of Debian and PyPI; 4 GB of disk during the test.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TRUSTED = Path("/etc/ssl/certs/ca-certificates.crt")  # this machine's, for a mirror behind a proxy
BASE = "localhost/debian-python:latest"

MISSING = [tool for tool in ("buildah", "debootstrap") if shutil.which(tool) is None]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}"),
    pytest.mark.skipif(os.geteuid() != 0, reason="debootstrap needs root"),
    pytest.mark.skipif(not (ROOT / ".git").exists(), reason="docker/build reads a commit; this is no repository"),
]

Run = Callable[..., str]


class Storage:
    """An image store that shares nothing with another."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        kind = subprocess.run(["stat", "-f", "-c", "%T", str(folder)], capture_output=True, text=True, check=True)
        driver = "vfs" if kind.stdout.startswith("overlay") else "overlay"
        settings = {"driver": driver, "graphroot": str(folder / "images"), "runroot": str(folder / "run")}
        lines = ["[storage]", *(f"{name} = {json.dumps(value)}" for name, value in settings.items())]
        (folder / "storage.conf").write_text("\n".join(lines))
        self.environment = {
            **os.environ,
            "CONTAINERS_STORAGE_CONF": str(folder / "storage.conf"),
            "BUILDAH_ISOLATION": "chroot",
        }

    def run(self, *command: str) -> str:
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        return done.stdout.strip()

    def clear(self) -> None:
        self.run("buildah", "rm", "--all")
        self.run("buildah", "rmi", "--all", "--force")


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> Path:
    """An archive with an image of Debian 12 and its Python."""
    folder = tmp_path_factory.mktemp("base")
    tree, storage = folder / "tree", Storage(folder / "storage")
    packages = "ca-certificates,python3,python3-venv"
    # Its mounts disappear with its namespace.
    storage.run(
        "unshare", "--mount", "debootstrap", "--variant=minbase", f"--include={packages}", "bookworm", str(tree)
    )
    shutil.rmtree(tree / "var/cache/apt/archives")
    if TRUSTED.exists():
        shutil.copy(TRUSTED, tree / TRUSTED.relative_to("/"))
        (tree / "etc/pip.conf").write_text(f"[global]\ncert = {TRUSTED}\n")
    container = storage.run("buildah", "from", "scratch")
    storage.run("buildah", "add", "--quiet", container, str(tree), "/")
    storage.run("buildah", "commit", "--quiet", container, f"oci-archive:{folder}/base.tar:{BASE}")
    storage.clear()
    shutil.rmtree(tree)
    return folder / "base.tar"


@pytest.fixture(scope="module")
def images(base: Path) -> Iterator[tuple[list[str], Run]]:
    """Two independent builds: their digests, and a function that runs a command in the second."""
    digests, storages = [], []
    # That of the first build, whatever is committed meanwhile.
    git = ("git", "-C", str(ROOT), "rev-parse", "HEAD")
    commit = subprocess.run(git, capture_output=True, text=True, check=True).stdout.strip()
    for name in ("first", "second"):
        storage = Storage(base.parent / name)
        storages.append(storage)
        storage.run("buildah", "pull", "--quiet", f"oci-archive:{base}")
        built = storage.run(str(ROOT / "docker/build"), "--with", "buildah", "--base", BASE, "--snapshot", "", commit)
        digests.append(built.splitlines()[-1])
    container = storage.run("buildah", "from", "--pull-never", "localhost/tvm-tiling:full")
    try:
        yield digests, lambda *command: storage.run("buildah", "run", container, "--", *command)
    finally:
        for storage in storages:
            storage.clear()


def test_two_builds_of_a_commit_have_one_digest(images):
    (first, second), _ = images
    assert first == second
    assert first.startswith("localhost/tvm-tiling:full sha256:")


def test_nobody_in_it_is_root_and_nothing_of_the_build_is_left(images):
    _, run = images
    assert run("id", "-u") == "10001"
    assert run("sh", "-c", "touch /opt/tvm-tiling/x 2>/dev/null || echo refused") == "refused"
    caches = r"find /root /home /tmp /var/cache /var/lib/apt/lists -type f -not -path '/var/cache/debconf/*'"
    assert run("sh", "-c", f"{caches} 2>/dev/null || true") == ""
    assert run("sh", "-c", "command -v pip pip3 || true") == ""


def test_demo(images):
    _, run = images
    report = json.loads(run("tvm-tiling", "demo", "--size", "128", "--json"))
    assert len(report["networks"]) == 1 and report["machine"]


def test_tuning(images):
    _, run = images
    command = ("tvm-tiling", "tune", "gemm", "64", "64", "64", "--trials", "4", "--database", "/work/shapes.db")
    assert "4 trials done" in run(*command)
    assert "64" in run("tvm-tiling", "db", "list", "/work/shapes.db")


def test_a_compiled_model_is_saved_and_runs(images):
    _, run = images
    write = (
        "import onnx\n"
        "from onnx import helper\n"
        "x, y = (helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, (4, 8)) for n in 'xy')\n"
        "onnx.save(helper.make_model(helper.make_graph([helper.make_node('Relu', ['x'], ['y'])], 'g', [x], [y])), "
        "'/work/relu.onnx')\n"
    )
    run("python", "-c", write)
    run("tvm-tiling", "compile", "/work/relu.onnx", "-o", "/work/relu.tar")
    assert "y" in run("tvm-tiling", "run", "/work/relu.tar")
