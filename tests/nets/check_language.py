"""One random node of a language model: this package compared with onnxruntime."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import numpy as np
import onnxruntime
from choices import Choices
from language_operators import Case, draw_case

import tvm_tiling as tt
from tvm_tiling.errors import TilingError


class NotJudged(Exception):
    """onnxruntime does not run the node."""


def drawn(given: Sequence[int], seed: object = None) -> tuple[Case, Choices]:
    """Return the case for these choices (followed by those of a seed)."""
    draw = Choices(given, None if seed is None else random.Random(str(seed)))
    return draw_case(draw), draw


def check(given: Sequence[int], seed: object = None) -> tuple[Counter[str], list[int]]:
    """Return the outcome of the case, with fixed and with dynamic sizes, and its choices. Raises AssertionError if it
    is wrong."""
    case, draw = drawn(given, seed)
    results, wanted = Counter[str](), _wanted(case)
    for opened in (False, True) if case.named else (False,):
        try:
            executable = tt.compile(case.model(opened=opened), cache=False)
            found = executable.run(**case.inputs)
        except TilingError as error:
            assert "\n" not in str(error), f"an error of several lines: {error}"
            results[f"refused: {case.operator}: {str(error)[:90]}"] += 1
            continue
        for number, (ours, theirs) in enumerate(
            zip(found if isinstance(found, list | tuple) else [found], wanted, strict=True)
        ):
            _compare(case, number, np.asarray(ours), theirs, opened)
        results[f"right: {case.operator}"] += 1
    return results, draw.taken


def text_of(given: Sequence[int]) -> str:
    """Describe the case."""
    case, _ = drawn(given)
    shapes = {name: f"{v.dtype}{list(v.shape)}" for name, v in case.given.items() if v is not None}
    return f"{case.domain}.{case.operator} {case.attributes} {shapes} -> {case.outputs}"


def _wanted(case: Case) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        session = onnxruntime.InferenceSession(
            case.model(opened=False).SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        return session.run(None, case.inputs)
    except Exception as error:
        raise NotJudged(str(error)) from error


def _hidden(scores: np.ndarray) -> np.ndarray:
    """Scores masked as infinities, for which onnxruntime has the lowest number of a type."""
    return np.where(scores < -1e38, -np.inf, scores)


def _compare(case: Case, number: int, ours: np.ndarray, theirs: np.ndarray, opened: bool) -> None:
    where = f"{'open' if opened else 'fixed'}, output {number}"
    assert ours.shape == theirs.shape, f"{where}: shape {ours.shape}, {theirs.shape} in onnxruntime"
    ours, theirs = (_hidden(each.astype(np.float64)) for each in (ours, theirs))
    if number in case.valid:
        axis, counts = case.valid[number]
        keep = np.arange(ours.shape[axis]) < counts[:, None]
        ours, theirs = (np.moveaxis(each, axis, 1)[keep] for each in (ours, theirs))
    most = np.abs(theirs).max(initial=0.0, where=np.isfinite(theirs))
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=case.tolerance * most + 1e-7, err_msg=where)
