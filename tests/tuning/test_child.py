"""A child that crashes, hangs, raises or prints costs one message, which tells how it ended."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tvm_tiling.runtime.threads import usable_core_count
from tvm_tiling.tuning.measuring.child import Child, ChildFailed, ChildLost
from tvm_tiling.tuning.measuring.template import TIMING, Template


@pytest.fixture
def template(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    template = Template(["child_functions"])
    yield template
    template.close()


@pytest.fixture
def child(template):
    child = Child("child_functions:do", "running", template)
    yield child
    child.close()


def test_one_process_answers_message_after_message(child):
    first, second = child.ask("work", 60), child.ask("work", 60)
    assert first == second == f"work in {child.pid}"


@pytest.mark.skipif(usable_core_count() < 2, reason="one core")
def test_kernels_of_a_fork_run_on_all_cores(monkeypatch):
    """TVM is imported before the fork, but no thread pool is created, so that none is lost."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    with contextlib.closing(Template.of("child_functions:threads", TIMING)) as template:
        child = Child("child_functions:threads", "running", template)
        assert child.ask(2, 60) == 2
        child.close()


def test_what_is_printed_is_not_an_answer(template):
    child = Child("child_functions:echo", "running", template)
    assert child.ask({"a": (1, 2)}, 60) == {"a": (1, 2)}
    child.close()


def test_children_of_a_template_are_apart(template):
    first, second = (Child("child_functions:do", "running", template) for _ in range(2))
    assert first.ask("work", 60) != second.ask("work", 60)
    with pytest.raises(ChildLost):
        first.ask("segfault", 60)
    assert second.ask("work", 60) == f"work in {second.pid}"
    first.close()
    second.close()


def test_a_function_that_is_not_there_is_reported_with_its_error(template):
    with pytest.raises(ChildLost, match=r"ended with exit code 1 .*no_such_function"):
        Child("child_functions:no_such_function", "running", template).ask("work", 60)


def test_a_template_that_was_closed_starts_nothing(template, child):
    child.ask("work", 60)
    child.close()
    template.close()
    with pytest.raises(ChildLost, match="was closed before"):
        child.ask("work", 60)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks for the process in /proc")
def test_a_template_that_was_killed_is_started_again(template, child):
    child.ask("work", 60)
    (own,) = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[1:2]
    os.kill(int(own), signal.SIGKILL)
    with pytest.raises(ChildLost, match=r"^ended \(out of memory\) while running"):
        child.ask("exit", 60)
    assert child.ask("work", 60) == f"work in {child.pid}"


def test_an_exception_is_reported_in_its_last_line_and_the_process_stays(child):
    before = child.ask("work", 60)
    with pytest.raises(ChildFailed, match=r"^ValueError: no such tile$"):
        child.ask("raise", 60)
    assert child.ask("work", 60) == before


@pytest.mark.parametrize(
    ("deed", "end"),
    [
        ("segfault", "killed by SIGSEGV while running"),
        ("abort", "killed by SIGABRT while running"),
        ("exit", r"ended with exit code 3 \(out of memory\) while running"),
    ],
)
def test_a_child_that_ends_is_replaced(child, deed, end):
    child.ask("work", 60)
    before = child.pid
    with pytest.raises(ChildLost, match=end):
        child.ask(deed, 60)
    assert child.ask("work", 60) == f"work in {child.pid}"
    assert child.pid != before


def test_a_child_that_hangs_is_ended(child):
    child.ask("work", 60)
    pid, start = child.pid, time.monotonic()
    with pytest.raises(ChildLost, match=r"timed out after 0\.5 s while running"):
        child.ask("hang", 0.5)
    assert time.monotonic() - start < 5
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks for the process in /proc")
def test_children_end_with_a_parent_that_was_killed():
    code = (
        "from tvm_tiling.tuning.measuring.child import Child\n"
        "from tvm_tiling.tuning.measuring.template import Template\n"
        "child = Child('child_functions:do', 'it ran', Template([])); child.ask('work', 60)\n"
        "print(child.pid, flush=True); child.ask('hang', 600)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment) as parent:
        pid = int(parent.stdout.readline())
        parent.kill()
    until = time.monotonic() + 10
    while Path(f"/proc/{pid}").exists() and "Z" not in Path(f"/proc/{pid}/stat").read_text().split()[2]:
        assert time.monotonic() < until, "the child of a killed parent goes on"
        time.sleep(0.05)
