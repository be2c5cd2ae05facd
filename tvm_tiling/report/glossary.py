"""Definitions of the terms used in reports: shown as tooltips, and listed at the end of a page."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping

from .markup import Html, join, tag

TERMS: Mapping[str, str] = {
    "algorithm": "The kind of kernel that computes a convolution: direct, gemm, winograd, wfold, stride_fold, "
    "depthwise, planes, grouped. For a matrix multiplication, how A is read: in place (normal, nocopy), copied in part "
    "or as a whole (inline, pack), or once, together with B (stream).",
    "bound by": "The busiest resource, which determines the lower bound.",
    "calls": "How often the operator's kernel is called in one run.",
    "capacity": "Bytes that the buffer holds; 2 x where it has two halves, one being filled while the other is used.",
    "cycles": "Clock cycles of the simulated machine.",
    "disturbed": "Share of the samples during which other processes kept a thread off its core.",
    "energy": "By the energies per operation and per byte in the machine description; not measured.",
    "geometric mean": "Of the speedups over the fastest peer of each case.",
    "idle": "Cycles after the engine's last instruction.",
    "latency, median": "Half of the runs are faster than this.",
    "latency, p90": "90 percent of the runs are faster than this.",
    "measured": "Median time of all calls of the operator in one run, on this machine.",
    "of peak": "Executed multiply-adds per second over the measured peak rate of their type.",
    "of roofline": "The lower bound over the time taken: 100 percent if nothing but the busiest resource took time.",
    "of the peak": "Executed multiply-adds per second over the measured peak rate of their type.",
    "of the roofline": "The lower bound over the cycles taken: 100 percent if only the busiest resource took time.",
    "op/byte": "Executed operations per byte, if each operand were moved exactly once; low values are memory-bound.",
    "other operators": "What is neither a convolution nor a matrix multiplication: pooling, softmax, copies.",
    "overlap": "Share of the busy cycles in which two or more engines work at the same time.",
    "baseline": "What the subject is compared with: another build, other options or another run.",
    "difference": "Time of the subject minus that of the baseline: below zero, the subject is faster.",
    "packed weights": "Weights in the order in which the kernels read them, written when the model is compiled.",
    "peak usage": "Bytes up to the last one that the program touches.",
    "port busy": "Cycles in which a port of the memory transfers data.",
    "predicted": "Computed from the machine description and the tiling before anything ran; not measured.",
    "ratio": "Above 1: measured is longer than predicted, or ours is faster than the peer.",
    "saved of the whole": "The difference as a share of the total time of the baseline's operators.",
    "per cycle": "Instructions per cycle, of all threads together.",
    "threads busy": "Share of all threads' time that they worked while the operator ran: 100 percent if none waited.",
    "sizes": "Height × width × input channels → output channels, kernel / stride; or m × k × n.",
    "speed": "Operations as the model defines them (a multiply-add is two) per second.",
    "speedup": "The other side's time over ours: above 1, ours is faster.",
    "subject": "What is compared, with the baseline.",
    "utilisation": "Cycles that the multipliers need at their peak, over the cycles taken.",
    "waits: data": "Stall cycles until another engine's result arrives.",
    "waits: dispatch": "Cycles in which the queue is empty because instructions have not been issued yet.",
    "waits: latency": "Stall cycles until a result of the same engine leaves its pipeline.",
    "waits: port": "Stall cycles while another transfer uses the memory's port.",
    "waits: space": "Stall cycles until a buffer that is to be overwritten has been read.",
    "waits: token": "Stall cycles for a synchronisation token on its way.",
    "work": "Operations of all calls in one run, a multiply-add being two.",
}


def explained(name: str) -> Html | str:
    """Return the name with the definition of the term that it starts with as a tooltip; the name alone if there is
    none. Text after a comma or in brackets, such as a unit, is not part of a term."""
    term = next((each for each in (name, name.rpartition(", ")[0], name.partition(" (")[0]) if each in TERMS), None)
    return name if term is None else join([tag("abbr", term, title=TERMS[term]), name.removeprefix(term)])


def glossary(body: str) -> Html | None:
    """Return a list of the terms that occur in a page's body; None if there are none."""
    used = sorted(set(_TERM.findall(body)))
    pairs = (part for term in used for part in (tag("dt", Html(term)), tag("dd", TERMS[html.unescape(term)])))
    return tag("dl", *pairs, class_="glossary") if used else None


_TERM = re.compile("<abbr [^>]*>([^<]+)</abbr>")
