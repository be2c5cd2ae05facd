"""Run work in a separate process, so that a case that ends its process fails without affecting others."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

from tvm_tiling.model.kernel_cache import KernelCache
from tvm_tiling.model.native_objects import make_ahead


def apart(work: Callable[[], str], seconds: int) -> str:
    """Return the result of `work`, or how its process ended.

    "raised: ..." for an error, "slow: ..." after the limit of processor time, "crash: ..." if its process ended
    otherwise.
    """
    make_ahead(KernelCache(None))  # the C code that runs plans, which every process would compile
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        # Of processor time: the process may be paused.
        signal.setitimer(signal.ITIMER_PROF, seconds)
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        try:
            said = work()
        except BaseException as error:  # any error is reported to the caller
            said = f"raised: {type(error).__name__}: {error}"
        with os.fdopen(writer, "wb") as pipe:
            pipe.write(said.encode(errors="replace"))
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        said = pipe.read().decode(errors="replace")
    status = os.waitpid(child, 0)[1]
    if said:
        return said
    if status & 127 == signal.SIGPROF:
        return f"slow: more than {seconds} s"
    return f"crash: signal {status & 127}"
