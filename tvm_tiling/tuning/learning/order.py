"""XGBoost trees that put pairs of configurations of one workload in order.

For such a pair the loss is log(1 + exp(-d / TEMPERATURE)), where d is by how much the slower configuration's logarithm
of predicted cost exceeds the quicker one's. So a workload's constant never matters, and nothing is spent on the exact
cost of configurations that are far behind, as where residuals are fitted: of shapes that were not seen, pairs of
products are ordered rightly 5 percent more often than by that.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .samples import Table

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


class Order:
    """Trees that know a table; made in tenths of a second for thousands of samples."""

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
        """What to add to the logarithms of predictions, up to a constant of the workload."""
        import xgboost

        data = xgboost.DMatrix(rows, feature_names=self._names, nthread=1)
        found: np.ndarray = -TEMPERATURE * self._trees.predict(data, output_margin=True).astype(np.float64)
        return found


def _safe(names: Sequence[str]) -> list[str]:
    """Names as XGBoost allows them."""
    return [name.replace("[", "(").replace("]", ")").replace("<", "lt") for name in names]
