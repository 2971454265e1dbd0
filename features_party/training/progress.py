"""Progress of a training: parts of it, never backwards, and about how long the rest takes."""

from __future__ import annotations

import time
from collections.abc import Callable

from label_dp.progress import Progress

TELLS_AFTER = 2.0  # seconds
SMALLEST_SHARE = 0.04  # done, before it tells anything of the rest


def part(progress: Progress, start: float, width: float) -> Progress:
    """Progress of a part, from `start` on."""
    return lambda what, share: progress(what, start + width * share)


def rising(progress: Progress) -> Progress:
    """Progress that never goes back, whatever a part of the work says of itself."""
    reached = 0.0

    def told(what: str, share: float) -> None:
        nonlocal reached
        reached = max(reached, share)
        progress(what, reached)

    return told


def foretold(progress: Progress, now: Callable[[], float] = time.monotonic) -> Progress:
    """Progress that says about how long the rest takes, once enough is done to tell."""
    begun = now()

    def told(what: str, share: float) -> None:
        spent = now() - begun
        if spent >= TELLS_AFTER and SMALLEST_SHARE <= share < 1.0 - SMALLEST_SHARE:
            what = f"{what}, about {_about(spent * (1.0 - share) / share)} left"
        progress(what, share)

    return told


def _about(seconds: float) -> str:
    if seconds < 90.0:
        return f"{max(5 * round(seconds / 5.0), 5)} s"
    return f"{round(seconds / 60.0)} min"
