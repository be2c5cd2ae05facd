"""Coverage of networks by a database generated from others: python -m benchmarks.coverage

Generates a database on a simulated machine from the shapes of ResNet-50 and BERT-base, with boundary shapes by halving
or by the given factors, and looks up those of VGG-16, ResNet-101, BERT-large and MobileNetV2. Prints the share of
shapes found and the missing ones.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tvm_tiling.hardware.description import Hardware
from tvm_tiling.tuning.shapes.database import ShapeDatabase
from tvm_tiling.tuning.shapes.key import Workload
from tvm_tiling.tuning.shapes.random_shapes import RandomShapes
from tvm_tiling.workload import GemmWorkload

from . import shape
from .suite import load_suite

ROOMY = Path(__file__).parent / "roomy.toml"
KNOWN = ("resnet50", "bert-base")
ASKED = ("vgg16", "resnet101", "bert-large", "mobilenetv2")
FACTORS = (2,)
# The groups of the suite "networks" that belong to a network; convolutions name their networks themselves.
PRODUCTS = {
    "resnet50": "classifier-resnet",
    "resnet101": "classifier-resnet",
    "vgg16": "classifier-vgg16",
    "mobilenetv2": "classifier-mobilenetv2",
    "bert-base": "bert-base",
    "bert-large": "bert-large",
}
HEADS = {"bert-base": 12, "bert-large": 16}
HEAD, TOKENS = 64, (128, 384)


def shapes_of(network: str, dtype: str = "int8") -> list[Workload]:
    """Return the distinct convolutions and matrix multiplications of a network."""
    cases = [case for name in ("conv", "networks") for case in load_suite(name) if case.workload.dtype == "float32"]
    found = [case.workload for case in cases if network in case.times or case.group == PRODUCTS[network]]
    found += _attention(HEADS.get(network, 0))
    return list(dict.fromkeys(dataclasses.replace(workload, dtype=dtype, acc_dtype=None) for workload in found))


def _attention(heads: int) -> Iterator[Workload]:
    """Return the batched matrix multiplications of attention: queries by keys, and scores by values."""
    for tokens in TOKENS if heads else ():
        yield GemmWorkload(m=tokens, k=HEAD, n=tokens, batch=heads, trans_b=True)
        yield GemmWorkload(m=tokens, k=tokens, n=HEAD, batch=heads)


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """The shapes of a network for which a database has a configuration, by the step of the lookup, and the missing
    ones."""

    network: str
    steps: dict[Workload, int]
    missed: tuple[Workload, ...]

    @property
    def share(self) -> float:
        """Share of the distinct shapes."""
        return len(self.steps) / (len(self.steps) + len(self.missed))

    @property
    def share_of_work(self) -> float:
        """Share of their multiply-accumulates, counting each shape once."""
        supported, missed = sum(w.macs for w in self.steps), sum(w.macs for w in self.missed)
        return supported / (supported + missed)


def coverage(database: ShapeDatabase, hardware: Hardware, network: str) -> Coverage:
    """Look up the shapes of a network in the database."""
    steps, missed = {}, []
    for workload in shapes_of(network):
        hit = database.match(workload, target=hardware)
        if hit is None or database.config_for(workload, hardware) is None:
            missed.append(workload)
        else:
            steps[workload] = hit.step
    return Coverage(network=network, steps=steps, missed=tuple(missed))


def generate(
    database: ShapeDatabase,
    hardware: Hardware,
    *,
    networks: Iterable[str] = KNOWN,
    factors: Sequence[int] = FACTORS,
    random: Sequence[RandomShapes] = (),
    limit: int = 24,
) -> None:
    """Measure the shapes of `networks` and random ones, and reduce them by each of `factors`."""
    found = [workload for network in networks for workload in shapes_of(network)]
    for factor in factors:
        database.generate(
            target=hardware, shapes=found, random=random, factor=factor, limit=limit, candidates=1, threshold=None
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hardware", default=str(ROOMY), help="a preset or a TOML file")
    parser.add_argument("--factors", default="2", help="comma-separated reduction factors, such as 2,3")
    parser.add_argument("--limit", type=int, default=24, help="maximum number of boundary shapes per shape")
    parser.add_argument("--database", default="sqlite://", help="store the database in this file; default: in memory")
    given = parser.parse_args()
    hardware = Hardware.load(given.hardware)
    factors = [int(factor) for factor in given.factors.split(",")]
    with ShapeDatabase(given.database) as database:
        generate(database, hardware, factors=factors, limit=given.limit)
        for network in ASKED:
            found = coverage(database, hardware, network)
            print(
                f"{network}: {found.share:.0%} of the shapes, {found.share_of_work:.0%} of their multiply-accumulates"
            )
            for workload in found.missed:
                print(f"  missed: {shape.text(workload)}")


if __name__ == "__main__":
    main()
