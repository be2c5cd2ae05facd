"""The direction of the arrows (docs: the house plan) and the list of packages, checked by walking the sources."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parent.parent

# Rooms from left to right. A module may import from its own room and from those to its left; nothing else.
ROOMS = (
    ("errors", "limits", "plain_text", "temporary", "whole_file"),
    ("workload", "hardware"),
    ("decide",),
    ("refusal", "match", "lowering", "measure", "peak", "target"),
    ("schedules", "schedule"),
    ("accel",),
    ("frontend", "model"),
    ("tuning",),
    ("report",),
    ("cli",),
)
# These only name what others hold, and load it when it is asked for.
FRONT_DOORS = {"tvm_tiling", "tvm_tiling.__main__"}
WITHOUT_TVM = ("errors", "limits", "plain_text", "temporary", "whole_file", "workload", "hardware", "decide")


def modules() -> dict[str, Path]:
    """Every module of the package by its dotted name, schedules/ by the name it is installed under."""
    found = {}
    for folder, prefix in ((ROOT / "tvm_tiling", "tvm_tiling"), (ROOT / "schedules", "tvm_tiling.schedules")):
        for path in folder.rglob("*.py"):
            parts = path.relative_to(folder).with_suffix("").parts
            name = ".".join((prefix, *parts)).removesuffix(".__init__")
            found[name] = path
    return found


MODULES = modules()


def imports(name: str, source: str, is_package: bool) -> Iterator[str]:
    """Dotted names that a module imports, wherever in it, relative ones resolved."""
    package = name.split(".") if is_package else name.split(".")[:-1]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join((*base, *(node.module or "").split("."))).strip(".")
            # `from . import x` may name a module or an attribute; the longer name places it in its room.
            yield from (f"{origin}.{alias.name}" for alias in node.names)


def room(name: str) -> int | None:
    parts = name.split(".")
    if parts[0] != "tvm_tiling" or len(parts) < 2:
        return None
    return next((place for place, names in enumerate(ROOMS) if parts[1] in names), None)


def wrong_arrows(name: str, source: str, is_package: bool) -> list[str]:
    """Imports of a module to the right of its own room."""
    own = room(name)
    return [
        f"{name} imports {imported}"
        for imported in imports(name, source, is_package)
        if own is not None and (place := room(imported)) is not None and place > own
    ]


def is_package(name: str) -> bool:
    return MODULES[name].name == "__init__.py"


@pytest.mark.parametrize("name", sorted(MODULES))
def test_arrows_point_one_way(name):
    assert name in FRONT_DOORS or room(name) is not None, f"{name} stands in no room: give it one in ROOMS"
    if name not in FRONT_DOORS:
        assert wrong_arrows(name, MODULES[name].read_text(), is_package(name)) == []


DECIDING = sorted(name for name in MODULES if name.split(".")[1:2] and name.split(".")[1] in WITHOUT_TVM)


@pytest.mark.parametrize("name", DECIDING)
def test_deciding_names_no_tvm(name):
    named = {origin.split(".")[0] for origin in imports(name, MODULES[name].read_text(), is_package(name))}
    assert not named & {"tvm", "tvm_ffi"}


def test_deciding_loads_no_tvm():
    assert len(DECIDING) > 10
    code = (
        "import importlib, sys\n"
        f"for name in {['tvm_tiling', *DECIDING]!r}: importlib.import_module(name)\n"
        "loaded = {name.split('.')[0] for name in sys.modules}\n"
        "assert not loaded & {'tvm', 'tvm_ffi'}\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_walk_sees_wrong_arrows():
    sources = {
        "from ..lowering import packing": ["tvm_tiling.decide.gemm imports tvm_tiling.lowering.packing"],
        "def f():\n    import tvm_tiling.cli": ["tvm_tiling.decide.gemm imports tvm_tiling.cli"],
        "from .. import schedules": ["tvm_tiling.decide.gemm imports tvm_tiling.schedules"],
        "from ..workload import GemmWorkload\nfrom . import tiling\nimport json": [],
    }
    for source, wrong in sources.items():
        assert wrong_arrows("tvm_tiling.decide.gemm", source, False) == wrong
    assert set(imports("tvm_tiling.decide", "from . import tiling", True)) == {"tvm_tiling.decide.tiling"}
    assert "tvm.tirx" in set(imports("tvm_tiling.decide.gemm", "def f():\n    from tvm import tirx", False))


def arrows() -> dict[str, set[str]]:
    """Every module and the modules of this package that it imports, wherever in it: in functions and under
    TYPE_CHECKING too."""
    found: dict[str, set[str]] = {}
    for name, path in MODULES.items():
        origins = (module_of(origin) for origin in imports(name, path.read_text(), is_package(name)))
        found[name] = {origin for origin in origins if origin and origin != name}
    return found


def module_of(origin: str) -> str:
    """The module that a dotted name is of, or is; empty for another package's."""
    while origin and origin not in MODULES:
        origin = origin.rpartition(".")[0]
    return origin


def circles(arrows: dict[str, set[str]]) -> list[list[str]]:
    """Strongly connected components of more than one module: each of them imports, over others, all of them."""
    reached = {name: behind(arrows, name) for name in arrows}
    found = {
        tuple(sorted(other for other in reached[name] if name in reached[other]))
        for name in arrows
        if name in reached[name]
    }
    return [list(circle) for circle in sorted(found)]


def behind(arrows: dict[str, set[str]], name: str) -> set[str]:
    """What a module imports, directly or over others."""
    seen: set[str] = set()
    left = list(arrows[name])
    while left:
        other = left.pop()
        if other not in seen:
            seen.add(other)
            left += arrows[other]
    return seen


def test_no_circles():
    assert circles(arrows()) == []


def test_the_walk_sees_circles():
    line = {"a": {"b"}, "b": {"c"}, "c": set()}
    assert circles(line) == []
    assert circles({**line, "c": {"a"}, "d": {"a"}}) == [["a", "b", "c"]]
    assert circles({"a": {"b"}, "b": {"a"}, "c": {"d", "a"}, "d": {"c"}}) == [["a", "b"], ["c", "d"]]
    hidden = "def f():\n    from .b import g\nif TYPE_CHECKING:\n    from .c import h"
    assert set(imports("tvm_tiling.a", hidden, False)) == {"tvm_tiling.b.g", "tvm_tiling.c.h"}


def test_every_folder_with_code_is_installed():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    folders = {name if is_package(name) else name.rpartition(".")[0] for name in MODULES}
    assert set(settings["packages"]) == folders
    assert settings["package-dir"] == {"tvm_tiling.schedules": "schedules"}


def test_nothing_is_installed_as_schedules():
    absolute = [
        n for n, p in MODULES.items() for i in imports(n, p.read_text(), is_package(n)) if i.startswith("schedules")
    ]
    assert absolute == []
