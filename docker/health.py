"""Health check of tracker and worker: `health.py HOST:PORT` exits with 0 where a TVM tracker answers there; with
`--worker` if moreover a worker on this machine is registered with it. Without TVM, whose import would disturb what the
worker times."""

from __future__ import annotations

import json
import socket
import struct
import sys

MAGIC = 0x2F271  # what a tracker is greeted with, and greets with
SUMMARY = 6  # its code for a list of who is there
SECONDS = 3.0


def received(connection: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        piece = connection.recv(size - len(found))
        if not piece:
            raise OSError("the tracker closed the connection")
        found += piece
    return found


def number(connection: socket.socket) -> int:
    found: int = struct.unpack("<i", received(connection, 4))[0]
    return found


def problem(host: str, port: int, worker: bool) -> str:
    """What is wrong; empty for nothing."""
    with socket.create_connection((host, port), timeout=SECONDS) as connection:
        connection.sendall(struct.pack("<i", MAGIC))
        if number(connection) != MAGIC:
            return f"{host}:{port} is no TVM tracker"
        question = json.dumps([SUMMARY]).encode()
        connection.sendall(struct.pack("<i", len(question)) + question)
        _, summary = json.loads(received(connection, number(connection)))
        own = connection.getsockname()[0]  # the address by which the tracker knows this machine
    if worker and own not in [server["addr"][0] for server in summary["server_info"]]:
        return f"no worker at {own} is registered with {host}:{port}"
    return ""


def main() -> None:
    address, *options = sys.argv[1:]
    host, _, port = address.rpartition(":")
    try:
        sys.exit(problem(host, int(port), "--worker" in options) or 0)
    except (OSError, ValueError) as error:
        sys.exit(f"{address}: {error}")


if __name__ == "__main__":
    main()
