"""Register tile of a matrix multiplication, m rows by z vectors, and how its rows of A are read (microkernel selection,
design page 03)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from math import floor
from typing import NamedTuple

from ...hardware import checks
from ...workload import require_positive
from ..tiling import Reason
from .cache_conflict import require_mode

# A leading dimension that is bad (or not) for any number of rows, or a test for a given number of rows.
BadForRows = bool | Callable[[int], bool]


class Limit(NamedTuple):
    """One limit applied to one (m, z): its name, whether it holds, and the figures."""

    name: str  # "registers", "latency", "ratio", "conflicts" or "balance"
    passed: bool
    figures: str


@dataclass(frozen=True, kw_only=True)
class Microkernel:
    """A register tile: m rows by z vectors of `lanes` output elements.

    `form` is "normal" (a good leading dimension), "nocopy" (a bad one, but m rows fit the ways) or "inline" (rows
    0..keep of A are read in place and the `copied` rows keep..m from a small contiguous buffer that the kernel fills as
    it runs). Except for "inline", keep is m and copied is 0. `ratio` is the multiply-adds per load and `in_flight` the
    independent multiply-adds in one step of K. `registers_used` counts vector registers, `instructions_per_fma` the
    multiply-adds, loads and broadcasts of a step per multiply-add. `limits` has the figures of each limit, `reasons`
    those of the choice.
    """

    m: int
    z: int
    lanes: int
    form: str
    registers_used: int
    ratio: float
    in_flight: int
    instructions_per_fma: float
    keep: int
    copied: int
    limits: tuple[Limit, ...]
    reasons: tuple[Reason, ...] = ()

    @property
    def columns(self) -> int:
        """Output columns in elements (nr in BLAS terms)."""
        return self.z * self.lanes

    @property
    def acceptable(self) -> bool:
        """Whether all limits hold, except for conflicts, which the inline copy resolves."""
        return all(limit.passed for limit in self.limits if limit.name != "conflicts")

    def limit(self, name: str) -> Limit:
        """Return the limit of that name. Raises KeyError if there is none."""
        for limit in self.limits:
            if limit.name == name:
                return limit
        raise KeyError(name)

    def explain(self) -> str:
        """Return the choice, each limit with its figures, and the reasons as several lines of text."""
        verdict = "accepted" if self.acceptable else "rejected"
        lines = [
            f"(m, z) = ({self.m}, {self.z}): {verdict}, kernel variant {self.form}, {self.keep} rows of A read in place"
        ]
        lines[0] += f", {self.copied} copied inline" if self.copied else ""
        lines += [f"  {'holds' if passed else 'fails'}  {name}: {figures}" for name, passed, figures in self.limits]
        lines += [f"  {field} = {value}: {why}" for field, value, why in self.reasons]
        return "\n".join(lines)


@dataclass(frozen=True, kw_only=True)
class _Core:
    """Validated arguments of `microkernel`."""

    registers: int
    lanes: int
    fma_latency: int
    ways: int
    n_per_core: int | None
    priority_ratio: float
    broadcast_from_memory: bool

    def __post_init__(self) -> None:
        least = 2 if self.broadcast_from_memory else 3  # needed by the (1, 1) kernel
        for name, bound in (("registers", least), ("lanes", 1), ("fma_latency", 1), ("ways", 1)):
            checks.whole("microkernel", name, getattr(self, name), bound)
        checks.number("microkernel", "priority_ratio", self.priority_ratio, most=1)
        if self.n_per_core is not None:
            require_positive("microkernel", "n_per_core", self.n_per_core)

    @property
    def spare(self) -> int:
        """Registers for neither B nor C: one for A, unless its scalars are memory operands."""
        return 0 if self.broadcast_from_memory else 1

    def tallest(self, z: int) -> int:
        """Return the largest m with z vectors of B."""
        return tallest(self.registers, z, self.spare)


def microkernel(
    *,
    registers: int,
    lanes: int,
    fma_latency: int,
    ways: int,
    bad_leading_dimension: BadForRows,
    n_per_core: int | None = None,
    priority_ratio: float = 0.8,
    broadcast_from_memory: bool = False,
    mode: str = "best",
) -> tuple[Microkernel, ...]:
    """Return the (m, z) choices for a core, best first (microkernel selection under cache-conflict limits, design page
    03). Choices that violate a limit come last and name it; the result is never empty.

    registers: number of vector registers of `lanes` output elements. fma_latency: instructions in flight (latency in
    cycles times units). ways: associativity of L1. n_per_core: columns per core in elements, None if unknown.

    bad_leading_dimension: whether A's leading dimension is bad; a bool, or a function from m to bool, as one leading
    dimension may be bad for 14 rows and good for 8. priority_ratio: share of the ways that rows read in place may fill.

    broadcast_from_memory: whether the compiler folds the broadcast of A into the multiply-add (the {1to16} operand of
    AVX-512), so that A takes no register: (m + 1)*z <= R instead of (m + 1)*z + 1 <= R. The default is the published
    limit, which a loop with m separate broadcasts needs (as LLVM generates it).

    mode: "seed" gives the published short list, "best" every pair that the registers can hold.

    Raises HardwareError for impossible registers, lanes, latency, ways or ratio, WorkloadError for an impossible
    n_per_core, and TilingError for another mode.
    """
    require_mode("microkernel", mode)
    core = _Core(
        registers=registers,
        lanes=lanes,
        fma_latency=fma_latency,
        ways=ways,
        n_per_core=n_per_core,
        priority_ratio=priority_ratio,
        broadcast_from_memory=broadcast_from_memory,
    )
    heights = range(1, core.tallest(1) + 1)
    if callable(bad_leading_dimension):
        bad = frozenset(m for m in heights if bad_leading_dimension(m))
    else:
        bad = frozenset(heights if bad_leading_dimension else ())
    return tuple(_seed_choices(core, bad) if mode == "seed" else _best_choices(core, bad))


def registers_of(m: int, z: int, spare: int = 1, rows: int = 1) -> int:
    """Return the vector registers of a kernel with m rows by z vectors: the sums, z vectors of B, and `spare` for A.

    A matrix instruction takes `rows` rows at once: their groups share a register of A, and a vector of B takes `rows`
    registers. The operand that takes fewer registers is held in them, the other passes through the spare one.
    """
    if rows == 1:
        return (m + 1) * z + spare
    blocks = -(-m // rows)
    return blocks * rows * z + min(rows * z, blocks) + spare


def tallest(registers: int, z: int, spare: int = 1, rows: int = 1) -> int:
    """Return the largest m, a multiple of `rows`, that the registers hold with z vectors of B; 0 or less if there is
    none."""
    if rows == 1:
        return (registers - spare) // z - 1
    most = (registers - spare) // z // rows * rows
    return next((m for m in range(most, 0, -rows) if registers_of(m, z, spare, rows) <= registers), 0)


def rows_in_place(ways: int, priority_ratio: float) -> int:
    """Return how many rows of A that share one L1 set may be read in place, leaving room in the set for B, C and the
    copied rows. `priority_ratio` is their share of the ways; 1 uses all of them. Decimals are exact: 0.58 * 50 is
    29."""
    return floor(Fraction(str(priority_ratio)) * ways)


def _best_choices(core: _Core, bad: frozenset[int]) -> list[Microkernel]:
    pairs = ((m, z) for z in range(1, core.registers) for m in range(1, core.tallest(z) + 1))
    return sorted((_measure(core, bad, m, z) for m, z in pairs), key=_rank)


def _seed_choices(core: _Core, bad: frozenset[int]) -> list[Microkernel]:
    # The publication gives three choices for R = 32, latency 13, W = 8, and states only in part how they follow. These
    # rules give exactly those three:
    # - z is a power of two with the largest m that limit 1 leaves: (30, 1), (14, 2), (6, 4), (2, 8).
    # - Limits 2 and 3 hold, the latter as a ratio of at least 1: below it a K step loads more than it computes. That
    #   rejects (30, 1), and with it the published (28, 1).
    # - The next choice is needed only if z was too wide, so a choice with a lower ratio and no smaller z is never
    #   reached: (2, 8), ratio 1.6, after (6, 4).
    # - Last, an m <= W variant of the choices that are taller than the ways: their rows in the fewest equal runs of at
    #   most W. 14 rows and 8 ways give two runs of 7, not one of 8 and one of 6: the publication halves the pipeline,
    #   the division among cores made for 14 rows stays valid, and 7 * 2 = 14 still exceeds the latency of 13.
    # The list does not depend on the leading dimension; the kernel variant of each choice does. If no choice is
    # acceptable (one vector of columns, or too few registers for the latency), the remaining powers of two follow.
    powers = [1 << i for i in range(core.registers.bit_length()) if core.tallest(1 << i) >= 1]
    widest_m = sorted((_measure(core, bad, core.tallest(z), z) for z in powers), key=lambda c: (-c.ratio, c.z))
    choices: list[Microkernel] = []
    for choice in filter(_computes_enough, widest_m):
        if not choices or choice.z < choices[-1].z:
            choices.append(choice)
    for tall in [choice for choice in choices if choice.m > core.ways]:
        runs = -(-tall.m // core.ways)
        choices += filter(_computes_enough, [_measure(core, bad, -(-tall.m // runs), tall.z)])
    if not any(choice.acceptable for choice in choices):
        choices += sorted((choice for choice in widest_m if choice not in choices), key=_rank)
    return sorted(choices, key=_failures)


def _computes_enough(choice: Microkernel) -> bool:
    return choice.limit("latency").passed and choice.limit("ratio").passed


def _failures(choice: Microkernel) -> tuple[bool, ...]:
    # Worst first: unused columns, more loads than multiply-adds, dependent multiply-adds.
    return tuple(not choice.limit(name).passed for name in ("balance", "ratio", "latency"))


def _rank(choice: Microkernel) -> tuple[object, ...]:
    # Ranking that needs no shape. The ratio comes first, as published; at equal ratio, more multiply-adds in flight
    # cover latency better. That leaves (m, z) and (z, m): fewer rows to copy, then fewer registers. Instructions per
    # multiply-add need no separate criterion: they are 1 + 1/ratio, or, with A broadcast from memory, 1 + 1/m, which
    # favours the taller of such a pair, and that one takes fewer registers.
    return (_failures(choice), -choice.ratio, -choice.in_flight, choice.copied, choice.registers_used)


def _measure(core: _Core, bad: frozenset[int], m: int, z: int) -> Microkernel:
    """Evaluate the five limits for one (m, z) that fits the registers."""
    in_flight = m * z
    ratio = in_flight / (m + z)
    used = registers_of(m, z, core.spare)
    # Limit 5: of a column with more rows than ways, only some rows are read in place.
    conflict = m in bad and m > core.ways
    keep = rows_in_place(core.ways, core.priority_ratio) if conflict else m
    if conflict:
        form, rows = (
            "inline",
            f"more than {core.ways} of {m} rows share a set of {core.ways} ways: rows {keep}..{m} are copied",
        )
    elif bad:
        form, rows = "nocopy", f"at most {core.ways} of {m} rows share a set of {core.ways} ways"
    else:
        form, rows = "normal", "for any m, at most as many rows share a set as it has ways"
    if core.n_per_core is None:
        balanced, columns = True, "columns per core not given"
    else:
        # A single vector is always acceptable: there is nothing narrower.
        balanced = z == 1 or core.n_per_core >= z * core.lanes
        columns = f"{core.n_per_core} columns per core are {core.n_per_core / core.lanes:.4g} vectors, z takes {z}"
    spare = " + 1" if core.spare else ""
    return Microkernel(
        m=m,
        z=z,
        lanes=core.lanes,
        form=form,
        registers_used=used,
        ratio=ratio,
        in_flight=in_flight,
        instructions_per_fma=(in_flight + z + (m if core.spare else 0)) / in_flight,
        keep=keep,
        copied=m - keep,
        limits=(
            Limit("registers", used <= core.registers, f"({m} + 1)*{z}{spare} = {used} of {core.registers}"),
            Limit(
                "latency", in_flight > core.fma_latency, f"{m}*{z} = {in_flight} in flight, latency {core.fma_latency}"
            ),
            Limit(
                "ratio",
                ratio >= 1,
                f"{in_flight}/({m} + {z}) = {ratio:.2f} multiply-adds per load; at least 1 is required",
            ),
            Limit("conflicts", not conflict, rows),
            Limit("balance", balanced, columns),
        ),
    )
