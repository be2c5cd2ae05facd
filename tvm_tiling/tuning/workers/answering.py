"""How workers answer: by building and timing, by simulation, or, to try out a fleet, by prediction."""

from __future__ import annotations

import json
import time

from ...decide.configs.config import rules_for
from ...decide.surroundings import Surroundings
from ...errors import HardwareError, TilingError
from ...hardware.description import Hardware
from ..measuring.incumbents import TrialFailed
from ..measuring.local import LocalBench
from ..measuring.measurer import Job
from ..measuring.paired_benchmark import Alone, PairedResult
from ..measuring.simulator import SimulatorMeasurer
from ..shapes.fingerprint import Fingerprint
from .wire import Answer, Failed, Question, Simulated, answer_text, refusal

KEPT_BUILDS = 32


class Measuring:
    """Answers by measuring on this machine, or by simulating accelerators."""

    def __init__(self, bench: LocalBench) -> None:
        self._bench, self._own = bench, Hardware.detect()
        self._kept: dict[Job, None] = {}

    def hold(self, text: str) -> str:
        """Return the answer to a Question."""
        try:
            return answer_text(self._answer(Question.from_json(text)))
        except (TrialFailed, TilingError) as error:
            return answer_text(Failed(str(error)))

    def supports(self, text: str) -> str:
        """Return why measurements on this machine do not match the Fingerprint in `text`, or an empty string."""
        return refusal(Fingerprint.from_dict(json.loads(text)), self._own)

    def _answer(self, question: Question) -> Answer:
        job = question.candidate
        if job.hardware.cpu is None:
            (measured,) = SimulatorMeasurer().measure([job])
            if measured.cost is None:
                return Failed(measured.reason or "not simulated")
            return Simulated(measured.cost, measured.energy_pj)
        answer = self._bench.hold(job, question.incumbent, question.thorough)
        self._keep(question)
        return answer

    def _keep(self, question: Question) -> None:
        """Keep the builds of the latest jobs, since a candidate may become the next incumbent."""
        for job in (question.candidate, question.incumbent):
            if job is not None:
                self._kept.pop(job, None)
                self._kept[job] = None
        while len(self._kept) > KEPT_BUILDS:
            oldest = next(iter(self._kept))
            del self._kept[oldest]
            self._bench.release(oldest)


class Predicting:
    """Answers by prediction after `delay` seconds: a worker that uses no machine, to try out a fleet."""

    def __init__(self, delay: float) -> None:
        self.delay = delay

    def hold(self, text: str) -> str:
        """Return the answer to a Question, as if every cost equalled its prediction."""
        time.sleep(self.delay)
        try:
            question = Question.from_json(text)
            cost = predicted(question.candidate)
            if question.candidate.hardware.cpu is None:
                return answer_text(Simulated(cost, None))
            if question.incumbent is None:
                return answer_text(Alone(seconds=cost, uncertainty=0.01))
            ratio = predicted(question.incumbent) / cost
            return answer_text(PairedResult(ratio=ratio, uncertainty=0.001, seconds=cost, pairs=15))
        except TilingError as error:
            return answer_text(Failed(str(error)))

    def supports(self, text: str) -> str:
        """Accept any machine."""
        return ""


def predicted(job: Job) -> float:
    """Return the predicted cost of a job: seconds, or cycles on an accelerator."""
    rules = rules_for(job.workload, job.hardware, Surroundings(prepacked=job.prepacked))
    rule = next((rule for rule in rules if job.config.form in rule.forms), None)
    if rule is None:
        raise HardwareError(f"{job.hardware.name} does not support algorithm {job.config.form!r}")
    return rule.cost(job.config)
