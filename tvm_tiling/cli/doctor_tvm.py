"""What `tvm-tiling doctor` says of TVM itself: whether it starts, which one starts, what it crashes in, its threads.

TVM is asked in a child process, since a broken one may take its process down.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from .doctor_check import Check

PROBE_SECONDS = 120
# Each line of the answer is as far as it came. The last step crashes where TVM and its FFI do not go together.
PROBE = """
import json
import tvm, tvm_ffi
threads = int(tvm.get_global_func('runtime.NumThreads')())
print(json.dumps([tvm.__version__, tvm_ffi.__version__, threads, tvm.__file__]), flush=True)
from tvm import te
a = te.placeholder((2,), name='a')
tvm.ir.save_json(te.create_prim_func([a, te.compute((2,), lambda i: a[i] + 1)]))
print('saved', flush=True)
"""


@dataclass(frozen=True)
class Answer:
    """What the child said: versions of TVM and its FFI, threads and place where it started, `error` where it did not
    come to its end, such as "killed by signal 11"."""

    tvm: str = ""
    ffi: str = ""
    threads: int = 0
    place: str = ""
    error: str = ""


def probe() -> Answer:
    """Ask."""
    try:
        child = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, timeout=PROBE_SECONDS)
    except subprocess.TimeoutExpired:
        return Answer(error=f"no answer after {PROBE_SECONDS} s")
    error = ""
    if child.returncode < 0:
        error = f"killed by signal {-child.returncode}"
    elif child.returncode:
        error = (child.stderr.strip().splitlines() or [f"exit code {child.returncode}"])[-1]
    lines = child.stdout.splitlines()
    if not lines:
        return Answer(error=error or "no answer")
    release, ffi, threads, place = json.loads(lines[0])
    return Answer(release, ffi, threads, place, error)


def check_tvm(
    answer: Answer, cores: int, installed: Callable[[str], str | None], environment: Mapping[str, str]
) -> Iterator[Check]:
    """Its start, the versions that are really loaded, and its threads on a machine of so many cores."""
    if not answer.tvm:
        yield Check("tvm", "fail", f"does not start: {answer.error}", "pip install --force-reinstall tvm-tiling")
        return
    loaded = {"apache-tvm": answer.tvm, "apache-tvm-ffi": answer.ffi}
    other = [
        f"{name} {found}, not the installed {installed(name)}"
        for name, found in loaded.items()
        if installed(name) not in (None, found)
    ]
    if answer.error:
        why = f"starts, and fails when it writes a function as JSON: {answer.error}"
        yield Check("tvm", "fail", f"{why}; apache-tvm-ffi {answer.ffi} does not go with it", _PINS)
    elif other:
        yield Check("tvm", "warn", f"{answer.place} is {'; '.join(other)}", "remove the other copy from PYTHONPATH")
    else:
        yield Check("tvm", "ok", f"{answer.tvm} starts and writes a function as JSON")
    yield _threads(answer, cores, environment)


_PINS = "pip install --force-reinstall tvm-tiling, which pins the versions that go together"


def _threads(answer: Answer, cores: int, environment: Mapping[str, str]) -> Check:
    """TVM's own number of threads; this package asks for all cores by itself."""
    threads, name = answer.threads, "TVM_NUM_THREADS"
    if threads == cores:
        return Check("tvm threads", "ok", f"{threads} of {cores} cores")
    if name in environment:
        found = f"{name}={environment[name]}: {threads} threads on {cores} cores"
        return Check("tvm threads", "warn", found, f"unset {name}, or export {name}={cores}")
    if threads < cores:
        found = f"TVM alone would use {threads} of {cores} cores (it halves the count on x86)"
        return Check("tvm threads", "warn", found, f"this package asks for all; for plain TVM: export {name}={cores}")
    return Check("tvm threads", "warn", f"TVM would start {threads} threads on {cores} cores", f"export {name}={cores}")
