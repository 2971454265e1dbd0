"""Rates of calls by key: so many calls a minute, some of them at once (a token bucket for each key)."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable

from label_dp.errors import TooManyCalls


class Rates:
    """Of this process; each replica counts for itself. `per_minute` 0: as often as it likes."""

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.per_minute, self.clock = per_minute, clock
        self._left: dict[str, tuple[float, float]] = {}  # by key: calls left, and when that was so
        self._lock = threading.Lock()

    def take(self, key_id: str) -> None:
        """Note a call. Raises TooManyCalls; a call that is refused counts for nothing."""
        if not self.per_minute:
            return
        with self._lock:
            now = self.clock()
            left, then = self._left.get(key_id, (float(self.per_minute), now))
            left = min(float(self.per_minute), left + (now - then) * self.per_minute / 60)
            if left < 1:
                seconds = math.ceil((1 - left) * 60 / self.per_minute)
                told = f"This API key may call {self.per_minute} times a minute; try again in {seconds} s."
                raise TooManyCalls(f"{told} Nothing was done.", seconds)
            self._left[key_id] = left - 1, now
