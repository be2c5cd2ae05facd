"""Snippets of README.md, docs/ and --help: where they are, the files that they need, and how they are run.

Documents use files with names such as model.onnx. Files that a snippet names and no previous snippet created are put
into its folder first: small ones, according to their suffix.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import io
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import typer

from tvm_tiling.cli import app, main

sys.path.insert(0, str(Path(__file__).parent / "frontend"))  # whose Relay files are used here

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = tuple(sorted(DOCS.rglob("*.md")))
COSTLY_PAGES = ("metaschedule.md",)  # a MetaSchedule search: run by the slow tests
IMAGE = (1, 3, 32, 32)
SECONDS = 0.1  # of measurements whose length a snippet does not give
# Paths of the names that the reference documents, without the package.
REFERENCE = [
    name
    for page in sorted((DOCS / "api").glob("*.md"))
    for name in re.findall(r"^::: tvm_tiling\.(\S+)$", page.read_text(), flags=re.MULTILINE)
]


class Block(NamedTuple):
    """A fenced block of a page: its language, its text and the number of its first line."""

    language: str
    text: str
    line: int

    def commands(self) -> list[list[str]]:
        """Return the commands of a shell block, as words without comments."""
        lines = self.text.replace("\\\n", " ").splitlines()
        return [words for line in lines if (words := shlex.split(line, comments=True))]


def blocks(page: Path, *languages: str) -> Iterator[Block]:
    """Return the fenced blocks of a page in these languages, in order."""
    text = page.read_text()
    for found in re.finditer(r"^```(\w+)\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL):
        if found[1] in languages:
            yield Block(found[1], found[2], text[: found.start()].count("\n") + 2)


def our_commands(page: Path) -> list[list[str]]:
    """Return the words after "tvm-tiling" of every such command on a page."""
    found = [words for block in blocks(page, "sh") for words in block.commands()]
    return [words[1:] for words in found if words[0] == "tvm-tiling"]


# ---- what takes long -------------------------------------------------------------------------------------------------


def is_endless(words: Sequence[str]) -> bool:
    """Return whether a command waits for others, or for Ctrl-C."""
    return words[0] == "fleet" or "--runner" in words or any("postgresql" in word for word in words)


def is_costly(words: Sequence[str]) -> bool:
    """Return whether a command takes more than a few seconds on the small files: it searches, measures suites, or
    restarts Python and TVM. The default tests parse it only."""
    measures = words[:2] == ["db", "generate"] and "--hardware" not in words
    return words[0] in ("bench", "demo", "doctor", "tune") or measures or is_endless(words)


# ---- files -----------------------------------------------------------------------------------------------------------


@functools.cache
def onnx_bytes() -> bytes:
    """Return a small convolutional network from "image" to "scores"."""
    import onnx
    from onnx import helper, numpy_helper

    rng = np.random.default_rng(0)
    shapes = {"w0": (16, 3, 3, 3), "b0": (16,), "w1": (16, 16, 1, 1), "b1": (16,), "w2": (10, 16), "b2": (10,)}
    weights = [numpy_helper.from_array(0.2 * rng.standard_normal(s, "float32"), name) for name, s in shapes.items()]
    nodes = [
        helper.make_node("Conv", ["image", "w0", "b0"], ["c0"], name="stem", pads=[1] * 4, strides=[2, 2]),
        helper.make_node("Relu", ["c0"], ["r0"]),
        helper.make_node("Conv", ["r0", "w1", "b1"], ["c1"], name="pointwise"),
        helper.make_node("Relu", ["c1"], ["r1"]),
        helper.make_node("GlobalAveragePool", ["r1"], ["pooled"]),
        helper.make_node("Flatten", ["pooled"], ["flat"]),
        helper.make_node("Gemm", ["flat", "w2", "b2"], ["scores"], name="classes", transB=1),
    ]
    image = helper.make_tensor_value_info("image", onnx.TensorProto.FLOAT, IMAGE)
    scores = helper.make_tensor_value_info("scores", onnx.TensorProto.FLOAT, (1, 10))
    graph = helper.make_graph(nodes, "small", [image], [scores], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(model.SerializeToString())


@functools.cache
def executable_bytes() -> bytes:
    """Compile the network and save it."""
    import tempfile

    import tvm_tiling as tt

    with tempfile.TemporaryDirectory() as folder:
        tt.compile(onnx_bytes()).save(Path(folder) / "model.tar")
        return (Path(folder) / "model.tar").read_bytes()


@functools.cache
def gguf_bytes() -> bytes:
    """Write a small decoder as a GGUF file."""
    import tempfile

    sys.path.insert(0, str(ROOT / "tests" / "frontend"))
    try:
        from gguf_files import TYPES, Sizes, write_decoder
    finally:
        sys.path.pop(0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.gguf"
        sizes = Sizes(layers=1, width=64, heads=2, groups=1, head=32, inner=64, words=312, most=128, letters=True)
        write_decoder(path, sizes, TYPES.Q8_0)
        return path.read_bytes()


@functools.cache
def program_bytes() -> bytes:
    """Record a matrix multiplication for vta and save it."""
    import tempfile

    import tvm_tiling as tt
    from tvm_tiling.accel.workload_program import workload_program

    workload = tt.GemmWorkload(m=32, n=32, k=32, dtype="int8")
    with tempfile.TemporaryDirectory() as folder:
        workload_program(workload, tt.Hardware.load("vta")).save(Path(folder) / "p.vsim")
        return (Path(folder) / "p.vsim").read_bytes()


def relay_bytes(name: str) -> bytes:
    """Write a Relay model, or its parameters, in the format that the file name implies."""
    from relay_files import DENSE, B, W, dense_json, params_bytes, tar_bytes

    params = params_bytes({"w": W, "b": B})
    forms: dict[str, Callable[[], bytes]] = {
        ".relay": DENSE.encode,
        ".params": lambda: params,
        ".json": dense_json,
        ".tar": lambda: tar_bytes({"model.relay": DENSE.encode(), "model.params": params}),
    }
    return forms[Path(name).suffix]()


def image_bytes() -> bytes:
    """Write inputs of the network by name, as numpy.savez does."""
    held = io.BytesIO()
    np.savez(held, image=np.random.default_rng(1).standard_normal(IMAGE, "float32"))
    return held.getvalue()


@functools.cache
def decoder_bytes() -> bytes:
    """Write a small language model with caches."""
    from benchmarks.language_graph import DECODERS, decoder

    return decoder(dataclasses.replace(DECODERS["small"], layers=1)).SerializeToString()


def tokenizer_bytes() -> bytes:
    """Write a tokenizer whose vocabulary has the size of that model's."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = {word: number for number, word in enumerate(["?", "Once", "upon", "a", "time"])}
    words |= {f"word{number}": number for number in range(len(words), 500)}
    made = Tokenizer(models.WordLevel(words, unk_token="?"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    return made.to_str().encode()


def database(path: Path) -> None:
    """Create a database with one matrix multiplication, measured on this CPU and reduced to smaller ones."""
    import tvm_tiling as tt

    workload, machine = tt.GemmWorkload(m=256, k=256, n=256), tt.Hardware.detect()
    with tt.ShapeDatabase(str(path)) as db:
        db.add(workload, tt.config_of(tt.decide(workload, machine), workload, machine), 1e-3, target=machine)


def provide(folder: Path, words: Sequence[str], relay: bool = False) -> None:
    """Create the missing files that the words name in `folder`, except for outputs after -o and the like."""
    written = {word for option, word in pairwise(words) if option in ("-o", "--output", "--trace")}
    for word in words:
        path = folder / word
        if word in written or path.exists() or not re.fullmatch(r"[\w.-]+\.\w+", word):
            continue
        if path.name == "decoder.onnx":
            path.write_bytes(decoder_bytes())
        elif path.suffix == ".gguf":
            path.write_bytes(gguf_bytes())
        elif path.name == "tokenizer.json":
            path.write_bytes(tokenizer_bytes())
        elif path.suffix == ".onnx":
            path.write_bytes(onnx_bytes())
        elif path.suffix == ".npz":
            path.write_bytes(image_bytes())
        elif path.suffix == ".toml":
            path.write_bytes((DOCS / "examples" / "npu.toml").read_bytes())
        elif path.suffix == ".vsim":
            path.write_bytes(program_bytes())
        elif path.suffix == ".db":
            database(path)
        elif path.suffix == ".tar" and not relay and "convert" not in words:
            path.write_bytes(executable_bytes())
        elif path.suffix in (".relay", ".params", ".json", ".tar"):
            path.write_bytes(relay_bytes(word))


# ---- running ---------------------------------------------------------------------------------------------------------


def run_python(text: str, name: str, session: dict[str, Any] | None = None) -> None:
    """Run a snippet as a separate program, or as the next lines of a session."""
    from tvm_tiling.model.executable import Executable

    scope = {} if session is None else session
    scope |= {"__name__": "__main__", "__file__": name}
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(Executable.benchmark.__kwdefaults__, "seconds", SECONDS)
        exec(compile(text, name, "exec"), scope)


def run_command(words: Sequence[str]) -> None:
    """Run a command of this package in this process, which has to succeed."""
    out, err = io.StringIO(), io.StringIO()
    measured = () if words[0] != "report" or "--seconds" in words else ("--seconds", str(SECONDS))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.raises(SystemExit) as left:
        main([*words, *measured])
    assert not left.value.code, f"tvm-tiling {shlex.join(words)}: {err.getvalue()}"
    assert out.getvalue() or "-o" in words, f"tvm-tiling {shlex.join(words)} printed nothing"


def read_command(words: Sequence[str]) -> None:
    """Parse a command's words and options without running it."""
    row = next(row for row in app.COMMANDS if row.name == words[0])
    module, read = importlib.import_module(row.module), []

    def silent(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def instead(**arguments: Any) -> None:
            read.append(arguments)

        return instead

    with pytest.MonkeyPatch.context() as patch:
        if isinstance(module.command, typer.Typer):
            for command in module.command.registered_commands:
                assert command.callback is not None
                patch.setattr(command, "callback", silent(command.callback))
        else:
            patch.setattr(module, "command", silent(module.command))
        with pytest.raises(SystemExit) as left, contextlib.redirect_stderr(io.StringIO()) as err:
            main(words)
    assert not left.value.code and read, f"tvm-tiling {shlex.join(words)}: {err.getvalue()}"


_RUN: set[tuple[str, ...]] = set()


def run_page(page: Path, folder: Path) -> None:
    """Run a page's snippets in order in `folder`, the working folder. The snippets of a tutorial form one session;
    those of other pages are separate programs."""
    relay = page.name == "relay.md"
    session: dict[str, Any] | None = {} if page.name.startswith("tutorial") else None
    if not relay:
        (folder / "model.onnx").write_bytes(onnx_bytes())
    for block in blocks(page, "python", "sh", "toml"):
        if block.language == "toml":
            (folder / "npu.toml").write_text(block.text)
        elif block.language == "python":
            provide(folder, re.findall(r'"([\w.]+)"', block.text), relay)
            run_python(block.text, f"{page.name}, line {block.line}", session)
        else:
            for words in block.commands():
                if words[0] == "tvm-tiling":
                    run_or_read(words[1:], folder, relay)


def run_or_read(words: Sequence[str], folder: Path, relay: bool = False) -> None:
    """Run a command on prepared files, or only parse it if it is slow or has been run before."""
    if is_costly(words) or tuple(words) in _RUN:
        read_command(words)
    else:
        provide(folder, words, relay)
        run_command(words)
        _RUN.add(tuple(words))
