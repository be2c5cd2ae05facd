"""Number of threads of a model: set at compilation, at loading, for a run, by the environment, by the affinity.

Helpers are counted in a separate process, because they persist once they are started.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from networks import Network, conv_bn_relu

import tvm_tiling as tt
from tvm_tiling.errors import HardwareError, WorkloadError
from tvm_tiling.runtime.threads import usable_core_count

CORES = usable_core_count()
several = pytest.mark.skipif(CORES < 2, reason="right: one core has no threads to choose from")

BEGIN = """
import os, sys
import numpy as np, tvm_tiling as tt
path, x = sys.argv[1], np.random.default_rng(1).random((1, 3, 64, 64), "float32")
def helpers():
    return len(os.listdir("/proc/self/task"))
"""


@pytest.fixture(scope="module")
def network():
    return Network((1, 3, 64, 64)).module(lambda n, x: conv_bn_relu(n, x, 3, 64))


@pytest.fixture(scope="module")
def saved(network, tmp_path_factory):
    path = tmp_path_factory.mktemp("threads") / "model.tar"
    tt.compile(network, cache=False).save(path)
    return path


def said(saved: Path, code: str, **variables: str) -> list[str]:
    environment = {k: v for k, v in os.environ.items() if k != "TVM_NUM_THREADS"} | variables
    # NumPy's BLAS starts threads when it is imported.
    environment |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", BEGIN + code, str(saved)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert not done.returncode, done.stderr
    return done.stdout.split()


@several
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="cpu: threads are counted in /proc")
@pytest.mark.parametrize(
    ("load", "run", "variables", "expected"),
    [
        ("", "", {}, [CORES, CORES - 1]),
        (", threads=1", "", {}, [1, 0]),
        ("", ", threads=1", {}, [CORES, 0]),
        ("", "", {"TVM_NUM_THREADS": "1"}, [1, 0]),
        (", threads=2", "", {"TVM_NUM_THREADS": "1"}, [2, 1]),
    ],
)
def test_a_loaded_model_starts_the_threads_it_is_told(saved, load, run, variables, expected):
    code = f"""
model = tt.load(path{load}); before = helpers()
for _ in range(5): model.run(x{run})
print(model.threads, helpers() - before)
"""
    assert said(saved, code, **variables) == [str(number) for number in expected]


@several
@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="cpu: this system has no affinity")
def test_the_affinity_at_the_time_of_loading_counts(saved):
    code = """
os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
model = tt.load(path); before = helpers(); model.run(x); print(model.threads, helpers() - before)
"""
    assert said(saved, code) == ["1", "0"]


@several
@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="cpu: this system has no affinity")
@pytest.mark.parametrize(("load", "variables"), [(", threads=2", {}), ("", {"TVM_NUM_THREADS": "8"})])
def test_threads_in_use_are_at_most_the_processors(saved, load, variables):
    code = f"""
os.sched_setaffinity(0, {{max(os.sched_getaffinity(0))}})
model = tt.load(path{load}); before = helpers(); model.run(x); print(model.threads, helpers() - before)
"""
    assert said(saved, code, **variables) == ["1", "0"]


@pytest.mark.parametrize("value", ["0", "-1", "two"])
def test_a_variable_that_is_no_number_of_threads_is_ignored_with_a_warning(saved, value):
    code = """
import warnings
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    model = tt.load(path)
print(model.threads, any("TVM_NUM_THREADS is" in str(each.message) for each in told))
"""
    assert said(saved, code, TVM_NUM_THREADS=value) == [str(CORES), "True"]


@several
def test_every_number_of_threads_gives_the_same_result(network):
    x = np.random.default_rng(1).random((1, 3, 64, 64), "float32")
    exe, one = tt.compile(network, cache=False), tt.compile(network, threads=1, cache=False)
    assert (exe.threads, one.threads) == (CORES, 1)
    expected = exe.run(x)
    np.testing.assert_array_equal(exe.run(x, threads=1), expected)
    np.testing.assert_array_equal(exe(x, threads=1), expected)
    np.testing.assert_allclose(one.run(x), expected, rtol=1e-5, atol=1e-5)


@several
def test_a_model_of_one_thread_keeps_to_it_beside_one_of_several(saved, network, tmp_path):
    path = tmp_path / "one.tar"
    tt.compile(network, threads=1, cache=False).save(path)
    code = f"""
one, many = tt.load({str(path)!r}), tt.load(path)
before = helpers()
for _ in range(5): one.run(x)
print(helpers() - before)
for _ in range(5): many.run(x); one.run(x)
print(helpers() - before, np.abs(one.run(x) - many.run(x)).max() < 1e-5)
"""
    assert said(saved, code) == ["0", str(CORES - 1), "True"]


WRONG = [0, -1, CORES + 1, 1.5, 1.0, "2", True, np.int64(0), np.float32(1), np.bool_(True), np.array([1]), [1]]


@pytest.mark.parametrize("number", WRONG, ids=repr)
def test_a_wrong_number_of_threads_is_one_sentence(saved, network, number):
    with pytest.raises(WorkloadError, match=rf"^threads = .*; expected a whole number from 1 to {CORES}$"):
        tt.load(saved, threads=number)
    with pytest.raises(WorkloadError, match=r"^threads = .*; expected a whole number"):
        tt.load(saved).run(np.zeros((1, 3, 64, 64), "float32"), threads=number)
    with pytest.raises(WorkloadError, match=rf"^threads = .*; expected a whole number from 1 to {CORES}$"):
        tt.compile(network, threads=number, cache=False)
    if number != CORES + 1:
        with pytest.raises(WorkloadError, match=r"^count = .*; expected a whole number from 1$"):
            tt.use_all_cores(number)


@pytest.mark.parametrize("kind", [np.int64, np.uint8, np.array])
def test_numbers_of_threads_may_be_of_any_integer_type(saved, network, kind):
    image = np.zeros((1, 3, 64, 64), "float32")
    loaded = tt.load(saved, threads=kind(1))
    assert type(loaded.threads) is int and loaded.threads == 1
    assert np.array_equal(tt.load(saved).run(image, threads=kind(1)), loaded.run(image))
    assert tt.compile(network, threads=kind(1)).threads == 1
    machine = tt.Hardware.load("zen4-server-8c")
    assert machine.with_cores(kind(2)).fingerprint() == machine.with_cores(2).fingerprint()


def test_a_machine_with_fewer_cores_has_another_fingerprint():
    machine = tt.Hardware.load("zen4-server-8c")
    two = machine.with_cores(2)
    assert (two.name, two.cpu.cores, two.cpu.threads) == ("zen4-server-2c", 2, 2)
    assert two.fingerprint() != machine.fingerprint() == machine.with_cores(8).fingerprint()
    with pytest.raises(HardwareError, match="vta has no CPU"):
        tt.Hardware.load("vta").with_cores(1)
