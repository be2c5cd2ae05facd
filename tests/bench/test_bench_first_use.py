"""Cost of first use: every step runs, and its figures are those of its own process."""

from __future__ import annotations

import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def test_a_step_reports_time_and_memory_of_its_own_process():
    from benchmarks.first_use import measured

    spent = "sum(range(10**7)); held = b'x' * (200 << 20)"
    step = measured("sum", spent, {})
    assert 0.02 < step.processor <= step.seconds * 1.5 and 200e6 < step.bytes < 400e6
    assert measured("none", "pass", {}).bytes < 60e6  # not of this process, which is larger


def test_a_step_that_fails_says_why():
    from benchmarks.first_use import measured

    with pytest.raises(SystemExit, match="bad: ValueError: why"):
        measured("bad", "raise ValueError('why')", {})


def test_what_prepares_a_step_is_not_measured():
    from benchmarks.first_use import measured

    assert measured("none", "held", {}, "held = sum(range(10**7))").processor < 0.02


def test_other_networks_are_refused(capsys):
    from benchmarks.first_use import main

    with pytest.raises(SystemExit):
        main(["torchvision.no such"])
    assert "expected bvlc_alexnet" in capsys.readouterr().err


@pytest.mark.slow
def test_the_table(capsys):
    pytest.importorskip("onnxruntime")
    from benchmarks.first_use import main

    assert main(["squeezenet"]) == 0
    shown = capsys.readouterr().out
    assert "squeezenet: load and run once" in shown and "onnxruntime" in shown
