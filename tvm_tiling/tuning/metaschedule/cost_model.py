"""Analytical predictions corrected by measurements, as a MetaSchedule cost model."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from tvm import s_tir
from tvm.ir.utils import derived_object
from tvm.s_tir.meta_schedule.cost_model import PyCostModel
from tvm_ffi import register_error

from ...decide.configs.neighbourhood import Space
from ...decide.configs.record import Config
from ...errors import DatabaseError
from ...schedule import Target, hardware_of
from ..learning.costs import LearnedCosts, group_of, sample_of
from ..learning.recorded import pretrained
from ..learning.residual import Residual
from .postprocs import known_config

if TYPE_CHECKING:
    from ...hardware.description import Hardware

_log = logging.getLogger(__name__)
# The score of a schedule without a configuration, or with an impossible one: below all others.
UNKNOWN = 0.0
# An error that passes through TVM keeps its class only if TVM knows the class.
register_error(DatabaseError.__name__, DatabaseError)


class ScheduleScores:
    """Scores schedules sampled by the rules, and learns from their measured times."""

    def __init__(self, hardware: Hardware, learned: LearnedCosts) -> None:
        self.hardware, self.learned = hardware, learned

    def learn(self, schedules: Sequence[s_tir.Schedule], seconds: Sequence[float | None]) -> None:
        """Learn from a round of measurements; None is a failed run, which is ignored."""
        samples = []
        for schedule, cost in zip(schedules, seconds, strict=True):
            known = known_config(schedule, self.hardware)
            if known is not None and cost is not None:
                samples.append(sample_of(*known, cost, group_of(known[0].workload, self.hardware)))
        self.learned.residual.learn(samples)

    def scores(self, schedules: Sequence[s_tir.Schedule]) -> np.ndarray:
        """Return a score for each schedule, higher is better: the speed relative to the analytical decision, or UNKNOWN
        without a configuration."""
        found = np.full(len(schedules), UNKNOWN)
        by_space: dict[int, tuple[Space, list[int], list[Config]]] = {}
        for place, schedule in enumerate(schedules):
            known = known_config(schedule, self.hardware)
            if known is not None:
                space, config = known
                _, places, configs = by_space.setdefault(id(space), (space, [], []))
                places.append(place)
                configs.append(config)
        for space, places, configs in by_space.values():
            costs = self.learned.costs(space, [space.start, *configs])
            found[places] = costs[0] / costs[1:]
        unknown = len(schedules) - sum(len(places) for _, places, _ in by_space.values())
        if unknown:
            _log.warning(
                "%d of %d schedules have no valid configuration of tvm_tiling's rules", unknown, len(schedules)
            )
        return found


@derived_object
class TilingCostModel(PyCostModel):
    """A cost model for any MetaSchedule tuner: analytical predictions with a learned correction, initialised from
    trials recorded on machines of the same kind if the package has them.

    It scores schedules sampled by the rules of :func:`schedule_rules`; it cannot score others, and logs a warning.
    `target` is as in tiling_schedule.
    """

    def __init__(self, target: Target = "llvm", learned: LearnedCosts | None = None) -> None:
        super().__init__()
        hardware = hardware_of(target)
        self.schedules = ScheduleScores(hardware, learned or pretrained(hardware))

    def load(self, path: str) -> None:
        """Continue from a file written by `save`. DatabaseError for any other file."""
        loaded = Residual.load(path)
        loaded.recorded = self.schedules.learned.residual.recorded
        self.schedules.learned = LearnedCosts(loaded)

    def save(self, path: str) -> None:
        """Write everything learned to a file."""
        self.schedules.learned.residual.save(path)

    def update(self, context: Any, candidates: Sequence[Any], results: Sequence[Any]) -> None:
        """Learn from a round of measurements."""
        seconds = [float(np.mean([float(s) for s in r.run_secs])) if r.run_secs else None for r in results]
        self.schedules.learn([candidate.sch for candidate in candidates], seconds)

    def predict(self, context: Any, candidates: Sequence[Any]) -> np.ndarray:
        """Return a score for each candidate, higher is better."""
        return self.schedules.scores([candidate.sch for candidate in candidates])
