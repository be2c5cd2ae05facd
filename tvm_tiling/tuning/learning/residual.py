"""Corrections to the analytical predictions, learned from measurements: the mean of two models of the remaining error.

    log cost = log of the analytical prediction + (trees + Gaussian process) / 2 + a constant of the workload

The analytical prediction ranks from the first trial, and the models only learn what it omits: the trees learn steps
(order.py), the Gaussian process smooth effects (process.py). They misrank different pairs.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ...atomic_file import atomic_file
from ...errors import DatabaseError, other_version
from ...plain_text import plain_json
from .order import Order
from .process import Process
from .samples import Sample, Table

FORMAT = "tvm-tiling-cost-model"
VERSION = 1
# With fewer measured configurations, predictions are used uncorrected.
LEAST = 12


@dataclass
class Residual:
    """Learns from samples and corrects predictions.

    `samples` are all samples learned; `recorded` are those from another machine of the same kind, which initialise the
    model and are not saved.
    """

    samples: list[Sample] = field(default_factory=list)
    recorded: Sequence[Sample] = ()
    _models: dict[bool, _Models] = field(default_factory=dict)  # with the recorded samples, and without

    def learn(self, samples: Sequence[Sample]) -> None:
        """Add samples; the next query uses models fitted to them."""
        self.samples += [s for s in samples if s.cost > 0 and s.predicted > 0 and math.isfinite(s.cost)]

    def ready(self, *, recorded: bool = True) -> bool:
        """Return whether there are enough measurements for corrections other than 1."""
        return len(self._known(recorded)) >= LEAST

    def corrections(self, features: Sequence[Mapping[str, float]], *, recorded: bool = True) -> np.ndarray:
        """Return the factor to multiply each prediction by, up to a constant per workload. `recorded`: whether the
        recorded samples apply. Refits first if samples were added, which takes a second for thousands of samples."""
        if not self.ready(recorded=recorded) or not features:
            return np.ones(len(features))
        models = self._models.get(recorded)
        if models is None or models.samples < len(self.samples):
            models = self._models[recorded] = _Models(self._known(recorded), len(self.samples))
        return models.corrections(features)

    def _known(self, recorded: bool) -> Sequence[Sample]:
        return [*self.recorded, *self.samples] if recorded else self.samples

    def save(self, path: str | Path) -> None:
        """Write the samples to one JSON file, atomically; the models are refitted from them."""
        samples = [[s.group, dict(s.features), s.predicted, s.cost] for s in self.samples]
        try:
            with atomic_file(path) as file:
                file.write(json.dumps({"format": FORMAT, "version": VERSION, "samples": samples}).encode())
        except OSError as error:
            raise DatabaseError(f"cost model: {error}") from None

    @classmethod
    def load(cls, path: str | Path) -> Residual:
        """Read a file written by `save`. DatabaseError for anything else."""
        try:
            record = plain_json(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise DatabaseError(f"cost model {path}: {error.strerror or error}") from None
        except ValueError:
            record = None
        if not isinstance(record, dict) or record.get("format") != FORMAT:
            raise DatabaseError(
                f"cost model {path} was not written by TilingCostModel.save(); expected a file that it wrote"
            )
        if record.get("version") != VERSION:
            said = other_version(record.get("version"), (VERSION,), "tune and save the cost model again")
            raise DatabaseError(f"cost model {path} has {said}")
        try:
            samples = [
                Sample(str(group), {str(k): float(v) for k, v in features.items()}, float(predicted), float(cost))
                for group, features, predicted, cost in record["samples"]
            ]
        except (KeyError, TypeError, ValueError, AttributeError):
            raise DatabaseError(f"cost model {path}: its samples are corrupted; expected an unmodified file") from None
        # The models are refitted: an untrusted file provides only numbers, nothing that XGBoost would have to parse.
        found = cls()
        found.learn(samples)
        return found


class _Models:
    """Both models fitted to samples, of which `samples` were learned."""

    def __init__(self, known: Sequence[Sample], samples: int) -> None:
        self.samples = samples
        self._table = Table(known)
        self._both = Order(self._table), Process(self._table)

    def corrections(self, features: Sequence[Mapping[str, float]]) -> np.ndarray:
        rows = self._table.rows(features)
        found: np.ndarray = np.exp(np.mean([model.corrections(rows) for model in self._both], axis=0))
        return found
