"""Progress of long work, as functions that do it report it: called with (what is done, share between 0 and 1)."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, float], None]
