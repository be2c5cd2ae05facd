"""The operators of a model as a table: forms, predicted and measured times, shares."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from .table import print_table

if TYPE_CHECKING:
    from ..model.report import OperatorRecord, Report


def print_report(report: Report) -> None:
    """Every operator with its times and its share, the slowest first; then what concerns the whole model."""
    print_slowest(report, len(report.operators))
    print()
    for line in report.lines():
        print(line)


def print_slowest(report: Report, most: int) -> None:
    """The operators that take longest."""
    shown = report.operators[:most]
    _print(shown, ("measured us", "share"), lambda o: (_us(o.measured_seconds), _percent(report.share(o))))
    if len(report.operators) > most:
        print(f"and {len(report.operators) - most} more")


def print_decided(operators: Iterable[OperatorRecord]) -> None:
    """Every operator in the order of the model, its work and its predicted time."""
    _print(operators, ("Gop",), lambda o: (f"{o.flops / 1e9:.3g}" if o.flops else "",))


def _print(
    operators: Iterable[OperatorRecord], headings: tuple[str, ...], cells: Callable[[OperatorRecord], tuple[str, ...]]
) -> None:
    rows = [(o.name, o.form or o.kind, o.calls, _us(o.predicted_seconds), *cells(o), o.why) for o in operators]
    print_table(("operator", "form", "calls", "predicted us", *headings, "why"), rows, spare=("why",))


def _us(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1e6:.0f}"


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.1%}"
