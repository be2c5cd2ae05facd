"""A variant of a model whose kernels need instructions that this CPU lacks: it can be saved and exported, not run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from ..errors import HardwareError
from .outputs import Outputs, outputs_of
from .report import Benchmark
from .variant_base import VariantBase, VariantParts


class ForeignVariant(VariantBase):
    """Raises HardwareError for every run, with the instructions that this CPU lacks."""

    def __init__(self, parts: VariantParts) -> None:
        signature = parts.signature
        super().__init__(parts, outputs_of(signature.output_names, signature.output_shapes, signature.output_dtypes))

    def _refuse(self) -> NoReturn:
        raise HardwareError(
            f"the model was compiled for another CPU: this one lacks {self.library.lacking}; save() or export() it, "
            "and run it there"
        )

    def run(self, arrays: Sequence[np.ndarray], threads: int | None = None) -> Any:
        self._refuse()

    def run_into(self, arrays: Sequence[np.ndarray], outputs: Outputs, threads: int | None = None) -> None:
        self._refuse()

    def benchmark(self, arrays: Sequence[np.ndarray], seconds: float) -> Benchmark:
        self._refuse()

    def profile(self, arrays: Sequence[np.ndarray], runs: int) -> NoReturn:
        self._refuse()

    def functions(self, threads: int, arrays: Sequence[np.ndarray]) -> Sequence[Any]:
        self._refuse()

    def lend(self, arrays: Sequence[np.ndarray]) -> Any:
        self._refuse()

    def arguments(self, lent: Any) -> Sequence[Any]:
        self._refuse()

    def received(self, result: Any, lent: Any) -> Any:
        self._refuse()

    def give_back(self, lent: Any) -> None:
        self._refuse()
