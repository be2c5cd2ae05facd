"""Networks compared with all libraries that run networks on a CPU, in turns.

    python -m benchmarks.peer_networks resnet50 bert_128 --peer onnxruntime openvino --json results/peers.json

Each library runs in its own process, with the same number of threads. Converted networks are stored in --folder, so
that a later run starts with the measurements. Outputs are first compared with PyTorch: a library whose error exceeds
--tolerance gets no time. The relative latency is our time over the library's time in the same round, as the median over
all rounds; below 1 ours is faster. --convert only converts.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tvm_tiling.cli.table import print_table
from tvm_tiling.measure import machine_record
from tvm_tiling.runtime.threads import default_thread_count

from . import zoo
from .network_files import Network
from .peers.network import NetworkPeer, missing
from .peers.network_iree import IreeNetwork
from .peers.network_litert import LiteRtNetwork
from .peers.network_ncnn import NcnnNetwork
from .peers.network_onnxruntime import OnnxRuntimeNetwork
from .peers.network_ours import OurNetwork
from .peers.network_torch import EagerNetwork, InductorNetwork, ZentorchNetwork
from .peers.openvino_network import OpenVinoByDefault, OpenVinoNetwork
from .result import earlier_entries, write_whole
from .summary import geometric_mean
from .turns import CONVERT, LOAD, Player, take_turns

PEERS: dict[str, type[NetworkPeer]] = {
    peer.name: peer
    for peer in (
        OnnxRuntimeNetwork,
        OpenVinoNetwork,
        OpenVinoByDefault,
        InductorNetwork,
        ZentorchNetwork,
        LiteRtNetwork,
        NcnnNetwork,
        IreeNetwork,
    )
}
KNOWN: dict[str, type[NetworkPeer]] = {**PEERS, EagerNetwork.name: EagerNetwork}  # those of single layers too
FORMAT, VERSION = "tvm-tiling-peer-networks", 1
CONVERT_SECONDS, LOAD_SECONDS = 1800.0, 1200.0
TOLERANCE = 2e-3  # for float32; a library that rounds to bfloat16 has exact = False
ROUNDED = 0.2


def measure(network: Network, peers: Sequence[type[NetworkPeer]], rounds: int, seconds: float) -> dict[str, Any]:
    """Return an entry of the result: for each library its seconds or the reason why it has none, and our relative
    latency."""
    entry: dict[str, Any] = {"network": network.name, "batch": network.batch}
    network.write()
    players = [Player(peer, network, default_thread_count()) for peer in (OurNetwork, *peers)]
    try:
        for player in players:
            player.ask(CONVERT, CONVERT_SECONDS)
            if (loaded := player.ask(LOAD, LOAD_SECONDS)) is not None:
                player.far = loaded[1]
                if not player.far <= (TOLERANCE if player.peer.exact else ROUNDED):
                    player.failure = f"wrong result: error {player.far:.1e} relative to the largest element"
        take_turns(players, rounds, seconds)
    finally:
        for player in players:
            player.close()
    entry["libraries"] = {player.peer.name: _row(player, players[0]) for player in players}
    return entry


def _row(player: Player, ours: Player) -> dict[str, Any]:
    if player.failure or not player.seconds:
        return {"status": "failed", "reason": player.failure}
    row = {
        "status": "ok",
        "seconds": statistics.median(player.seconds),
        "far": player.far,
        "disturbed": player.disturbed,
    }
    if ours.seconds and not ours.failure:
        parts = [own / their for own, their in zip(ours.seconds, player.seconds, strict=True)]
        row["part"], row["parts"] = statistics.median(parts), parts
    return row


def fastest(entry: dict[str, Any]) -> tuple[str, float] | None:
    """Return the fastest library that computes in float32, and our latency relative to it; None if either has no
    time."""
    parts = {
        name: row["part"]
        for name, row in entry["libraries"].items()
        if name in KNOWN and KNOWN[name].exact and "part" in row
    }
    return max(parts.items(), key=lambda item: item[1]) if parts else None


def print_entries(entries: Sequence[dict[str, Any]]) -> None:
    """Print a row for each network, then geometric means."""
    shown = [name for name in KNOWN if any(name in entry["libraries"] for entry in entries)]
    rows = []
    for entry in entries:
        own, best = entry["libraries"]["ours"], fastest(entry)
        rows.append(
            [
                entry["network"] + (f" x{entry['batch']}" if entry["batch"] > 1 else ""),
                f"{own['seconds'] * 1e3:.2f}" if "seconds" in own else own["reason"],
                *(_part(entry["libraries"].get(name)) for name in shown),
                f"{best[1]:.2f} {best[0]}" if best else "-",
            ]
        )
    print_table(["network", "ms", *shown, "relative to the fastest"], rows)
    parts = [best[1] for entry in entries if (best := fastest(entry))]
    if parts:
        print(
            f"relative to fastest: geometric mean {geometric_mean(parts):.3f}, worst {max(parts):.2f} of {len(parts)}"
        )
    for name in shown:
        known = [row["part"] for entry in entries if (row := entry["libraries"].get(name)) and "part" in row]
        if known:
            print(f"{name}: geometric mean {geometric_mean(known):.3f}, worst {max(known):.2f} of {len(known)}")


def _part(row: dict[str, Any] | None) -> str:
    if row is None:
        return ""
    return f"{row['part']:.2f}" if "part" in row else "-"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print a table and write all figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    also = f"also {zoo.OF_TIMM} and the name of an image network of timm"
    listed = ", ".join(zoo.EVERY)
    parser.add_argument("networks", nargs="*", metavar="NETWORK", help=f"default: all of {listed}; {also}")
    parser.add_argument(
        "--batch",
        type=int,
        nargs="+",
        default=[1],
        help=f"batch size; more than 1 is supported for {', '.join(zoo.BATCHED)}",
    )
    parser.add_argument("--peer", nargs="+", choices=sorted(PEERS), default=list(PEERS), help="default: all installed")
    parser.add_argument("--folder", type=Path, help="folder for models and converted models; default: temporary")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.4, help="seconds per turn")
    parser.add_argument("--convert", action="store_true", help="convert and load only")
    parser.add_argument("--json", type=Path, help="write after each network; networks in the file are skipped")
    given = parser.parse_args(arguments)
    names = given.networks or list(zoo.EVERY)
    if unknown := [name for name in names if not zoo.is_known(name)]:
        parser.error(f"unknown networks: {', '.join(unknown)}; expected some of {listed}; {also}")
    peers = []
    for name in given.peer:
        if lacks := missing(PEERS[name]):
            print(f"skipped {name}: not installed: {', '.join(lacks)}", file=sys.stderr)
        else:
            peers.append(PEERS[name])
    wanted = [(name, batch) for batch in given.batch for name in names if batch == 1 or name in zoo.BATCHED]
    entries = earlier_entries(given.json, FORMAT, VERSION, "networks")
    with tempfile.TemporaryDirectory() as temporary:
        for name, batch in wanted:
            if any((entry["network"], entry["batch"]) == (name, batch) for entry in entries):
                continue
            network = Network(name, batch, (given.folder or Path(temporary)) / f"{name.replace(':', '-')}-{batch}")
            rounds = 1 if given.convert else given.rounds
            entry = measure(network, peers, rounds, given.seconds)
            for library, row in entry["libraries"].items():
                if row["status"] != "ok":
                    print(f"{name}: {library}: {row['reason']}", file=sys.stderr)
            if given.convert:
                continue
            entries.append(entry)
            print_entries([entry])
            if given.json:
                record = {"format": FORMAT, "version": VERSION, "machine": machine_record(), "networks": entries}
                write_whole(given.json, json.dumps(record, indent=1))
    if len(entries) > 1:
        print_entries(entries)
    failed = [entry for entry in entries if entry["libraries"]["ours"]["status"] != "ok"]
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
