"""The interface of configuration rules: which choices a kernel has, which decision a configuration stands for, and what
it costs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Protocol, TypeAlias, TypeVar

from ...errors import DatabaseError, HardwareError
from ...figures import quantity
from ..conv.conv_tiling import ConvTiling
from ..levels.level_gemm import LevelsTiling
from ..tiling import Decision, GemmTiling, Reason
from .record import Config, Value

Tiling: TypeAlias = GemmTiling | ConvTiling | LevelsTiling
_Decision = TypeVar("_Decision", bound=Decision)


class ConfigRule(Protocol):
    """The configurations of one operator on one machine, for one algorithm or for several with the same choices.

    `cost` is in seconds on a CPU, in cycles on an accelerator.
    """

    @property
    def forms(self) -> tuple[str, ...]:
        """The algorithms that the rule covers."""

    @property
    def name(self) -> str:
        """Prefix of its choices among those of other rules; "" if they need none."""

    def config_of(self, tiling: Decision) -> Config:
        """Return the configuration of a decision."""

    def tiling_of(self, config: Config) -> Tiling:
        """Return the decision of a configuration for this shape, with blocks clipped to it. Raises HardwareError if the
        machine cannot run it."""

    def decided(self) -> Config | None:
        """Return the configuration of the decision; None if it is the candidate with the lowest cost."""

    def candidates(self) -> Iterator[Config]:
        """Yield the configurations that the decision compares."""

    def near(self, config: Config) -> Iterator[Config]:
        """Yield configurations that differ in one choice; some may be impossible."""

    def fits(self, config: Config) -> bool:
        """Return whether blocks stay in the storage levels for which they are sized, where the machine does not enforce
        it."""

    def cost(self, config: Config) -> float:
        """Return the predicted cost."""

    def parts(self, config: Config) -> Mapping[str, float]:
        """Return the predicted cost by cause, in any unit; empty if causes are not separated."""


class Undivided:
    """A rule that does not separate its costs by cause."""

    def parts(self, config: Config) -> Mapping[str, float]:
        """Return an empty mapping."""
        return {}


def integer(config: Config, name: str, least: int = 1) -> int:
    """Return an integer choice. Raises DatabaseError if it is not an integer or is below `least`."""
    value = config.choice(name)
    if type(value) is not int or value < least:
        raise DatabaseError(f"config: {name} = {value!r}; expected a whole number of at least {least}")
    return value


def integers(config: Config, name: str, count: int) -> tuple[int, ...]:
    """Return a choice of `count` integers of at least 1. Raises DatabaseError otherwise."""
    value = config.choice(name)
    if not isinstance(value, tuple) or len(value) != count or min(value) < 1:
        raise DatabaseError(f"config: {name} = {value!r}; expected {count} whole numbers of at least 1")
    return value


def one_of(config: Config, name: str, accepted: tuple[Value, ...]) -> Value:
    """Return a choice with few values. Raises DatabaseError for another value."""
    value = config.choice(name)
    if value not in accepted or type(value) is not type(accepted[0]):
        raise DatabaseError(f"config: {name} = {value!r}; expected {', '.join(map(repr, accepted))}")
    return value


def order(config: Config, name: str = "inner_order") -> str:
    """Return a choice that is the order of two loops."""
    return str(one_of(config, name, ("mn", "nm")))


def fewer(shares: tuple[int, ...], most: tuple[int, ...], cores: int) -> tuple[int, ...]:
    """Return the division among cores with no part larger than the work. Raises HardwareError if it needs more cores
    than exist."""
    wanted = 1
    for count in shares:
        wanted *= count
    if wanted > cores:
        raise HardwareError(
            f"config: shares {shares} need {quantity(wanted, 'core')}, this CPU has {cores}; expected at most {cores}"
        )
    return tuple(min(own, limit) for own, limit in zip(shares, most, strict=True))


def refuse_registers(needed: int, there_are: int, tile: str) -> None:
    """Raise HardwareError if a register tile does not fit."""
    if needed > there_are:
        raise HardwareError(
            f"config: microkernel {tile} needs {needed} vector registers, this CPU has {there_are}; expected fewer"
        )


def halves_and_doubles(value: int, unit: int, most: int) -> list[int]:
    """Return half and twice a block size, in whole units, up to `most`."""
    found = [-(-value // 2 // unit) * unit if value > unit else value, 2 * value]
    return [size for size in dict.fromkeys(min(size, most) for size in found) if size != value and size > 0]


def changed(config: Config, **choices: Value) -> Config:
    """Return the configuration with some choices replaced."""
    return Config.of(config.op, config.form, {**dict(config.choices), **choices})


def because(tiling: _Decision, config: Config, why: str) -> _Decision:
    """Return the decision with `why` as the reason for its algorithm and for the configuration as a whole."""
    kept = tuple(Reason(r.field, r.value, why) if r.field == "form" else r for r in tiling.reasons)
    if all(r.field != "form" for r in kept):
        kept = (Reason("form", config.form, why), *kept)
    return replace(tiling, reasons=(*kept, Reason("config", config.description, why)))
