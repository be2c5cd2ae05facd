"""Every kind of decision explains its choices as text and as JSON."""

from __future__ import annotations

import functools
import importlib
import json
import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass

import pytest

import tvm_tiling as tt
from tvm_tiling.decide.configs.config import tiling_of
from tvm_tiling.decide.conv.open_grouped import decide_open_grouped
from tvm_tiling.decide.conv.open_winograd import decide_open_winograd
from tvm_tiling.decide.explain import shown_name
from tvm_tiling.decide.gemm.cpu_gemm import decide_on_cpu
from tvm_tiling.decide.gemm.open_rows import decide_open_rows
from tvm_tiling.decide.levels.level_vector import decide_vector_on_levels
from tvm_tiling.decide.options import Options
from tvm_tiling.decide.rnn.recurrence import Recurrence, decide_recurrence
from tvm_tiling.decide.surroundings import Surroundings
from tvm_tiling.decide.tiling import Decision
from tvm_tiling.decide.vector.attention import AttentionShape, decide_attention
from tvm_tiling.decide.vector.cache_append import CacheAppend, decide_append
from tvm_tiling.decide.vector.cached_attention import CachedAttention, decide_cached_attention
from tvm_tiling.decide.vector.elementwise import Work, decide_elementwise
from tvm_tiling.decide.vector.vector_tiling import decide_vector
from tvm_tiling.decide.vector.window import Windows, decide_windows
from tvm_tiling.hardware.machine import Machine

CPU = tt.Hardware.load("zen4-server-8c")
NEARTILE, VTA, DLA3, WFOLD, RNN = map(tt.Hardware.load, ("neartile", "vta", "dla3", "wfold16", "rnn16k"))
PRODUCT = {"m": 512, "k": 4096, "n": 512}
IMAGE = {"n": 1, "h": 56, "w": 56, "ci": 64, "co": 64, "kh": 3, "kw": 3, "padding": (1, 1, 1, 1)}
LAYER = {"steps": 20, "input_size": 256, "hidden_size": 512}

Maker = Callable[[], Decision]


def product(machine: tt.Hardware, **other: object) -> Maker:
    return lambda: tt.decide(tt.GemmWorkload(**{**PRODUCT, **other}), machine)


def image(machine: tt.Hardware, form: str | None = None, **other: object) -> Maker:
    return lambda: tt.decide(tt.ConvWorkload(**{**IMAGE, **other}), machine, algorithm=form)


def config_image() -> Decision:
    workload = tt.ConvWorkload(**IMAGE, dtype="int8")
    return tiling_of(tt.config_of(tt.decide(workload, VTA), workload, VTA), workload, VTA)


POINTWISE = {"kh": 1, "kw": 1, "padding": (0, 0, 0, 0)}
# For each kind of decision, examples from real workloads, by the name that a failure shows.
MADE: dict[str, dict[str, Maker]] = {
    "GemmTiling": {
        "cpu": product(CPU),
        "transposed": product(CPU, trans_b=True, batch=3),
        "stream": product(CPU, m=1),
        "float16": product(CPU, dtype="float16"),
        "prepacked": lambda: decide_on_cpu(tt.GemmWorkload(**PRODUCT), CPU, packing="ahead"),
        "neartile": product(NEARTILE, dtype="int8"),
        "vta": product(VTA, dtype="int8"),
        "seed": lambda: tt.decide(tt.GemmWorkload(**PRODUCT, dtype="int8"), NEARTILE, mode="seed"),
    },
    "BlockedTiling": {"int4": lambda: tt.decide(tt.GemmWorkload(**PRODUCT, encoding="int4:32"), CPU)},
    "OpenGemmTiling": {
        "prepacked": lambda: decide_open_rows(
            tt.GemmWorkload(**PRODUCT), CPU, Options(prepacked=True), Surroundings(prepacked=True)
        )
    },
    "ConvPartition": {"vta": image(VTA, dtype="int8"), "neartile": image(NEARTILE, dtype="int8"), "cut": config_image},
    "ConvTiling": {
        **{form: image(CPU, form) for form in ("direct", "winograd", "wfold")},
        "gemm": image(CPU, "gemm", **POINTWISE),
        "stride_fold": image(CPU, "stride_fold", stride=(2, 2)),
        "depthwise": image(CPU, "depthwise", groups=64),
        "wfold16": image(WFOLD, dtype="int8"),
        "product": product(WFOLD, dtype="int8"),
    },
    "OpenConvTiling": {
        "images": lambda: decide_open_winograd(
            [tt.ConvWorkload(**{**IMAGE, "h": side, "w": side}) for side in (56, 112)], CPU
        ),
        "grouped": lambda: decide_open_grouped(tt.ConvWorkload(**IMAGE, groups=8), CPU),
    },
    "LevelsTiling": {"product": product(DLA3, dtype="int8"), "convolution": image(DLA3, dtype="int8")},
    "ColumnTiling": {"vector": product(RNN, m=1, dtype="int16")},
    "RnnTiling": {
        "lstm": lambda: tt.decide(tt.RnnWorkload(cell="lstm", **LAYER, dtype="int16"), RNN),
        "two layers": lambda: tt.decide(tt.RnnWorkload(cell="gru", layers=2, **LAYER, dtype="int16"), RNN, mode="seed"),
    },
    "RnnCpuTiling": {"lstm": lambda: tt.decide(tt.RnnWorkload(cell="lstm", layers=2, **LAYER), CPU)},
    "RecurrenceTiling": {
        "gru": lambda: decide_recurrence(Recurrence(cell="gru", steps=9, batch=2, hidden=96, order="rzn"), CPU.cpu)
    },
    "AttentionTiling": {
        "heads": lambda: decide_attention(AttentionShape(batch=12, rows=384, keys=384, depth=64, width=64), CPU.cpu)
    },
    "CachedAttentionTiling": {
        "heads": lambda: decide_cached_attention(
            CachedAttention(batch=1, length=9, every=64, heads=14, groups=2, width=64, scale=0.125), CPU.cpu
        )
    },
    "AppendTiling": {
        "heads": lambda: decide_append(CacheAppend(batch=1, room=64, length=1, every=64, groups=2, width=64), CPU.cpu)
    },
    "ElementwiseTiling": {
        "small": lambda: decide_elementwise(Work(bytes=8 << 10, points=1 << 10, word=4), CPU.cpu),
        "large": lambda: decide_elementwise(Work(bytes=8 << 22, points=1 << 22, word=4, functions=1), CPU.cpu),
    },
    "VectorTiling": {
        "vta": lambda: decide_vector((100, 1000), [("out", 4), ("a", 1)], 1, 3, Machine(VTA)),
        "levels": lambda: decide_vector_on_levels((100, 1000), [("a", 1), ("b", 1)], 1, 2, Machine(DLA3)),
    },
    "WindowTiling": {
        "pooling": lambda: decide_windows(
            Windows(
                points=(64, 28, 28),
                summed=(3, 3),
                steps=((1, 0, 0, 0, 0), (0, 2, 0, 1, 0), (0, 0, 2, 0, 1)),
                d_in=1,
                d_out=1,
            ),
            Machine(VTA),
        )
    },
}
HEADLINE = ("mode", "reasons", "feasible")
EVERY = [pytest.param(kind, make, id=f"{kind}-{name}") for kind, cases in MADE.items() for name, make in cases.items()]


