"""Reasons for skipped tests, how to run each kind, and which kinds may be skipped if others may not.

After every run the skipped tests are counted by kind. If TVM_TILING_SKIPS is set to names of kinds (`none` for no
kind), as in .ci/run, a skip of any other kind fails the run.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from dataclasses import dataclass

import pytest

VARIABLE = "TVM_TILING_SKIPS"


@dataclass(frozen=True)
class Kind:
    """`reason`: a pattern for the reasons of this kind. `what`: what is missing. `run`: how to run them."""

    name: str
    reason: str
    what: str
    run: str


KINDS = (
    Kind("torch", r"'torch'|PyTorch|torch_networks", "need PyTorch", "make test-torch"),
    Kind("browser", r"no browser is installed", "need a browser", "apt-get install chromium, then make test-browser"),
    Kind("postgresql", r"PostgreSQL|psycopg", "need PostgreSQL", "apt-get install postgresql, then make test"),
    Kind("compiler", r"[cC] compiler|launch\.c", "need a C compiler", "apt-get install gcc, then make test"),
    Kind("git", r"\bgit\b|repository", "need git and the repository", "make test in a clone"),
    Kind("mca", r"llvm-mca", "need llvm-mca", "apt-get install llvm-19, then make test"),
    Kind(
        "emulator",
        r"the emulator",
        "need an emulator and a cross compiler for AArch64",
        "apt-get install qemu-user gcc-aarch64-linux-gnu libc6-dev-arm64-cross, then make test",
    ),
    Kind(
        "cpu",
        r"fewer registers|lanes|on this CPU|CPU with|dot product|x86|AVX-512|another processor|one core",
        "need another processor or more cores",
        "make test on one",
    ),
    Kind("right", r"right to|only root|write to everything", "need other rights", "make test as another user"),
    Kind("judge", r"too old to judge", "need a later onnxruntime", "make test PYTHON=python3.11"),
    Kind("docs", r"mkdocs", "build the documentation", "make docs test"),
    Kind("peer", r"not installed: |: not installed", "compare with a package that is not here", "make bench"),
)
OTHER = Kind("other", "", "are skipped for other reasons", "pytest -rs prints them")


def kind_of(reason: str) -> Kind:
    """Return the first kind whose pattern matches the reason."""
    return next((kind for kind in KINDS if re.search(kind.reason, reason)), OTHER)


class Skips:
    """Counts skipped tests, also modules that are skipped as a whole."""

    def __init__(self) -> None:
        self.reasons: Counter[str] = Counter()
        given = os.environ.get(VARIABLE)
        self._allowed = None if given is None else set(given.split())

    @pytest.hookimpl
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._count(report)

    @pytest.hookimpl
    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._count(report)

    def _count(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.skipped and not hasattr(report, "wasxfail"):
            self.reasons[str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)] += 1

    def refused(self) -> list[str]:
        """Return the reasons of kinds that may not be skipped in this run."""
        if self._allowed is None:
            return []
        return [reason for reason in self.reasons if kind_of(reason).name not in self._allowed]

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.refused() and session.exitstatus == pytest.ExitCode.OK and not hasattr(session.config, "workerinput"):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        counted: Counter[Kind] = Counter()
        for reason, count in self.reasons.items():
            counted[kind_of(reason)] += count
        for kind, count in counted.items():
            terminalreporter.write_line(f"skipped: {count} tests or files {kind.what}; to run them: {kind.run}")
        for reason in self.refused():
            terminalreporter.write_line(f"error: skipped, which {VARIABLE} does not allow: {reason}", red=True)
