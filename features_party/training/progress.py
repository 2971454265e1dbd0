"""Progress of a training: by parts, never backwards, with the approximate time left."""

from __future__ import annotations

import time
from collections.abc import Callable

from label_dp.progress import Progress

TELLS_AFTER = 2.0  # seconds
SMALLEST_SHARE = 0.04  # smallest finished share from which the time left is estimated


def part(progress: Progress, start: float, width: float) -> Progress:
    """Scale progress to a part that begins at `start`."""
    return lambda what, share: progress(what, start + width * share)


def rising(progress: Progress) -> Progress:
    """Keep progress from going back, whatever a part reports."""
    reached = 0.0

    def told(what: str, share: float) -> None:
        nonlocal reached
        reached = max(reached, share)
        progress(what, reached)

    return told


def foretold(progress: Progress, now: Callable[[], float] = time.monotonic) -> Progress:
    """Add the approximate time left, once enough is done to estimate it."""
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
