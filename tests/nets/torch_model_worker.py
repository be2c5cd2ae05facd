"""Check a model in one or more ways: "export", through torch.export and tvm_tiling.compile, and "compile", through
torch.compile, both against eager PyTorch; "onnx", through torch.onnx.export, against onnxruntime."""

from __future__ import annotations

import copy
import os
import sys
import traceback
import warnings
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any

import onnx
import onnxruntime
import torch
from torch.utils import _pytree as pytree
from torch_model_lists import LISTS, Built, declare_torchvision

import tvm_tiling
from tvm_tiling.errors import TilingError

RELATIVE, TIMES = 1e-3, 8.0


def judged(built: Built, way: str) -> dict[str, Any]:
    """The outcome of a model, and the message."""
    found: dict[str, Any] = {}
    if way == "onnx":
        try:
            model, given, wanted = _as_onnx(built)
        except Exception as error:
            return {"outcome": "unexportable", "said": f"{type(error).__name__}: {str(error).strip()[:300]}"}
    else:
        with torch.no_grad():
            wanted = _tensors(built.module(*built.args, **built.kwargs))
    try:
        if way == "onnx":
            results = _of(tvm_tiling.compile(model), given)
        else:
            results = _exported(built) if way == "export" else _compiled(built, found)
    except TilingError as error:
        kind = "unexportable" if "torch.export cannot export" in str(error) else "refused"
        return {"outcome": kind, "said": str(error)}
    except Exception as error:
        line = str(error).strip().splitlines()[0] if str(error).strip() else ""
        said = f"{type(error).__name__}: {line}"
        return {"outcome": "internal error", "said": said, "trace": traceback.format_exc()[-3000:]}
    said = _difference(built, results, wanted)
    return {"outcome": "wrong" if said else "right", "said": said, **found}


def _exported(built: Built) -> list[torch.Tensor]:
    options: Any = built.kwargs or built.args
    return _of(tvm_tiling.compile(built.module, example_inputs=options), _tensors((built.args, built.kwargs)))


