"""Along which axes a measured shape may be made longer and its cost with it: its proportional range upwards.

What does not grow with an axis, such as a pipeline to be filled, weighs less the longer it is: if twice the axis costs
less than twice as much by the share d, four times costs less by d / 2 more, and so on to 2 d in all. Axes add to each
other, and to how far the shape itself is from proportion to the one that it was reduced from.
"""

from __future__ import annotations

from collections.abc import Mapping


def proportional_axes(growth: Mapping[str, float], tolerance: float, deviation: float = 0.0) -> set[str]:
    """Those axes, the ones that deviate least first, along all of which at once the estimates stay within `tolerance`
    however much longer they become.

    growth: by axis, the cost with twice of it over twice the cost, less 1. deviation: the cost for each unit of size
    over that of the shape for which `growth` was measured, less 1.
    """
    found: set[str] = set()
    limit = 1.0
    for axis, share in sorted(growth.items(), key=lambda item: abs(item[1])):
        limit += 2 * share
        if limit <= 0 or abs((1 + deviation) / limit - 1) > tolerance:
            break
        found.add(axis)
    return found
