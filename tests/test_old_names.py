"""Names of the previous version: they work like the new ones, with a warning."""

from __future__ import annotations

import re
import warnings

import pytest
from tvm import te

import tvm_tiling as tt
from tvm_tiling.decide.configs.neighbourhood import neighbourhood

CPU = tt.Hardware.load("icelake-server-2c")
SHAPE = tt.GemmWorkload(m=64, n=64, k=64)
DECISION = tt.decide(SHAPE, CPU)


def product() -> te.Tensor:
    a, b = (te.placeholder((64, 64), name=name) for name in "AB")
    k = te.reduce_axis((0, 64), name="k")
    return te.compute((64, 64), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")


@pytest.fixture
def db():
    with tt.ShapeDatabase("sqlite://") as opened:
        yield opened


def warned(old: str, new: str):
    return pytest.warns(DeprecationWarning, match=re.escape(f"{old} is deprecated; use {new}"))


@pytest.mark.parametrize(("old", "new"), [("Cut", "Config"), ("cut_of", "config_of")])
def test_names_of_the_package(old, new):
    with warned(f"tvm_tiling.{old}", new) as caught:
        assert getattr(tt, old) is getattr(tt, new)
    assert caught[0].filename == __file__
    assert old not in tt.__all__ and new in tt.__all__


def test_arguments_of_the_database(db):
    config = tt.config_of(DECISION, SHAPE, CPU)
    with warned("add(cut=...)", "config="), warned("add(ahead=...)", "prepacked="):
        db.add(SHAPE, cut=config, cost=1e-3, target=CPU, ahead=True)
    with warned("match(ahead=...)", "prepacked="):
        hit = db.match(SHAPE, target=CPU, ahead=True)
    assert hit.entry.cut == hit.entry.config == config and hit.entry.prepacked
    with warned("matches(ahead=...)", "prepacked="):
        assert [found.entry for found in db.matches(SHAPE, target=CPU, ahead=True)] == [hit.entry]
    with warned("nearest(ahead=...)", "prepacked="):
        assert db.nearest(SHAPE, target=CPU, ahead=True) == [hit.entry]
    with warned("generate(ahead=...)", "prepacked="):
        assert db.generate(target=tt.Hardware.detect(), ahead=True).shapes == 0  # which it measures


def test_arguments_of_schedules(db):
    config = tt.config_of(DECISION, SHAPE, CPU)
    wanted = tt.tiling_schedule(product(), CPU, config=config).mod.script()
    with warned("tiling_schedule(cut=...)", "config="):
        assert tt.tiling_schedule(product(), CPU, cut=config).mod.script() == wanted
    with warned("tiling_schedule(cuts=...)", "configs="):
        tt.tiling_schedule(product(), CPU, cuts=db)
    with warned("packed_operator(cut=...)", "config="):
        tt.packed_operator(product(), cut=None)
    with warned("__init__(cuts=...)", "configs="):
        assert tt.ApplyTiling(CPU, cuts=db).options.configs is db


def test_form_is_called_algorithm():
    with warned("decide(form=...)", "algorithm="):
        found = tt.decide(SHAPE, CPU, form="pack")
    assert found == tt.decide(SHAPE, CPU, algorithm="pack") and found.algorithm == found.form == "pack"
    assert tt.config_of(found, SHAPE, CPU).algorithm == "pack"
    with warned("tiling_schedule(form=...)", "algorithm="):
        old = tt.tiling_schedule(product(), CPU, form="pack").mod.script()
    assert old == tt.tiling_schedule(product(), CPU, algorithm="pack").mod.script()
    with warned("packed_operator(form=...)", "algorithm="):
        tt.packed_operator(product(), form="pack")


def test_arguments_of_searches():
    with warned("neighbourhood(ahead=...)", "prepacked="):
        assert neighbourhood(SHAPE, CPU, ahead=True).start == neighbourhood(SHAPE, CPU, prepacked=True).start
    with warned("tune(ahead=...)", "prepacked="), pytest.raises(tt.TilingError):
        tt.tune(SHAPE, "no target", ahead=True)


def test_both_names_are_refused(db):
    with pytest.raises(TypeError, match="'config' twice, once by its old name 'cut'"):
        tt.tiling_schedule(product(), CPU, config=None, cut=None)


def test_new_names_do_not_warn(db):
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)
        db.add(SHAPE, config=tt.config_of(DECISION, SHAPE, CPU), cost=1e-3, target=CPU, prepacked=True)
        assert db.match(SHAPE, target=CPU, prepacked=True).entry.prepacked