def _of(executable: tvm_tiling.Executable, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    result = executable(*tensors)
    return list(result) if isinstance(result, tuple) else [result]


def _as_onnx(built: Built) -> tuple[onnx.ModelProto, list[torch.Tensor], list[torch.Tensor]]:
    """Return the model as PyTorch exports it to ONNX, its inputs, and onnxruntime's results."""
    made = torch.onnx.export(built.module, built.args, kwargs=built.kwargs, dynamo=True, verbose=False)
    model: onnx.ModelProto = made.model_proto
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    tensors = _tensors((built.args, built.kwargs))
    names = [given.name for given in session.get_inputs()]
    if len(names) != len(tensors):
        raise ValueError(f"the exported model has {len(names)} inputs, the module {len(tensors)}")
    results = session.run(None, {name: tensor.numpy() for name, tensor in zip(names, tensors, strict=True)})
    return model, tensors, [torch.from_numpy(value) for value in results]


def _compiled(built: Built, found: dict[str, Any]) -> list[torch.Tensor]:
    torch.compiler.reset()
    tvm_tiling.torch_report(clear=True)
    with torch.no_grad():
        result = torch.compile(built.module, backend="tvm_tiling")(*built.args, **built.kwargs)
    reports = tvm_tiling.torch_report()
    found["graphs"] = len(reports)
    found["whole"] = sum(not report.left and not report.why for report in reports)
    found["left"] = sorted({str(operator) for report in reports for operator in report.left})
    found["graphs left"] = [report.why for report in reports if report.why]
    return _tensors(result)


def _tensors(value: Any) -> list[torch.Tensor]:
    """Return the tensors of a nested result, in PyTorch's order."""
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def _difference(built: Built, results: list[torch.Tensor], wanted: list[torch.Tensor]) -> str:
    """Return how results differ from eager ones by more than these differ from the same model's in float64; empty if
    they do not."""
    if len(results) != len(wanted):
        return f"{len(results)} outputs, expected {len(wanted)}"
    exact: list[torch.Tensor] | None = None
    for place, (result, value) in enumerate(zip(results, wanted, strict=True)):
        kinds = [f"{tensor.dtype}{tuple(tensor.shape)}" for tensor in (result, value)]
        if kinds[0] != kinds[1]:
            return f"output {place}: {kinds[0]}, expected {kinds[1]}"
        scale = float(value.abs().max()) if value.numel() else 0.0
        if _error(result, value) <= RELATIVE * scale:
            continue
        if exact is None:
            exact = _in_float64(built)
        if exact is None or exact[place].shape != value.shape:
            return f"output {place} differs by {_error(result, value):.3g} at most, of elements up to {scale:.3g}"
        ours, eager = _error(result, exact[place]), _error(value, exact[place])
        if not ours <= TIMES * eager + 1e-6 * scale:
            return (
                f"output {place} is {ours:.3g} from the exact result, PyTorch {eager:.3g}; elements up to {scale:.3g}"
            )
    return ""


def _error(result: torch.Tensor, value: torch.Tensor) -> float:
    """Return the largest difference; infinite if one of two elements is NaN or an infinity."""
    if not value.numel():
        return 0.0
    a, b = result.double(), value.double()
    same = (a == b) | (a.isnan() & b.isnan())
    return float(torch.where(same, 0.0, (a - b).abs()).nan_to_num(nan=float("inf")).max())


def vary_constants(module: torch.nn.Module) -> None:
    """Give random values to constant-valued parameters of a module, and to running statistics.

    Many constructors scale the contribution of a residual branch by 0 or 1e-6, and normalise by 0 and 1, so that a
    result would hardly depend on what the branch computes, or in which order.
    """
    draw = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in module.parameters():
            first = parameter.flatten()[:1]
            if parameter.is_floating_point() and parameter.numel() > 1 and bool((parameter == first).all()):
                middle = first if abs(float(first)) >= 0.1 else torch.zeros_like(first)
                parameter.copy_(middle + 0.2 * torch.randn(parameter.shape, generator=draw))
        for name, buffer in module.named_buffers():
            if name.endswith("running_mean"):
                buffer.copy_(0.2 * torch.randn(buffer.shape, generator=draw))
            elif name.endswith("running_var"):
                buffer.copy_(0.5 + torch.rand(buffer.shape, generator=draw))


def _in_float64(built: Built) -> list[torch.Tensor] | None:
    def wide(value: Any) -> Any:
        return value.double() if isinstance(value, torch.Tensor) and value.is_floating_point() else value

    try:
        with torch.no_grad():
            module = copy.deepcopy(built.module).double()
            return _tensors(module(*map(wide, built.args), **pytree.tree_map(wide, built.kwargs)))
    except Exception:
        return None


def judge_ways(source: str, name: str, ways: Sequence[str], answers: Connection) -> None:
    """Send the outcome of a model for each way, in a process that may print anything."""
    with open(os.devnull, "w") as nowhere:
        for stream in (1, 2):
            os.dup2(nowhere.fileno(), stream)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)  # PyTorch's threads spin between small operators
    torch.manual_seed(0)
    try:
        built = LISTS[source]()[name]()
        vary_constants(built.module)
        with torch.no_grad():
            torch.manual_seed(1)
            results = _tensors(built.module(*built.args, **built.kwargs))
        if not any(result.isfinite().all() and result.min() < result.max() for result in results if result.numel()):
            raise ValueError("all its results are constant or not finite, so that they tell nothing")
    except Exception as error:
        for _ in ways:
            answers.send({"outcome": "not built", "said": f"{type(error).__name__}: {str(error).strip()[:300]}"})
        return
    for way in ways:
        start = _processor_time()
        answer = judged(built, way)
        answers.send({**answer, "seconds": round(_processor_time() - start, 1)})


def _processor_time() -> float:
    """Return the processor time of this process and of children that it waited for, in seconds."""
    return sum(os.times()[:4])


def modules_used(ways: Sequence[str], answers: Connection) -> None:
    """Send the names of all modules that are imported after checking a small model."""
    declare_torchvision()
    for way in ways:
        judged(Built(torch.nn.Linear(3, 3).eval(), (torch.ones(2, 3),)), way)
    answers.send(list(sys.modules))
