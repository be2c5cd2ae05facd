"""docker/: lock files compared with pyproject.toml, commands of the build script, health check of tracker and
worker."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tvm_tiling.tuning.workers.fleet import Fleet

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]
DOCKER = ROOT / "docker"
LOCKED_EXTRAS = ("onnx", "postgres", "rpc", "sim", "text", "tflite")
# Not in the image: PyTorch for its size, and what only a clone of the repository uses.
OTHER_EXTRAS = ("torch", "test", "lint", "docs", "bench", "network-bench", "language-bench", "accel-bench")
LOCKED_PYTHON = {"python_version": "3.11", "python_full_version": "3.11.14"}


def locked(name: str) -> dict[str, str]:
    """Return the version of each distribution in a lock file."""
    return dict(re.findall(r"^([\w.-]+)==(\S+) \\$", (DOCKER / name).read_text(), re.MULTILINE))


def test_lock_file_has_what_pyproject_asks_for():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = project["dependencies"] + [line for e in LOCKED_EXTRAS for line in project["optional-dependencies"][e]]
    found = locked("requirements.lock")
    for requirement in map(Requirement, asked):
        if requirement.marker is None or requirement.marker.evaluate(LOCKED_PYTHON):
            version = found.get(requirement.name)
            assert version and requirement.specifier.contains(version), f"{requirement}: locked {version}; docker/lock"


def test_every_extra_is_in_the_image_or_left_out_on_purpose():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(extras) == {*LOCKED_EXTRAS, *OTHER_EXTRAS}
    assert set(re.findall(r"--extra (\S+)", (DOCKER / "lock").read_text())) == set(LOCKED_EXTRAS)


@pytest.mark.parametrize("name", ["build.lock", "requirements.lock"])
def test_everything_locked_has_a_hash(name):
    text = (DOCKER / name).read_text()
    blocks = re.findall(r"^([\w.-]+)==\S+ \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", text, re.MULTILINE)
    assert {package for package, _ in blocks} == set(locked(name)) != set()
    assert len(re.findall("==", re.sub("#.*", "", text))) == len(blocks)


@pytest.fixture
def tools(tmp_path):
    """Run docker/build with only the named tools available, which do nothing and succeed."""
    for name in ("bash", "git", "tar", "mktemp", "rm", "dirname", "env"):
        (tmp_path / name).symlink_to(shutil.which(name))

    def build(*arguments: str, has: tuple[str, ...] = ("podman", "buildah")) -> subprocess.CompletedProcess[str]:
        for name in has:
            (tmp_path / name).write_text("#!/bin/sh\nexit 0\n")
            (tmp_path / name).chmod(0o755)
        environment = {"PATH": str(tmp_path), "HOME": os.environ.get("HOME", "/")}
        command = [str(DOCKER / "build"), "--dry-run", *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    return build


@pytest.mark.skipif(
    not (ROOT / ".git").exists() or shutil.which("git") is None,
    reason="docker/build reads a commit by git",
)
class TestBuild:
    def test_time_and_files_are_the_commits(self, tools):
        git = ["git", "-C", str(ROOT), "show", "--no-patch", "--format=%ct %H", "HEAD"]
        seconds, commit = subprocess.run(git, capture_output=True, text=True, check=True).stdout.split()
        command = tools().stdout
        assert command.startswith(f"podman build --timestamp {seconds} ")
        assert f"--label org.opencontainers.image.revision={commit} " in command
        assert "--target full " in command and "--tag localhost/tvm-tiling:full " in command

    def test_docker_comes_first_and_rewrites_the_times_of_files(self, tools):
        command = tools("--target", "runtime", has=("docker", "buildah")).stdout
        assert command.startswith("docker buildx build ") and "SOURCE_DATE_EPOCH=" in command
        assert "type=docker\\,name=localhost/tvm-tiling:runtime\\,rewrite-timestamp=true" in command

    def test_arguments_reach_the_dockerfile(self, tools):
        options = ("--base", "mine:1", "--snapshot", "", "--with", "buildah", "--", "--isolation", "chroot")
        command = tools(*options).stdout
        assert command.startswith("buildah build ")
        assert "--build-arg BASE=mine:1 --build-arg SNAPSHOT= --isolation chroot " in command

    @pytest.mark.parametrize(
        ("arguments", "says"),
        [
            (("--target", "small"), "--target is not a stage of the image: small; expected runtime or full"),
            (("--with", "kaniko"), "--with is not a supported tool: kaniko; expected docker, podman or buildah"),
            (("--tag",), "--tag requires a value"),
            (("--fast",), "option --fast does not exist"),
            (("0" * 40,), f"commit {'0' * 40} does not exist"),
        ],
    )
    def test_mistakes_get_one_sentence(self, tools, arguments, says):
        done = tools(*arguments)
        assert done.returncode == 2 and says in done.stderr and done.stderr.count("\n") == 1

    def test_without_any_tool(self, tools):
        done = tools(has=())
        assert (
            done.returncode == 2
            and "expected docker (with buildx, and its engine running), podman or buildah" in done.stderr
        )


def health(address: str, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(DOCKER / "health.py"), address, *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_health_of_tracker_and_worker():
    with Fleet(predicting=1, delay=0.0) as fleet:
        tracker = f"127.0.0.1:{fleet.address.port}"
        assert health(tracker).returncode == health(tracker, "--worker").returncode == 0
        for worker in fleet.workers:
            worker.kill()
            worker.wait()
        gone = health(tracker, "--worker")
        assert health(tracker).returncode == 0
        assert gone.returncode == 1 and "no worker at 127.0.0.1 is registered" in gone.stderr
    ended = health(tracker)
    assert ended.returncode == 1 and tracker in ended.stderr and "Traceback" not in ended.stderr
