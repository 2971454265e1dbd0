"""Signed notices between services by the Standard Webhooks convention (standardwebhooks.com), version 1.

    webhook-id: msg_…            the same for every try of one notice: a receiver ignores what it has seen
    webhook-timestamp: 1700000000        seconds since 1970 of this try
    webhook-signature: v1,BASE64         HMAC-SHA256 over `id.timestamp.body`; several, separated by spaces, may stand

A receiver imports `verify_webhook` and gives it the raw body, before anything parses it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import time
from collections.abc import Mapping
from typing import Any

from shared.errors import InvalidInput, SignatureInvalid

PREFIX = "whsec_"
TOLERANCE_SECONDS = 300.0


def sign_webhook(secret: str, notice: str, timestamp: int, body: bytes) -> dict[str, str]:
    """The three headers of one try. `secret` is `whsec_…`. Raises InvalidInput for one that is not."""
    signature = base64.b64encode(_mac(secret, notice, str(timestamp), body)).decode("ascii")
    return {"webhook-id": notice, "webhook-timestamp": str(timestamp), "webhook-signature": f"v1,{signature}"}


def verify_webhook(
    secret: str,
    headers: Mapping[str, str],
    body: bytes,
    *,
    now: float | None = None,
    tolerance: float = TOLERANCE_SECONDS,
) -> dict[str, Any]:
    """The notice, once its signature and age were checked; `body` is the body exactly as it came.

    `now` is in seconds since 1970 (default: this machine's clock); a notice more than `tolerance` seconds older or
    newer is refused. Raises SignatureInvalid, InvalidInput (not a `whsec_…` secret).
    """
    given = {name.lower(): value for name, value in headers.items()}
    notice, timestamp, signatures = (given.get(f"webhook-{part}", "") for part in ("id", "timestamp", "signature"))
    if not notice or not timestamp.isascii() or not timestamp.isdigit() or len(timestamp) > 12:
        raise SignatureInvalid("The notice lacks its webhook-id or webhook-timestamp header; it is not accepted.")
    if abs((time.time() if now is None else now) - int(timestamp)) > tolerance:
        raise SignatureInvalid(
            f"The notice was signed more than {tolerance:g} seconds away from this machine's time; it is not accepted."
        )
    expected = _mac(secret, notice, timestamp, body)
    valid = False
    for entry in signatures.split(" "):
        version, _, value = entry.partition(",")
        try:
            found = base64.b64decode(value, validate=True) if version == "v1" else b""
        except (binascii.Error, ValueError):
            continue
        valid |= hmac.compare_digest(found, expected)
    if not valid:
        raise SignatureInvalid("The notice's signature does not verify with this secret; it is not accepted.")
    try:
        data = json.loads(body)
    except ValueError:
        data = None
    if not isinstance(data, dict):
        raise SignatureInvalid("The notice is signed, but is not a JSON object.")
    return data


def _mac(secret: str, notice: str, timestamp: str, body: bytes) -> bytes:
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True) if secret.startswith(PREFIX) else b""
    except (binascii.Error, ValueError):
        key = b""
    if not key:
        raise InvalidInput("A webhook secret looks like whsec_…; use the one shown when the webhook was made.")
    return hmac.new(key, f"{notice}.{timestamp}.".encode() + body, hashlib.sha256).digest()
