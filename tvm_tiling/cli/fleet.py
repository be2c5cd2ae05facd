"""`tvm-tiling fleet`: a TVM tracker with workers, for `tune --runner rpc://host:port/key`."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from .output import JSON, examples, print_json
from .table import print_table

if TYPE_CHECKING:
    from ..tuning.measuring.runner import Address
    from ..tuning.workers.tracker import WorkerStatus

command = typer.Typer(no_args_is_help=True)

LOOPBACK = "127.0.0.1"
LOOK_SECONDS = 2.0
HOST_HELP = (
    "Address to listen at. Whoever reaches a tracker's workers has them run what it likes: other than loopback only in "
    "a network of your own."
)


@command.command(epilog=examples("tvm-tiling fleet start --workers 1 --port 9190"))
def start(
    workers: int = typer.Option(1, "--workers", min=0, help="Workers that measure on this machine."),
    predicting: int = typer.Option(0, "--predicting", min=0, help="Workers that only predict, to try a fleet out."),
    delay: float = typer.Option(0.5, "--delay", min=0.0, help="Seconds that a predicting worker takes."),
    key: str = typer.Option("cpu", "--key", help="Name of the kind of machine; sessions ask for it."),
    host: str = typer.Option(LOOPBACK, "--host", help=HOST_HELP),
    port: int = typer.Option(9190, "--port", min=0, max=65535, help="The tracker's; 0: any that is free."),
) -> None:
    """Start a tracker and workers, and print what --runner takes; Ctrl-C ends them.

    A worker that ends is restarted, and only its trial is lost. Several measuring workers on one machine
    disturb each other: more than one is for trying things out.
    """
    from ..tuning.workers.fleet import Fleet

    with Fleet(key=key, measuring=workers, predicting=predicting, delay=delay, host=host, port=port) as fleet:
        print(fleet.address, flush=True)
        while True:
            for sentence in fleet.keep_up():
                print(sentence, file=sys.stderr, flush=True)
            time.sleep(0.5)


@command.command(epilog=examples("tvm-tiling fleet join rpc://127.0.0.1:9190/cpu"))
def join(
    runner: str = typer.Argument(metavar="RPC", help="rpc://host:port/key of a tracker."),
    host: str = typer.Option(LOOPBACK, "--host", help=f"{HOST_HELP} Sessions have to reach it there."),
) -> None:
    """Measure on this machine for a tracker, until Ctrl-C."""
    from ..tuning.measuring.runner import Address, RunnerError
    from ..tuning.workers.fleet import ending
    from ..tuning.workers.fleet import join as join_tracker

    address = Address.parse(runner)
    worker = join_tracker(address, host)
    try:
        told = ""
        while worker.poll() is None:
            if (now := _where(address, worker.pid)) != told:
                print(now, file=sys.stderr, flush=True)
                told = now
            with contextlib.suppress(subprocess.TimeoutExpired):
                worker.wait(LOOK_SECONDS)
    finally:
        worker.terminate()
        worker.wait()
    raise RunnerError(f"fleet: the worker {ending(worker)}")


@command.command(epilog=examples("tvm-tiling fleet status rpc://127.0.0.1:9190/cpu"))
def status(
    runner: str = typer.Argument(
        metavar="RPC", help="rpc://host:port/key of a tracker; workers of all keys are shown."
    ),
    as_json: bool = JSON,
) -> None:
    """List the workers of a tracker: where they are, what they measure, and how many trials they have answered."""
    from ..tuning.measuring.runner import Address
    from ..tuning.workers.tracker import statuses

    found = statuses(Address.parse(runner))
    if as_json:
        print_json([asdict(worker) for worker in found])
        return
    rows = [
        (w.key, w.address, _or_unknown(w.process), _doing(w), _or_unknown(w.trials), _or_unknown(w.failed))
        for w in found
    ]
    print_table(("key", "address", "process", "does", "trials", "failed"), rows)


def _where(address: Address, process: int) -> str:
    """What a worker that was started here waits for."""
    from ..tuning.measuring.runner import RunnerError
    from ..tuning.workers.tracker import statuses

    try:
        found = statuses(address)
    except RunnerError as error:
        return f"waiting for a tracker: {error}"
    if any(worker.process == process for worker in found):
        return f"worker {process} is at {address}, and free for whoever tunes with --runner {address}"
    return f"worker {process} starts"


def _doing(worker: WorkerStatus) -> str:
    if worker.busy is None:
        return "not told"
    return worker.operator or ("waits for a question" if worker.busy else "free")


def _or_unknown(value: int | None) -> str:
    return "not told" if value is None else str(value)
