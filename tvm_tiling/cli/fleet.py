"""`tvm-tiling fleet`: a TVM tracker with workers, for `tune --runner rpc://host:port/key`."""

from __future__ import annotations

import time

import typer

from .output import examples

command = typer.Typer(no_args_is_help=True)

LOOPBACK = "127.0.0.1"
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

    Several measuring workers on one machine disturb each other: more than one is for trying things out.
    """
    from ..tuning.workers.fleet import Fleet

    with Fleet(key=key, measuring=workers, predicting=predicting, delay=delay, host=host, port=port) as fleet:
        print(fleet.address, flush=True)
        while all(process.poll() is None for process in fleet.processes):
            time.sleep(0.5)
    raise _ended("a process of the fleet")


@command.command(epilog=examples("tvm-tiling fleet join rpc://127.0.0.1:9190/cpu"))
def join(
    runner: str = typer.Argument(metavar="RPC", help="rpc://host:port/key of a tracker."),
    host: str = typer.Option(LOOPBACK, "--host", help=f"{HOST_HELP} Sessions have to reach it there."),
) -> None:
    """Measure on this machine for a tracker, until Ctrl-C."""
    from ..tuning.measuring.runner import Address
    from ..tuning.workers.fleet import join as join_tracker

    worker = join_tracker(Address.parse(runner), host)
    try:
        worker.wait()
    finally:
        worker.terminate()
        worker.wait()
    raise _ended("the worker")


def _ended(what: str) -> Exception:
    from ..tuning.measuring.runner import RunnerError

    return RunnerError(f"{what} ended")
