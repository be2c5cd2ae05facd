"""Integer divisions and shifts end no process: division by zero is refused, other limits give NumPy's results."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from divisions import DIVISIONS, DTYPES, KERNELS, NODES, SHIFTS, THIRD, edges, shifts

PROGRAM = Path(__file__).parent / "divisions.py"
LOWEST = np.array([-(2**31), 7, -7, 5], "int32")


@pytest.fixture(scope="module")
def found():
    """The outcome of each case, by name; all run in one process, which must survive."""
    done = subprocess.run(
        [sys.executable, "-W", "error::RuntimeWarning", PROGRAM], capture_output=True, text=True, timeout=600
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0, f"exit code {done.returncode} at {lines[-1:]}: {done.stderr[-2000:]}"
    return {line["name"]: line for line in lines}


def towards_zero(a, b):
    return np.floor_divide(a - np.fmod(a, b), b)


REFERENCES = {"divide": towards_zero, "floor_divide": np.floor_divide, "mod": np.fmod, "floor_mod": np.remainder}


def reference(function, *operands):
    with np.errstate(all="ignore"):
        return np.asarray(function(*operands)).tolist()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", DIVISIONS)
def test_quotients_at_the_edges_of_their_type(found, name, dtype):
    results = found[f"divisions {dtype}"]["result"]
    assert results[DIVISIONS.index(name)] == reference(REFERENCES[name], *edges(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", SHIFTS)
def test_shifts_too_far(found, name, dtype):
    results = found[f"shifts {dtype}"]["result"]
    assert results[SHIFTS.index(name)] == reference(getattr(np, name), *shifts(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_that_checks_nothing_gives_0_for_a_division_by_zero(found, name, dtype):
    function = {
        "truncdiv": towards_zero,
        "truncmod": np.fmod,
        "floordiv": np.floor_divide,
        "floormod": np.remainder,
    }[name]
    results = found[f"kernels {dtype}"]["result"]
    assert results[[*KERNELS].index(name)] == reference(function, *edges(dtype, zero=True))


@pytest.mark.parametrize("name", DIVISIONS)
def test_a_divisor_of_zero_is_refused_by_its_place(found, name):
    sentence = f"{name}: integer division by zero at [1]; expected divisors other than 0"
    assert found[f"computed zero {name}"]["said"] == f"WorkloadError: {sentence}"
    said = found[f"constant zero {name}"]["said"]
    assert said.startswith("ModelFormatError: ") and said.endswith(sentence)
    said = found[f"the number zero {name}"]["said"]
    assert said.startswith("ModelFormatError: ") and said.endswith(sentence.replace(" at [1]", ""))


def test_a_divisor_of_zero_is_found_in_shares_of_a_large_tensor(found):
    said = found["computed zero among many"]["said"]
    assert said == "WorkloadError: floor_divide: integer division by zero at [200, 3]; expected divisors other than 0"


@pytest.mark.parametrize("name", DIVISIONS)
def test_divisions_by_the_number_minus_one(found, name):
    minus = np.int32(-1)
    assert found[f"the number -1 {name}"]["result"] == reference(REFERENCES[name], LOWEST, minus)


@pytest.mark.parametrize("name", DIVISIONS)
def test_constants_are_divided_as_in_the_run(found, name):
    assert found[f"constants {name}"]["result"] == reference(REFERENCES[name], LOWEST, -LOWEST | 1)


def test_a_loop_variable_that_is_zero_is_not_a_trap(found):
    assert found["divided by its place"]["result"] == reference(towards_zero, LOWEST, np.arange(4, dtype="int32"))


def test_a_long_chain_of_divisions_is_compiled(found):
    value = LOWEST
    for _ in range(12):
        with np.errstate(all="ignore"):
            value = np.floor_divide(value, THIRD)
    assert found["a chain of twelve"]["result"] == value.tolist()


@pytest.mark.parametrize("places", [40, -1])
@pytest.mark.parametrize("name", SHIFTS)
def test_shifts_by_a_number_that_is_too_large(found, name, places):
    wanted = reference(getattr(np, name), LOWEST, np.int32(places))
    assert found[f"{name} by {places}"]["result"] == wanted


@pytest.mark.parametrize(("kind", "attributes"), NODES)
def test_onnx_nodes_at_the_edges_and_by_zero(found, kind, attributes):
    name = f"{kind}{attributes.get('fmod', '')}"
    function = {"Div": towards_zero, "Mod": np.remainder, "Mod1": np.fmod}[name]
    wanted = reference(function, *edges("int32"))
    assert found[f"{name} edges"]["result"] == wanted
    assert found[f"{name} of constants"]["result"] == wanted
    sentence = f"node 'quotient' ({kind}): integer division by zero at [1]; expected divisors other than 0"
    assert found[f"{name} computed zero"]["said"] == f"WorkloadError: {sentence}"
    for case in ("constant zero", "constants with a zero"):
        said = found[f"{name} {case}"]["said"]
        assert said.startswith("ModelFormatError: ") and said.endswith(sentence)


@pytest.mark.parametrize("name", ["trunc_divide", "trunc_mod", "divide", "mod", "floor_divide", "floor_mod"])
def test_relay_operators_at_the_edges_and_by_zero(found, name):
    function = {**REFERENCES, "trunc_divide": towards_zero, "trunc_mod": np.fmod}[name]
    assert found[f"Relay {name} edges"]["result"] == reference(function, *edges("int64"))
    sentence = f"{name}: integer division by zero at [1]; expected divisors other than 0"
    assert found[f"Relay {name} computed zero"]["said"] == f"WorkloadError: {sentence}"
