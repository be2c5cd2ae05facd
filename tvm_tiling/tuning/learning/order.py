"""XGBoost trees that rank pairs of configurations of one workload.

The loss of a pair is log(1 + exp(-d / TEMPERATURE)), where d is the difference in the logarithm of predicted cost
between the slower and the faster configuration. The constant factor of a workload therefore cancels, and no capacity is
spent on the exact cost of configurations that are far from the best, as it is when fitting residuals: on unseen shapes,
this ranks 5 percent more pairs of matrix multiplications correctly.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .samples import Table

ROUNDS = 200
# Difference in log cost that is one step of the trees' margins: a pair 10 percent apart counts as ordered.
TEMPERATURE = 0.1
# Log costs are compared in steps of this size; smaller differences are mostly noise.
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
    # Every configuration is compared with this many random others of its workload, all weighted equally.
    "lambdarank_pair_method": "mean",
    "lambdarank_num_pair_per_sample": 16,
    "lambdarank_normalization": False,
    "lambdarank_score_normalization": False,
    "ndcg_exp_gain": False,
    "seed": 1,
    "nthread": 1,  # with so few samples, threads cost more than they save, and they wait for each other on busy cores
}


class Order:
    """Trees trained on a table; training takes tenths of a second for thousands of samples."""

    def __init__(self, table: Table) -> None:
        import xgboost

        slowest = np.full(table.groups.max() + 1, -np.inf)
        np.maximum.at(slowest, table.groups, table.costs)
        self._names = _safe(table.names)
        data = xgboost.DMatrix(
            table.features,
            label=np.round((slowest[table.groups] - table.costs) / STEP),
            qid=table.groups,
            base_margin=-table.predicted / TEMPERATURE,
            feature_names=self._names,
            nthread=1,
        )
        self._trees = xgboost.train(PARAMETERS, data, ROUNDS)

    def corrections(self, rows: np.ndarray) -> np.ndarray:
        """Return what to add to the logarithms of predictions, up to a constant per workload."""
        import xgboost

        data = xgboost.DMatrix(rows, feature_names=self._names, nthread=1)
        found: np.ndarray = -TEMPERATURE * self._trees.predict(data, output_margin=True).astype(np.float64)
        return found


def _safe(names: Sequence[str]) -> list[str]:
    """Return names that XGBoost accepts."""
    return [name.replace("[", "(").replace("]", ")").replace("<", "lt") for name in names]
