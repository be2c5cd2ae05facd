"""The parts of a variant of a model, however it is run, and the inputs it accepts."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..runtime.arrays import numpy_type
from ..runtime.launcher import install_pool
from ..runtime.library import Library
from ..runtime.plan import ExecutionPlan
from .graph import GraphStep, graph_of
from .outputs import Output
from .passes.constants import Constants
from .report import Memory, OperatorRecord
from .signature import Signature

MOST_ACCEPTED = 4096  # sets of shapes that are recorded


@dataclass(frozen=True, kw_only=True)
class VariantParts:
    """`constants`: numbers of those in `store` that the model's function takes after its inputs. `threads`: maximum
    number of threads of a run."""

    library: Library
    signature: Signature
    operators: Sequence[OperatorRecord]
    memory: Memory
    constants: Sequence[int]
    store: Constants
    threads: int


class VariantBase:
    """A model compiled for one set of shapes, or for all values of its dynamic dimensions."""

    def __init__(self, parts: VariantParts, outputs: Sequence[Output]) -> None:
        self.library, self.signature, self.memory = parts.library, parts.signature, parts.memory
        self.threads = parts.threads
        self.operators, self.constants, self.outputs = tuple(parts.operators), tuple(parts.constants), outputs
        types = map(_numpy_type, parts.signature.input_dtypes)
        self._expected = tuple(zip(parts.signature.input_shapes, types, strict=True))
        self._accepted: set[tuple[tuple[int, ...], ...]] = set()  # shapes of inputs, if they are dynamic
        self._state = threading.local()
        self.launched = install_pool(parts.library.native, parts.threads)

    @property
    def graph(self) -> tuple[GraphStep, ...]:
        """The steps of a run; empty if unknown."""
        return () if self.library.plan is None else graph_of(self.library.plan)

    @property
    def parts(self) -> int:
        """How often a run executes the steps, each time for a part of the batch."""
        plan = self.library.plan
        return plan.parts if isinstance(plan, ExecutionPlan) else 1

    def takes(self, arrays: Sequence[Any]) -> bool:
        """Return whether these are arrays with the shapes and types of the inputs; of dynamic shapes, those of a
        previous run."""
        if len(arrays) != len(self._expected):
            return False
        for array, (shape, dtype) in zip(arrays, self._expected, strict=True):
            if type(array) is not np.ndarray or dtype is None or array.dtype != dtype:
                return False
            if array.shape != shape and not self.signature.is_open:
                return False
        return not self.signature.is_open or tuple(array.shape for array in arrays) in self._accepted

    def accept(self, arrays: Sequence[np.ndarray]) -> None:
        """Record the shapes of inputs that were checked against the signature."""
        if self.signature.is_open:
            if len(self._accepted) >= MOST_ACCEPTED:
                self._accepted.clear()
            self._accepted.add(tuple(array.shape for array in arrays))


def _numpy_type(dtype: str) -> np.dtype[Any] | None:
    """NumPy's name of a type; None if it has none."""
    try:
        return numpy_type(dtype)
    except TypeError:
        return None
