"""The direction of imports between packages (docs/design.md) and the list of packages, checked on the sources."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parent.parent

# Packages from left to right. A module may import from its own package and from those to its left only.
ROOMS = (
    (
        "errors",
        "figures",
        "lean_import",
        "limits",
        "old_names",
        "plain_text",
        "temporary",
        "atomic_file",
        "progress_line",
        "sizes",
        "user_folder",
    ),
    ("operand_types", "sizes", "workload", "hardware"),
    ("decide",),
    ("runtime",),
    ("refusal", "match", "lowering", "measure", "other_work", "peak", "target"),
    ("schedules", "schedule"),
    ("accel",),
    ("frontend", "model", "calibrate"),
    ("tuning",),
    ("report",),
    ("cli",),
)
# These only name what others contain, and load it on request.
FRONT_DOORS = {"tvm_tiling", "tvm_tiling.__main__"}
# Modules that import modules of this package inside functions, and the reason; a name that ends in a dot is a package.
LATE = {
    "tvm_tiling.cli.": "a command loads what it needs, so that help and completion come at once",
    "tvm_tiling.decide.kinds": "brings NumPy, which decisions for CPUs do without",
    "tvm_tiling.frontend.source": "a frontend is loaded for a model of its format; most need an extra",
    "tvm_tiling.model.compilation": "what compiles for accelerators is loaded for one",
    "tvm_tiling.model.compile": "what compiles brings TVM, which a model from the cache does without",
    "tvm_tiling.model.load": "what runs on accelerators is loaded with a file that holds such",
    "tvm_tiling.model.kernel_launcher": "an entry point: TVM imports it whenever it is imported itself",
    "tvm_tiling.model.executable": "what writes C libraries is loaded for one",
    "tvm_tiling.model.passes.constants": "brings TVM, which a saved model that has a plan does without",
    "tvm_tiling.model.planned_variant": "what measures takes as long to load as a model",
    "tvm_tiling.model.outputs": "brings TVM, which a saved model that has a plan does without",
    "tvm_tiling.model.relax_pipeline": "an entry point: TVM imports it whenever it is imported itself",
    "tvm_tiling.model.variants": "brings TVM, which models with a plan do without",
    "tvm_tiling.peak": "brings TVM, which pages of what was measured do without",
    "tvm_tiling.schedule": "rules for accelerators are loaded for one",
    "tvm_tiling.tuning.measuring.simulator": "brings TVM, which a search imports while others think",
    "tvm_tiling.tuning.metaschedule.lower_configs": "an entry point: TVM imports it whenever it is imported itself",
    "tvm_tiling.tuning.operator": "brings TVM, which tuning a workload does without",
    "tvm_tiling.tuning.tasks": "brings TVM and the graph passes, which tuning an operator does without",
    "tvm_tiling.tuning.tune": "takes some tenths of a second, in which the processes that measure start",
    "tvm_tiling.tuning.workers.transport": "brings TVM, which the process that asks does without",
    "tvm_tiling.tuning.workers.fleet": "brings TVM, before which a process settles what of it is left out",
}
# Modules that import by names that are data, and the reason: such imports are not checked.
BY_NAME = {
    "tvm_tiling": "the front door's table of names",
    "tvm_tiling.cli.app": "the table of commands",
    "tvm_tiling.cli.bench": "benchmarks, which are no part of the package",
    "tvm_tiling.hardware": "the front door's table of names",
    "tvm_tiling.frontend": "the front door's table of names",
    "tvm_tiling.frontend.source": "a torch.nn.Module, by a function of ours",
    "tvm_tiling.model.package_versions": "the whole package, for its files",
    "tvm_tiling.tuning.measuring.child": "what a process is to do",
    "tvm_tiling.tuning.measuring.template": "what a process is to do",
}
WITHOUT_TVM = (
    "errors",
    "figures",
    "limits",
    "sizes",
    "plain_text",
    "temporary",
    "atomic_file",
    "old_names",
    "user_folder",
    "workload",
    "hardware",
    "decide",
)


def modules() -> dict[str, Path]:
    """Return every module of the package by its dotted name, schedules/ by the name under which it is installed."""
    found = {}
    for folder, prefix in ((ROOT / "tvm_tiling", "tvm_tiling"), (ROOT / "schedules", "tvm_tiling.schedules")):
        for path in folder.rglob("*.py"):
            parts = path.relative_to(folder).with_suffix("").parts
            name = ".".join((prefix, *parts)).removesuffix(".__init__")
            found[name] = path
    return found


MODULES = modules()


@functools.cache
def imports(name: str, source: str, is_package: bool) -> tuple[str, ...]:
    """Return the dotted names that a module imports anywhere, with relative ones resolved."""
    return tuple(named(name, is_package, ast.walk(ast.parse(source))))


def named(name: str, is_package: bool, nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Return the dotted names that imports among `nodes` of the module `name` refer to."""
    package = name.split(".") if is_package else name.split(".")[:-1]
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join((*base, *(node.module or "").split("."))).strip(".")
            # `from . import x` may name a module or an attribute; the longer name determines the package.
            yield from (f"{origin}.{alias.name}" for alias in node.names)


