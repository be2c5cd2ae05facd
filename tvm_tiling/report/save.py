"""Reports of all kinds as pages: one function for whoever has one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ..accel.report.report import SimReport
from ..errors import ModelFormatError, other_version
from ..hardware.description import Hardware
from ..measure import machine_record
from ..model.accel.report import AcceleratorReport
from ..model.report import Report
from . import suite_result, timed_model
from .comparison_page import comparison_page
from .model_page import model_page
from .page import write_page
from .simulation_page import accelerator_page, simulation_page
from .timed_model import TimedModel, timed_from_dict

ACCEPTED = (
    "accepted: what exe.report() or exe.simulate() gave, or the JSON that `tvm-tiling report --json`, `bench MODEL "
    "--json` or `bench SUITE -o` wrote"
)


def save_report(subject: Any, path: str | os.PathLike[str], title: str = "") -> None:
    """Write a report as one HTML file that needs nothing else: the report of a model (`exe.report()`), with its times
    where `exe.benchmark()` has been called; of a simulation (`exe.simulate()`, `simulate()`); or the result of a
    comparison as plain values. ModelFormatError for anything else, OSError where `path` cannot be written."""
    write_page(path, page_of(subject, title))


def page_of(subject: Any, title: str = "") -> str:
    """The page that `save_report` writes."""
    if isinstance(subject, SimReport):
        return simulation_page(subject, title)
    if isinstance(subject, AcceleratorReport):
        return accelerator_page(subject, title)
    if isinstance(subject, Report):
        subject = TimedModel(name=title or "Model", report=subject, machine=machine_record(Hardware.detect()))
    if isinstance(subject, TimedModel):
        return model_page(subject)
    if isinstance(subject, Mapping):
        return result_page(subject, title or "the result")
    raise ModelFormatError(f"a {type(subject).__name__} is not a report; {ACCEPTED}")


def is_result(plain: Any) -> bool:
    """Whether plain values are a result that has a page."""
    return isinstance(plain, Mapping) and plain.get("format") in (suite_result.FORMAT, timed_model.FORMAT)


def result_page(plain: Mapping[str, Any], where: str) -> str:
    """The page of a result as plain values; ModelFormatError names `where` they are from if it cannot be read."""
    kinds = {timed_model.FORMAT: timed_model.READABLE, suite_result.FORMAT: (suite_result.VERSION,)}
    readable = kinds.get(str(plain.get("format")))
    if readable is None:
        raise ModelFormatError(f"{where}: format {plain.get('format')!r}; {ACCEPTED}")
    if plain.get("version") not in readable:
        raise ModelFormatError(f"{where} has {other_version(plain.get('version'), readable, 'measure again')}")
    if plain["format"] == timed_model.FORMAT:
        return model_page(timed_from_dict(plain, where))
    try:
        return comparison_page(plain)
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise ModelFormatError(f"{where} is corrupted: {type(error).__name__} {error}; {ACCEPTED}") from None
