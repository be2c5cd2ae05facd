"""The command-line frame: how commands are found, how errors end."""

from __future__ import annotations

import os
import subprocess
import sys
import types
from pathlib import Path

import pytest
from command_line import run

from tvm_tiling.cli import app
from tvm_tiling.errors import UnsupportedOperator


@pytest.fixture
def command(monkeypatch):
    """Make a function the only command, `thing`."""

    def install(function):
        monkeypatch.setitem(sys.modules, "made_up_command", types.SimpleNamespace(command=function))
        monkeypatch.setattr(app, "COMMANDS", (app.Command("thing", "made_up_command", "Do the thing."),))

    return install


def test_help_lists_every_command_without_loading_it(capsys, monkeypatch):
    monkeypatch.setattr(app, "COMMANDS", (*app.COMMANDS, app.Command("ghost", "no.such.module", "Not there.")))
    code, out, _ = run(capsys, "--help")
    assert code == 0
    assert all(row.name in out for row in app.COMMANDS)
    assert "Not there." in out


def test_every_row_of_the_table_can_be_called(capsys):
    for row in app.COMMANDS:
        code, out, err = run(capsys, row.name, "--help")
        assert (code, err) == (0, ""), row.name
        assert f"tvm-tiling {row.name}" in out


def test_help_is_quick_and_loads_nothing_heavy():
    code = (
        "import sys\n"
        "from tvm_tiling.cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {name.split('.')[0] for name in sys.modules} & {'tvm', 'tvm_ffi', 'numpy', 'torch'}\n"
        "assert not heavy, heavy\n"
    )
    seconds = []
    for _ in range(3):
        before = os.times()
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, timeout=60)
        after = os.times()  # processor time, since other processes may be running
        seconds.append(after.children_user + after.children_system - before.children_user - before.children_system)
    assert min(seconds) < 1.0  # 0.3 s on an idle machine


def test_an_error_is_one_line_and_code_1(capsys, command):
    def fail():
        raise UnsupportedOperator("node 3: Sqrtt has no rule;\nexpected Sqrt")

    command(fail)
    assert run(capsys, "thing") == (1, "", "error: node 3: Sqrtt has no rule; expected Sqrt\n")


def test_debug_shows_where(capsys, command):
    def fail():
        raise UnsupportedOperator("no rule")

    command(fail)
    for words in (("--debug", "thing"), ("thing", "--debug")):
        with pytest.raises(UnsupportedOperator):
            app.main(words)


def test_a_missing_file_is_an_error_and_a_defect_says_so(capsys, command):
    command(Path("/no/such/file").read_text)
    code, _, err = run(capsys, "thing")
    assert code == 1 and err.startswith("error: ") and "/no/such/file" in err and "defect" not in err

    command(lambda: {}["key"])
    code, _, err = run(capsys, "thing")
    assert code == 1 and err.count("\n") == 1 and "unexpected KeyError" in err and "--debug" in err


def test_interrupt_is_130(capsys, command):
    def interrupted():
        raise KeyboardInterrupt

    command(interrupted)
    assert run(capsys, "thing")[0] == 130


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("zzz",), "unknown command 'zzz'; expected thing; see tvm-tiling --help"),
        (("thin",), "unknown command 'thin'; did you mean thing? See tvm-tiling --help"),
        (("thing", "--bogus"), "unknown option --bogus; expected --help; see tvm-tiling thing --help"),
        (("--debugg", "thing"), "unknown option --debugg; did you mean --debug? See tvm-tiling --help"),
        (("thing", "more"), "unexpected argument 'more'; see tvm-tiling thing --help"),
    ],
)
def test_wrong_usage_is_one_sentence_and_2(capsys, command, words, said):
    command(lambda: None)
    assert run(capsys, *words) == (2, "", f"error: {said}\n")


def test_no_command_is_the_help(capsys, command):
    command(lambda: None)
    code, out, err = run(capsys)
    assert code == 2 and "Usage: tvm-tiling" in out + err
    assert run(capsys, "-h") == run(capsys, "--help") and run(capsys, "thing", "-h")[0] == 0


def test_version(capsys):
    code, out, _ = run(capsys, "--version")
    assert code == 0 and out.strip()


@pytest.mark.parametrize("unbuffered", ["", "1"])  # written immediately, or when the command ends
def test_a_reader_that_leaves_early_is_no_traceback(unbuffered):
    code = "from tvm_tiling.cli import main; main(['hardware', 'list', '--json'])"
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    writer = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    )
    writer.stdout.close()
    assert writer.stderr.read() == b""
    writer.stderr.close()
    assert writer.wait(timeout=60) == 1
