"""Reports of all kinds as HTML pages: one function for all of them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from ..accel.report.report import SimReport
from ..errors import DatabaseError, ModelFormatError, other_version
from ..hardware.description import Hardware
from ..measure import machine_record
from ..model.accel.report import AcceleratorReport
from ..model.profile import Profile
from ..model.report import Report
from ..tuning.outcome import ModelTuneReport, TuneReport
from . import suite_result, timed_model, tuning_page, versus
from .comparison_page import comparison_page
from .model_page import model_page
from .page import write_page
from .profile_view import profile_page
from .simulation_page import accelerator_page, simulation_page
from .timed_model import TimedModel, timed_from_dict
from .versus import Versus, versus_from_dict
from .versus_page import versus_page

ACCEPTED = (
    "expected what exe.report(), exe.simulate() or tune() gave, or the JSON that `tvm-tiling report --json`, `bench "
    "MODEL --json`, `bench SUITE -o`, `tune --json` or `tune --log` wrote"
)

_READABLE: Mapping[str, Sequence[int]] = {
    timed_model.FORMAT: timed_model.READABLE,
    suite_result.FORMAT: (suite_result.VERSION,),
    versus.FORMAT: (versus.VERSION,),
    **tuning_page.FORMATS,
}


def save_report(subject: Any, path: str | os.PathLike[str], title: str = "", *, against: Any = None) -> None:
    """Write `subject` as one self-contained HTML file: the report of a model (`exe.report()`), with its times if
    `exe.benchmark()` has been called; a profile (`exe.profile()`); the report of a simulation (`exe.simulate()`,
    `simulate()`) or of a search (`tune()`); or the result of a comparison as plain values.

    `title`: the heading of the page, by default derived from the subject. `against`: the report of another build or run
    of the model to compare with.

    Raises ModelFormatError for anything else, OSError if `path` cannot be written.
    """
    if against is not None:
        for each in (subject, against):
            if not isinstance(each, Report | TimedModel):
                raise ModelFormatError(f"a {type(each).__name__} cannot be compared; expected two of exe.report()")
        subject = Versus(subject=_timed(subject, title or "Model"), baseline=_timed(against, "baseline"))
    write_page(path, page_of(subject, title))


def _timed(report: Report | TimedModel, name: str) -> TimedModel:
    if isinstance(report, TimedModel):
        return report
    return TimedModel(name=name, report=report, machine=machine_record(Hardware.detect()))


def page_of(subject: Any, title: str = "") -> str:
    """Return the page that `save_report` writes."""
    if isinstance(subject, SimReport):
        return simulation_page(subject, title)
    if isinstance(subject, AcceleratorReport):
        return accelerator_page(subject, title)
    if isinstance(subject, Report):
        subject = _timed(subject, title or "Model")
    if isinstance(subject, TimedModel):
        return model_page(subject)
    if isinstance(subject, Profile):
        return profile_page(subject, title)
    if isinstance(subject, Versus):
        return versus_page(subject)
    if isinstance(subject, TuneReport | ModelTuneReport):
        subject = subject.to_dict()
    if isinstance(subject, Mapping):
        return result_page(subject, title or "the result", title)
    raise ModelFormatError(f"a {type(subject).__name__} is not a report; {ACCEPTED}")


def is_result(plain: Any) -> bool:
    """Return whether plain values are a result that has a page."""
    return isinstance(plain, Mapping) and plain.get("format") in _READABLE


def result_page(plain: Mapping[str, Any], where: str, title: str = "") -> str:
    """Return the page of a result as plain values, of a search under a `title`. Raises ModelFormatError with the source
    `where` if it cannot be read."""
    readable = _READABLE.get(str(plain.get("format")))
    if readable is None:
        raise ModelFormatError(f"{where}: format {plain.get('format')!r}; {ACCEPTED}")
    if plain.get("version") not in readable:
        raise ModelFormatError(f"{where} has {other_version(plain.get('version'), readable, 'measure again')}")
    if plain["format"] == timed_model.FORMAT:
        return model_page(timed_from_dict(plain, where))
    try:
        if plain["format"] == versus.FORMAT:
            return versus_page(versus_from_dict(plain, where))
        if plain["format"] in tuning_page.FORMATS:
            return tuning_page.tuning_page(plain, title)
        return comparison_page(plain)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, DatabaseError) as error:
        raise ModelFormatError(f"{where} is corrupted: {type(error).__name__} {error}; {ACCEPTED}") from None