def room(name: str) -> int | None:
    parts = name.split(".")
    if parts[0] != "tvm_tiling" or len(parts) < 2:
        return None
    return next((place for place, names in enumerate(ROOMS) if parts[1] in names), None)


def wrong_arrows(name: str, source: str, is_package: bool) -> list[str]:
    """Return the imports of a module from packages to the right of its own."""
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
    """Return every module with the modules of this package that it imports anywhere, including in functions and under
    TYPE_CHECKING."""
    found: dict[str, set[str]] = {}
    for name, path in MODULES.items():
        origins = (module_of(origin) for origin in imports(name, path.read_text(), is_package(name)))
        found[name] = {origin for origin in origins if origin and origin != name}
    return found


def module_of(origin: str) -> str:
    """Return the module that a dotted name is or belongs to; empty for other packages."""
    while origin and origin not in MODULES:
        origin = origin.rpartition(".")[0]
    return origin


def circles(arrows: dict[str, set[str]]) -> list[list[str]]:
    """Return strongly connected components of more than one module: import cycles."""
    reached = {name: behind(arrows, name) for name in arrows}
    found = {
        tuple(sorted(other for other in reached[name] if name in reached[other]))
        for name in arrows
        if name in reached[name]
    }
    return [list(circle) for circle in sorted(found)]


def behind(arrows: dict[str, set[str]], name: str) -> set[str]:
    """Return what a module imports, directly or indirectly."""
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


def in_functions(source: str) -> list[ast.AST]:
    """Return the nodes inside functions, which are executed when they are called."""
    left: list[tuple[ast.AST, bool]] = [(ast.parse(source), False)]
    found: list[ast.AST] = []
    while left:
        node, inside = left.pop()
        if inside := inside or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            found.append(node)
        left += ((child, inside) for child in ast.iter_child_nodes(node))
    return found


def at_once(source: str) -> list[ast.AST]:
    """Return the nodes that are executed on import: outside of functions and TYPE_CHECKING."""
    found: list[ast.AST] = []
    left: list[ast.AST] = [ast.parse(source)]
    while left:
        node = left.pop()
        found.append(node)
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            left += node.orelse
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            left += ast.iter_child_nodes(node)
    return found


@functools.cache
def late_imports(name: str) -> set[str]:
    """Return the modules of this package that a module imports inside functions."""
    nodes = in_functions(MODULES[name].read_text())
    return {module_of(origin) for origin in named(name, is_package(name), nodes)} - {"", name}


@functools.cache
def loaded() -> dict[str, set[str]]:
    """Return every module with those loaded together with it: its imports on load, and the enclosing packages."""
    direct: dict[str, set[str]] = {}
    for name, path in MODULES.items():
        origins = named(name, is_package(name), at_once(path.read_text()))
        around = {name.rsplit(".", depth)[0] for depth in range(1, name.count(".") + 1)}
        direct[name] = {module_of(origin) for origin in origins} - {"", name} | around
    return {name: behind(direct, name) for name in direct}


def test_imports_in_functions_have_a_reason():
    """Such imports must save the time or the dependency that LATE states. An import of a module that is loaded anyway,
    or one without a reason in the list, hides something."""
    late = {name: late_imports(name) for name in MODULES}
    anyway = {name: late[name] & loaded()[name] for name in MODULES}
    assert {name: found for name, found in anyway.items() if found} == {}, "loaded anyway: import it at the top"
    without = [n for n in late if late[n] and n not in LATE and f"{n.rpartition('.')[0]}." not in LATE]
    assert without == [], "import it at the top, or say why not in LATE"


def test_every_reason_is_needed():
    late = {name for name in MODULES if late_imports(name)}
    assert [entry for entry in LATE if not any(name == entry or name.startswith(entry) for name in late)] == []


def test_imports_by_name_have_a_reason():
    def by_name(node: ast.AST) -> bool:
        named = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
        return named in ("import_module", "__import__")

    found = {name for name, path in MODULES.items() if any(map(by_name, ast.walk(ast.parse(path.read_text()))))}
    assert found == set(BY_NAME)


def test_the_walk_reports_late_imports():
    source = (
        "import a\nif TYPE_CHECKING:\n    import b\nelse:\n    import c\ndef f():\n    import d\nclass E:\n    import e"
    )
    assert set(named("x", False, at_once(source))) == {"a", "c", "e"}
    assert set(named("x", False, in_functions(source))) == {"d"}


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


def test_the_size_of_a_cache_line_is_stated_once():
    stated = [name for name, path in modules().items() if re.search(r"^\w*LINE\w* = 64\b", path.read_text(), re.M)]
    assert stated == ["tvm_tiling.hardware.cpu"]
