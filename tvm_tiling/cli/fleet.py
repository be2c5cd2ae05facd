"""`tvm-tiling fleet`: manage a TVM tracker and its workers, for `tune --runner rpc://host:port/key`."""

from __future__ import annotations

import contextlib
import socket
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
    "Address to listen on. Anyone who can reach the workers can run code on this machine: use an address other than "
    "loopback only in a trusted network."
)


@command.command(epilog=examples("tvm-tiling fleet start --workers 1 --port 9190"))
def start(
    workers: int = typer.Option(
        1, "--workers", metavar="N", min=0, help="Number of workers that measure on this machine."
    ),
    predicting: int = typer.Option(
        0,
        "--predicting",
        metavar="N",
        min=0,
        help="Number of workers that predict instead of measuring, to test a fleet.",
    ),
    delay: float = typer.Option(
        0.5, "--delay", metavar="S", min=0.0, help="Seconds that a predicting worker waits before it answers."
    ),
    key: str = typer.Option("cpu", "--key", metavar="NAME", help="Name of this kind of machine, part of --runner."),
    host: str = typer.Option(LOOPBACK, "--host", metavar="ADDRESS", help=HOST_HELP),
    port: int = typer.Option(
        9190, "--port", metavar="N", min=0, max=65535, help="Port of the tracker; 0: any free port."
    ),
) -> None:
    """Start a tracker and workers, and print the address for --runner. Ctrl-C stops them.

    A worker that exits is restarted; only its trial is lost. Measuring workers on one machine disturb each other, so
    use more than one only for tests.
    """
    from ..tuning.measuring.runner import Address, RunnerError
    from ..tuning.workers.fleet import Fleet

    try:
        Address.parse(f"rpc://{LOOPBACK}:1/{key}")
    except RunnerError:
        raise RunnerError(f"--key {key}: expected letters, digits and the characters _ . + -") from None
    with Fleet(key=key, measuring=workers, predicting=predicting, delay=delay, host=host, port=port) as fleet:
        print(fleet.address, flush=True)
        while True:
            for sentence in fleet.keep_up():
                print(sentence, file=sys.stderr, flush=True)
            time.sleep(0.5)


@command.command(epilog=examples("tvm-tiling fleet join rpc://127.0.0.1:9190/cpu"))
def join(
    runner: str = typer.Argument(metavar="RUNNER", help="Address of a tracker: rpc://host:port/key."),
    host: str = typer.Option(
        LOOPBACK, "--host", metavar="ADDRESS", help=f"{HOST_HELP} Tuning sessions connect to this address."
    ),
) -> None:
    """Run a worker on this machine for a tracker until Ctrl-C."""
    from ..tuning.measuring.runner import Address, RunnerError
    from ..tuning.workers.fleet import end, ending
    from ..tuning.workers.fleet import join as join_tracker

    address = Address.parse(runner)
    _check_host(host)
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
        end([worker])
    raise RunnerError(f"fleet: the worker {ending(worker)}")


@command.command(epilog=examples("tvm-tiling fleet status rpc://127.0.0.1:9190/cpu"))
def status(
    runner: str = typer.Argument(
        metavar="RUNNER", help="Address of a tracker: rpc://host:port/key. Workers of all keys are listed."
    ),
    as_json: bool = JSON,
) -> None:
    """List the workers of a tracker: addresses, operators, trials."""
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
    print_table(("key", "address", "process", "state", "trials", "failed"), rows)


def _check_host(host: str) -> None:
    """RunnerError if nothing can listen on the address."""
    from ..tuning.measuring.runner import RunnerError

    try:
        family, kind, protocol, _, place = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.bind(place)
    except OSError as error:
        raise RunnerError(
            f"--host {host}: a worker cannot listen there ({error.strerror or error}); expected an address of this "
            "machine"
        ) from None


def _where(address: Address, process: int) -> str:
    """The state of the worker that was started here."""
    from ..tuning.measuring.runner import RunnerError
    from ..tuning.workers.tracker import statuses

    try:
        found = statuses(address)
    except RunnerError as error:
        return f"waiting for a tracker: {error}"
    if any(worker.process == process for worker in found):
        return f"worker {process} is registered at {address}; use tvm-tiling tune --runner {address}"
    return f"worker {process} is starting"


def _doing(worker: WorkerStatus) -> str:
    if worker.busy is None:
        return "unknown"
    return worker.operator or ("waiting for a request" if worker.busy else "free")


def _or_unknown(value: int | None) -> str:
    return "unknown" if value is None else str(value)
