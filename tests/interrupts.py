"""Ctrl-C wherever Python may raise it: it looks for signals when a function is entered and after each call."""

from __future__ import annotations

import _thread
import sys
import time
from collections.abc import Callable
from types import FrameType


def interrupted_at_each_call(act: Callable[[], object], check: Callable[[], object] = lambda: None) -> int:
    """Call `act` with KeyboardInterrupt in its first entry or return of a call, then in its second, and so on until it
    ends by itself. `check` is called after each. Returns how often it was interrupted."""
    number = 0
    while _is_interrupted(act, number):
        check()
        number += 1
    return number


def _is_interrupted(act: Callable[[], object], at: int) -> bool:
    left = at

    def look(frame: FrameType, event: str, _: object) -> None:
        nonlocal left
        if event in ("call", "c_return"):
            left -= 1
            if left < 0:
                sys.setprofile(None)
                raise KeyboardInterrupt

    before = sys.getprofile()
    try:
        sys.setprofile(look)
        act()
        sys.setprofile(before)  # itself a call, with no return that is seen
    except KeyboardInterrupt:
        return True
    finally:
        sys.setprofile(before)
    return False


def ends_with(threads: int) -> bool:
    """Whether this many threads are left; they end shortly after the last thing that they do in Python."""
    until = time.monotonic() + 10
    while _thread._count() > threads and time.monotonic() < until:
        time.sleep(0.001)
    return _thread._count() == threads
