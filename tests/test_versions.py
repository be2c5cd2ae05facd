"""The versions that docs/install.md names are those that pyproject.toml accepts."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
ROW = re.compile(r"^\| ([A-Za-z]+)[^|]* \| ([\d.]+) to ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$", re.MULTILINE)
ROWS = {found[1].lower(): found.groups()[1:] for found in ROW.finditer((ROOT / "docs/install.md").read_text())}
PACKAGES = {"numpy": "numpy", "pytorch": "torch", "onnx": "onnx", "onnxruntime": "onnxruntime"}


def requirements(package: str) -> list[Requirement]:
    """Return what the project and its extras require of a package."""
    lines = [*PROJECT["dependencies"], *(line for extra in PROJECT["optional-dependencies"].values() for line in extra)]
    return [found for found in map(Requirement, lines) if found.name == package]


def test_every_version_is_documented():
    assert set(ROWS) == {"python", *PACKAGES}


@pytest.mark.parametrize("name", PACKAGES)
def test_packages(name):
    lowest, major, *tried = ROWS[name]
    found = [r.specifier for r in requirements(PACKAGES[name]) if f">={lowest}" in str(r.specifier)]
    assert found
    for specifier in found:
        assert set(str(specifier).split(",")) == {f">={lowest}", f"<{int(major) + 1}"}
        assert all(version in specifier for version in tried)
    assert Version(tried[0]).release[:2] == Version(lowest).release[:2]


def test_python():
    lowest, highest, *tried = ROWS["python"]
    assert PROJECT["requires-python"] == f">={lowest}"
    assert Version(lowest) <= Version(tried[0]) <= Version(tried[1])
    assert Version(tried[1]).release[:2] <= Version(highest).release[:2]
