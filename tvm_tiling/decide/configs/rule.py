"""What every kind of kernel tells of its configurations: what is left to choose, what a configuration stands for, what
it costs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Protocol, TypeAlias, TypeVar

from ...errors import DatabaseError, HardwareError
from ..conv.conv_tiling import ConvTiling
from ..levels.level_gemm import LevelsTiling
from ..tiling import Decision, GemmTiling, Reason
from .record import Config, Value

Tiling: TypeAlias = GemmTiling | ConvTiling | LevelsTiling
_Decision = TypeVar("_Decision", bound=Decision)


class ConfigRule(Protocol):
    """The configurations of one operator on one machine, of one form or of forms that have their choices in common.

    `cost` is in seconds on a CPU, in cycles on an accelerator.
    """

    @property
    def forms(self) -> tuple[str, ...]:
        """The forms that it knows."""

    @property
    def name(self) -> str:
        """What its choices are called by among those of other rules; empty where they need no other name."""

    def config_of(self, tiling: Decision) -> Config:
        """What a decision settles."""

    def tiling_of(self, config: Config) -> Tiling:
        """The decision that a configuration stands for here: blocks are clipped to the shape, loop counts follow from
        it. HardwareError where the machine cannot."""

    def decided(self) -> Config | None:
        """The decision's cut, None where it is the one of least cost."""

    def candidates(self) -> Iterator[Config]:
        """The configurations that the decision compares."""

    def near(self, config: Config) -> Iterator[Config]:
        """Configurations that differ in one choice; not all of them are possible."""

    def fits(self, config: Config) -> bool:
        """Whether blocks stay in the levels that they are made for, where no machine forces them to."""

    def cost(self, config: Config) -> float:
        """The predicted cost."""

    def parts(self, config: Config) -> Mapping[str, float]:
        """What the predicted cost is spent on, in any unit; empty where that is not told apart."""


class Undivided:
    """A rule whose costs are not told apart."""

    def parts(self, config: Config) -> Mapping[str, float]:
        """Nothing."""
        return {}


def integer(config: Config, name: str, least: int = 1) -> int:
    """A choice that is a whole number; DatabaseError if it is not, or below `least`."""
    value = config.choice(name)
    if type(value) is not int or value < least:
        raise DatabaseError(f"config: {name} = {value!r}; expected a whole number of at least {least}")
    return value


def integers(config: Config, name: str, count: int) -> tuple[int, ...]:
    """A choice that is `count` whole numbers of at least 1; DatabaseError if it is not."""
    value = config.choice(name)
    if not isinstance(value, tuple) or len(value) != count or min(value) < 1:
        raise DatabaseError(f"config: {name} = {value!r}; expected {count} whole numbers of at least 1")
    return value


def one_of(config: Config, name: str, accepted: tuple[Value, ...]) -> Value:
    """A choice of few values; DatabaseError if it is none of them."""
    value = config.choice(name)
    if value not in accepted or type(value) is not type(accepted[0]):
        raise DatabaseError(f"config: {name} = {value!r}; expected {', '.join(map(repr, accepted))}")
    return value


def order(config: Config, name: str = "inner_order") -> str:
    """A choice that is an order of two loops."""
    return str(one_of(config, name, ("mn", "nm")))


def fewer(shares: tuple[int, ...], most: tuple[int, ...], cores: int) -> tuple[int, ...]:
    """Shares of the cores, none larger than there is work; HardwareError where that takes more than there are."""
    wanted = 1
    for count in shares:
        wanted *= count
    if wanted > cores:
        raise HardwareError(
            f"config: shares {shares} need {wanted} cores, this CPU has {cores}; expected at most {cores}"
        )
    return tuple(min(own, limit) for own, limit in zip(shares, most, strict=True))


def refuse_registers(needed: int, there_are: int, tile: str) -> None:
    """HardwareError for a register tile that does not fit."""
    if needed > there_are:
        raise HardwareError(
            f"config: microkernel {tile} needs {needed} vector registers, this CPU has {there_are}; expected fewer"
        )


def halves_and_doubles(value: int, unit: int, most: int) -> list[int]:
    """Half and twice a block, in whole units, up to `most`."""
    found = [-(-value // 2 // unit) * unit if value > unit else value, 2 * value]
    return [size for size in dict.fromkeys(min(size, most) for size in found) if size != value and size > 0]


def changed(config: Config, **choices: Value) -> Config:
    """The configuration with some choices replaced."""
    return Config.of(config.op, config.form, {**dict(config.choices), **choices})


def because(tiling: _Decision, config: Config, why: str) -> _Decision:
    """The decision with `why` as the reason for its form, and for the configuration as a whole."""
    kept = tuple(Reason(r.field, r.value, why) if r.field == "form" else r for r in tiling.reasons)
    if all(r.field != "form" for r in kept):
        kept = (Reason("form", config.form, why), *kept)
    return replace(tiling, reasons=(*kept, Reason("config", str(config), why)))
