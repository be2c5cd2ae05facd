"""What workers answer: by building and timing, by simulating, or for trying out a fleet, by predicting."""

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
    """Answers by the machine itself, or of accelerators by simulating them."""

    def __init__(self, bench: LocalBench) -> None:
        self._bench, self._own = bench, Hardware.detect()
        self._kept: dict[Job, None] = {}

    def hold(self, text: str) -> str:
        """The answer to a Question."""
        try:
            return answer_text(self._answer(Question.from_json(text)))
        except (TrialFailed, TilingError) as error:
            return answer_text(Failed(str(error)))

    def supports(self, text: str) -> str:
        """Why costs of here are none of the Fingerprint's in `text`, empty where they are."""
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
        """Builds of the latest jobs stay, for what was a candidate once may be the incumbent next."""
        for job in (question.candidate, question.incumbent):
            if job is not None:
                self._kept.pop(job, None)
                self._kept[job] = None
        while len(self._kept) > KEPT_BUILDS:
            oldest = next(iter(self._kept))
            del self._kept[oldest]
            self._bench.release(oldest)


class Predicting:
    """Answers by the formulas after `delay` seconds: a worker that takes no machine, to try out a fleet with."""

    def __init__(self, delay: float) -> None:
        self.delay = delay

    def hold(self, text: str) -> str:
        """The answer to a Question, as if everything took what is predicted."""
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
        """Predictions are of any machine."""
        return ""


def predicted(job: Job) -> float:
    """What the formulas say that a job costs: seconds, on an accelerator cycles."""
    rules = rules_for(job.workload, job.hardware, Surroundings(prepacked=job.prepacked))
    rule = next((rule for rule in rules if job.config.form in rule.forms), None)
    if rule is None:
        raise HardwareError(f"{job.hardware.name}: no form {job.config.form!r}")
    return rule.cost(job.config)