def below(kind: type[Decision]) -> Iterator[type[Decision]]:
    for own in kind.__subclasses__():
        yield own
        yield from below(own)


@functools.cache
def kinds() -> tuple[type[Decision], ...]:
    """Return every kind of decision of this package, including those in modules not imported before."""
    package = importlib.import_module("tvm_tiling.decide")
    for module in pkgutil.walk_packages(package.__path__, "tvm_tiling.decide."):
        importlib.import_module(module.name)
    return tuple(kind for kind in below(Decision) if kind.__module__.startswith("tvm_tiling."))


def test_every_kind_of_decision_is_made_here():
    assert {kind.__name__ for kind in kinds()} == set(MADE)


@pytest.mark.parametrize(("kind", "make"), EVERY)
def test_every_decision_explains(kind, make):
    found = make()
    assert type(found).__name__ == kind
    lines = found.explain().splitlines()
    assert lines[0].startswith(f"{found.title or found.op} tiling") and ("mode" in lines[0]) == (found.mode != "best")
    shown = [line.strip() for line in lines[1:]]
    rows = list(found.explained())
    assert found.reasons
    for reason in found.reasons:
        assert any((row.name, row.why) == (shown_name(reason.field), reason.why) for row in rows), reason.field
    for row in rows:
        assert row.section == "compared" or "_" not in row.title, f"{row.name} has no label"
        assert any(line.startswith(f"{row.title} ") and row.value in line and row.why in line for line in shown), row
    assert "Tiling(" not in "\n".join(lines) and "Reason(" not in "\n".join(lines)
    plain = json.loads(found.to_json())
    assert plain == json.loads(json.dumps(found.to_dict())) and plain["op"] == found.op
    assert set(plain) == {"op", *(field.name for field in fields(found))}


@pytest.mark.parametrize("kind", sorted(MADE))
def test_every_kind_declares_its_sections(kind):
    """Return its sections: each field is in at most one; a field in none is a part with rows of its own."""
    (declared,) = (own for own in kinds() if own.__name__ == kind)
    assert "sections" in vars(declared)
    shown = [name for _, names in declared.sections for name in names]
    assert len(shown) == len(set(shown)) and set(shown) <= {field.name for field in fields(declared)}


@pytest.mark.parametrize(("kind", "make"), EVERY)
def test_no_choice_is_left_out(kind, make):
    """Every field that is not at its default is named: by itself or, if it has parts, by theirs."""
    found = make()
    named = {row.name for row in found.explained()}
    for field in fields(found):
        value = getattr(found, field.name)
        parts = value if isinstance(value, tuple) else (value,)
        if field.name not in HEADLINE and value != field.default and not any(map(is_dataclass, parts)):
            assert shown_name(field.name) in named or field.name == "candidates", field.name


def test_a_printed_decision_explains_itself():
    tiling = tt.decide(tt.GemmWorkload(m=64, k=512, n=64, dtype="int8"), "vta")
    assert str(tiling) == tiling.explain() and repr(tiling).startswith("GemmTiling(")
