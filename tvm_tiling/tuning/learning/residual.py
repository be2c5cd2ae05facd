"""What measurements teach about the formulas' predictions: a small XGBoost model of the error that is left.

    log cost = log of the formulas' prediction + what the trees say of the configuration's features + a constant of the
    workload

The formulas rank well from the first trial on, and the trees have only to learn what formulas leave out. They learn to
order: for pairs of configurations of one workload the loss is log(1 + exp(-d / TEMPERATURE)), where d is by how much
the slower cut's logarithm of predicted cost exceeds the quicker one's. So a workload's constant never matters, and
nothing is spent on the exact cost of configurations that are far behind, as where residuals are fitted: of shapes that
were not seen, pairs of products are ordered rightly 5 percent more often than by that.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ...atomic_file import atomic_file
from ...errors import DatabaseError, other_version
from ...plain_text import plain_json

FORMAT = "tvm-tiling-cost-model"
VERSION = 1
# Below so many measured cuts the formulas are taken as they are.
LEAST = 12
ROUNDS = 200
# Difference of the logarithms of two costs that is a step of the trees' margins: what is a tenth apart is in order.
TEMPERATURE = 0.1
# Costs are told apart in steps of so much: what is nearer is mostly noise.
STEP = 0.02
PARAMETERS = {
    "max_depth": 6,
    "eta": 0.1,
    "subsample": 0.8,
    "colsample_bytree": 0.4,
    "min_child_weight": 0.1,
    "lambda": 10.0,
    "tree_method": "hist",
    "objective": "rank:pairwise",
    # Every configuration is compared with so many others of its workload, drawn by lot, all of them alike.
    "lambdarank_pair_method": "mean",
    "lambdarank_num_pair_per_sample": 16,
    "lambdarank_normalization": False,
    "lambdarank_score_normalization": False,
    "ndcg_exp_gain": False,
    "seed": 1,
    "nthread": 1,  # threads cost more than they save on so few samples, and wait for each other where cores are taken
}


@dataclass(frozen=True)
class Sample:
    """One measured configuration: `group` is its workload and machine, costs in one unit within a group."""

    group: str
    features: Mapping[str, float]
    predicted: float
    cost: float


@dataclass
class Residual:
    """Learns from samples and corrects predictions; `samples` are all it was ever told."""

    samples: list[Sample] = field(default_factory=list)
    _names: tuple[str, ...] = ()
    _trees: Any = None
    _trained: int = 0  # samples that the trees know

    def learn(self, samples: Sequence[Sample]) -> None:
        """Take in further samples; what is asked next is answered by trees that know them."""
        self.samples += [s for s in samples if s.cost > 0 and s.predicted > 0 and math.isfinite(s.cost)]

    @property
    def ready(self) -> bool:
        """Whether enough was measured for corrections other than 1."""
        return len(self.samples) >= LEAST

    def corrections(self, features: Sequence[Mapping[str, float]]) -> np.ndarray:
        """What to multiply predictions by, one number for each configuration, up to a constant of the workload. Trains
        first where samples have come, in tenths of a second for thousands."""
        if not self.ready or not features:
            return np.ones(len(features))
        if self._trained < len(self.samples):
            self._train()
            self._trained = len(self.samples)
        import xgboost

        rows = xgboost.DMatrix(self._matrix(features), feature_names=_safe(self._names), nthread=1)
        return np.exp(-TEMPERATURE * self._trees.predict(rows, output_margin=True).astype(np.float64))

    def save(self, path: str | Path) -> None:
        """Write the samples into one JSON file, whole or not at all; the trees follow from them."""
        samples = [[s.group, dict(s.features), s.predicted, s.cost] for s in self.samples]
        try:
            with atomic_file(path) as file:
                file.write(json.dumps({"format": FORMAT, "version": VERSION, "samples": samples}).encode())
        except OSError as error:
            raise DatabaseError(f"cost model: {error}") from None

    @classmethod
    def load(cls, path: str | Path) -> Residual:
        """Read what `save` wrote; DatabaseError for anything else."""
        try:
            record = plain_json(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise DatabaseError(f"cost model {path}: {error.strerror or error}") from None
        except ValueError:
            record = None
        if not isinstance(record, dict) or record.get("format") != FORMAT:
            raise DatabaseError(f"cost model {path}: no file of TilingCostModel.save(); accepted: one that it wrote")
        if record.get("version") != VERSION:
            said = other_version(record.get("version"), (VERSION,), "tune and save the cost model again")
            raise DatabaseError(f"cost model {path} has {said}")
        try:
            samples = [
                Sample(str(group), {str(k): float(v) for k, v in features.items()}, float(predicted), float(cost))
                for group, features, predicted, cost in record["samples"]
            ]
        except (KeyError, TypeError, ValueError, AttributeError):
            raise DatabaseError(
                f"cost model {path}: its samples are corrupted; accepted: a file as it was written"
            ) from None
        # The trees are made anew: a file from elsewhere is numbers, and nothing that XGBoost has to trust.
        found = cls()
        found.learn(samples)
        return found

    def _train(self) -> None:
        import xgboost

        self._names = tuple(sorted({name for sample in self.samples for name in sample.features}))
        samples = sorted(self.samples, key=lambda sample: sample.group)  # as XGBoost wants them
        _, groups = np.unique([s.group for s in samples], return_inverse=True)
        costs, predicted = (np.log([getattr(s, name) for s in samples]) for name in ("cost", "predicted"))
        slowest = np.full(groups.max() + 1, -np.inf)
        np.maximum.at(slowest, groups, costs)
        data = xgboost.DMatrix(
            self._matrix([s.features for s in samples]),
            label=np.round((slowest[groups] - costs) / STEP),
            qid=groups,
            base_margin=-predicted / TEMPERATURE,
            feature_names=_safe(self._names),
            nthread=1,
        )
        self._trees = xgboost.train(PARAMETERS, data, ROUNDS)

    def _matrix(self, features: Sequence[Mapping[str, float]]) -> np.ndarray:
        nan = float("nan")
        return np.array([[row.get(name, nan) for name in self._names] for row in features], dtype=np.float32)


def _safe(names: Sequence[str]) -> list[str]:
    """Names as XGBoost allows them."""
    return [name.replace("[", "(").replace("]", ")").replace("<", "lt") for name in names]
