"""Queries to a TVM tracker: how many workers of a key it has, and what each of them does."""

from __future__ import annotations

import json
import socket
import struct
from dataclasses import dataclass
from typing import Any

from ..measuring.runner import Address, RunnerError

TRACKER_SECONDS = 5.0
_MAGIC = 0x2F271  # the handshake value of tracker and client
_SUMMARY = 6  # the tracker's code for a summary
_MOST_TEXT = 200  # most characters shown of a worker's text


@dataclass(frozen=True, kw_only=True)
class WorkerStatus:
    """A worker as it last reported to the tracker, within seconds: its key, the address for sessions, its process,
    whether it is in a session, the operator that it measures (empty for none), and how many trials it has answered and
    how many of these failed. Values that a worker of another program does not report are None."""

    key: str
    address: str
    process: int | None
    busy: bool | None
    operator: str
    trials: int | None
    failed: int | None


def workers_at(address: Address) -> int:
    """Return how many workers of its key a tracker has. RunnerError within seconds if it cannot be reached, is not a
    tracker, or has none of that key."""
    found = statuses(address)
    of_key = sum(worker.key == address.key for worker in found)
    if not of_key:
        others = ", ".join(sorted({worker.key for worker in found})) or "none at all"
        raise RunnerError(f"runner {address}: the tracker has no workers of this key; it has: {others}")
    return of_key


def statuses(address: Address) -> list[WorkerStatus]:
    """Return all workers of a tracker, by key and address. RunnerError if it cannot be reached or is not a tracker."""
    found = [_status(server) for server in _summary(address).get("server_info", ()) if isinstance(server, dict)]
    return sorted(found, key=lambda worker: (worker.key, worker.address))


def _status(server: dict[str, Any]) -> WorkerStatus:
    def number(name: str) -> int | None:
        value = server.get(name)
        return value if type(value) is int else None

    place = server.get("addr")
    busy = server.get("busy")
    return WorkerStatus(
        key=_text(server.get("key", "")).removeprefix("server:"),
        address=":".join(_text(part) for part in place) if isinstance(place, list) else "",
        process=number("process"),
        busy=busy if isinstance(busy, bool) else None,
        operator=_text(server.get("operator", "")),
        trials=number("trials"),
        failed=number("failed"),
    )


def _text(value: object) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in str(value)[:_MOST_TEXT])


def _summary(address: Address) -> dict[str, Any]:
    try:
        with socket.create_connection((address.host, address.port), timeout=TRACKER_SECONDS) as connection:
            connection.sendall(struct.pack("<i", _MAGIC))
            if struct.unpack("<i", _received(connection, 4))[0] != _MAGIC:
                raise RunnerError(f"runner {address}: the server at this address is not a TVM tracker")
            question = json.dumps([_SUMMARY]).encode()
            connection.sendall(struct.pack("<i", len(question)) + question)
            (size,) = struct.unpack("<i", _received(connection, 4))
            found: dict[str, Any] = json.loads(_received(connection, size))[1]
            return found
    except OSError as error:
        raise RunnerError(
            f"runner {address}: the tracker cannot be reached ({error.strerror or error}); expected a "
            "running tracker, for example from `tvm-tiling fleet start`"
        ) from None


def _received(connection: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        piece = connection.recv(size - len(found))
        if not piece:
            raise OSError("it closed the connection")
        found += piece
    return found
