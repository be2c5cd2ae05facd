"""Relay expressions, many per module, compiled at once and compared with NumPy."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import tvm
from relay_json import json_of
from tvm import relax

import tvm_tiling as tt
from tvm_tiling.frontend import ImportedModel
from tvm_tiling.frontend.relay.import_relay import read_relay


@dataclass(frozen=True)
class Case:
    """`text` is an expression with inputs %a, %b and so on; `results` its expected results, one array or several.
    `constants` are known before the run; `type` is the type in the file, "" for none."""

    text: str
    inputs: Mapping[str, np.ndarray]
    results: np.ndarray | Sequence[np.ndarray]
    constants: Mapping[str, np.ndarray] = field(default_factory=dict)
    tolerance: float = 1e-5

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        return {**self.inputs, **self.constants}


def type_text(array: np.ndarray) -> str:
    """Return the type of an array in Relay's notation."""
    return f"Tensor[({', '.join(map(str, array.shape))}), {array.dtype}]"


def program(cases: Sequence[Case], header: str = '#[version = "0.0.5"]') -> tuple[str, dict[str, np.ndarray]]:
    """Return one module of all `cases`, whose inputs have the number of their case appended, and its constants."""
    parameters, lines, constants = [], [], {}
    for number, case in enumerate(cases):
        for name, array in case.arrays.items():
            parameters.append(f"%{name}_{number}: {type_text(array)}")
        constants.update({f"{name}_{number}": array for name, array in case.constants.items()})
        text = re.sub(r"%(\w+)", lambda found, n=number: f"%{found.group(1)}_{n}", case.text)
        single = isinstance(case.results, np.ndarray)
        lines.append(f"  %{number} = {text}{f' /* ty={type_text(case.results)} */' if single else ''};")
    listed = ", ".join(f"%{number}" for number in range(len(cases)))
    return f"{header}\ndef @main({', '.join(parameters)}) {{\n" + "\n".join(lines) + f"\n  ({listed},)\n}}\n", constants


def outputs(module: tvm.IRModule, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return the results of a module compiled without optimisation, because only results count."""
    built = tvm.compile(module, tvm.target.Target({"kind": "llvm", "opt-level": 0}))
    machine = relax.VirtualMachine(built, tvm.cpu())
    found = machine["main"](*(tvm.runtime.tensor(np.array(value, order="C")) for value in inputs))
    return [value.numpy() for value in ([found] if isinstance(found, tvm.runtime.Tensor) else found)]


def compiled_outputs(model: ImportedModel, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return the results of a model compiled with this package's schedules."""
    found = tt.compile(model.module, cache=False).run(*inputs)
    return list(found) if isinstance(found, tuple) else [found]


def check(
    cases: Sequence[Case],
    header: str = '#[version = "0.0.5"]',
    by: Callable[[ImportedModel, Sequence[np.ndarray]], list[np.ndarray]] | None = None,
    release: str = "0.14.0",
) -> None:
    """Every case gives the expected results: integers exactly, others within its tolerance of the largest value. Their
    JSON form is the same module.

    `by`: what compiles and runs them; default: TVM alone. `release`: that of the JSON form.
    """
    text, constants = program(cases, header)
    model = read_relay(text.encode(), shapes={}, batch=None, params=constants, where="cases").imported
    other = read_relay(json_of(text, release), shapes={}, batch=None, params=constants, where="cases").imported
    tvm.ir.assert_structural_equal(other.module, model.module)
    given = {f"{name}_{number}": array for number, case in enumerate(cases) for name, array in case.inputs.items()}
    ordered = [given[name] for name in model.input_names]
    found = outputs(model.module, ordered) if by is None else by(model, ordered)
    wanted = [
        (case, result)
        for case in cases
        for result in ([case.results] if isinstance(case.results, np.ndarray) else case.results)
    ]
    assert len(found) == len(wanted)
    for has, (case, result) in zip(found, wanted, strict=True):
        assert (has.shape, has.dtype) == (result.shape, result.dtype), case.text
        if result.dtype.kind in "iub":
            np.testing.assert_array_equal(has, result, err_msg=case.text)
        elif result.size:
            scale = max(1e-30, float(np.abs(result[np.isfinite(result)]).max(initial=0)))
            np.testing.assert_allclose(has, result, rtol=case.tolerance, atol=case.tolerance * scale, err_msg=case.text)
