"""A receiver of webhooks whose clock stands still: the library that verifies notices asks the machine's."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, tzinfo
from typing import Any, Self
from unittest.mock import patch

from label_dp.http.webhooks import verify_webhook


def verify_at(seconds: float, secret: str, headers: Mapping[str, str], body: bytes) -> dict[str, Any]:
    """As `verify_webhook`, at `seconds` since 1970."""

    class Standing(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Self:
            return cls.fromtimestamp(seconds, tz)

    with patch("standardwebhooks.webhooks.datetime", Standing):
        return verify_webhook(secret, headers, body)
