"""Moments: the clock, how a second is written, and ends of validity."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta

from label_dp.errors import InvalidInput

TIME = "%Y-%m-%dT%H:%M:%SZ"
DAY = 10  # characters of a day in a time
Clock = Callable[[], datetime]


def utc_now() -> datetime:
    """Return the present time in UTC."""
    return datetime.now(UTC)


def expiry(text: str, now: datetime) -> str:
    """Compute the end of validity from a number of days, or from the last day YYYY-MM-DD (UTC). Raises InvalidInput."""
    try:
        if text.isascii() and text.isdigit():
            end = now + timedelta(days=int(text))
        else:
            end = datetime.combine(date.fromisoformat(text) + timedelta(days=1), time(), tzinfo=UTC)
    except (ValueError, OverflowError):
        raise InvalidInput(f"'{text[:40]}' is neither a number of days nor a date such as 2026-12-31.") from None
    if end <= now:
        raise InvalidInput("A key that has expired already cannot be made; choose a later day.")
    return end.strftime(TIME)


def last_day(text: str, now: datetime) -> str:
    """Return the last day before `expiry`. Raises InvalidInput."""
    end = datetime.fromisoformat(expiry(text, now)) - timedelta(seconds=1)
    return end.date().isoformat()
