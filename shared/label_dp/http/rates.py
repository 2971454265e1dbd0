"""Rate limit per API key: calls per minute, with bursts (a token bucket for each key)."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable

from label_dp.errors import TooManyCalls


class Rates:
    """Token buckets of this process; replicas count separately. `per_minute` 0: no limit."""

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.per_minute, self.clock = per_minute, clock
        self._left: dict[str, tuple[float, float]] = {}  # by key: (calls left, at what time)
        self._lock = threading.Lock()

    def take(self, key_id: str) -> None:
        """Count a call. Raises TooManyCalls; a refused call is not counted."""
        if not self.per_minute:
            return
        with self._lock:
            now = self.clock()
            tokens, then = self._left.get(key_id, (float(self.per_minute), now))
            tokens = min(float(self.per_minute), tokens + (now - then) * self.per_minute / 60)
            if tokens < 1:
                seconds = math.ceil((1 - tokens) * 60 / self.per_minute)
                sentence = f"This API key may call {self.per_minute} times a minute; try again in {seconds} s."
                raise TooManyCalls(f"{sentence} Nothing was done.", seconds)
            self._left[key_id] = tokens - 1, now
