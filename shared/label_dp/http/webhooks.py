"""Signed notices between services by the Standard Webhooks convention (standardwebhooks.com), version 1.

    webhook-id: msg_…            the same for every try of one notice: a receiver ignores what it has seen
    webhook-timestamp: 1700000000        seconds since 1970 of this try; five minutes from now at most
    webhook-signature: v1,BASE64         HMAC-SHA256 over `id.timestamp.body`; several, separated by spaces, may stand

A receiver imports `verify_webhook` and gives it the raw body, before anything parses it; any other library of the
convention does as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from standardwebhooks.webhooks import EmptyWebhookSecretError, Webhook, WebhookVerificationError

from label_dp.errors import InvalidInput, SignatureInvalid

PREFIX = "whsec_"


def sign_webhook(secret: str, notice: str, timestamp: int, body: bytes) -> dict[str, str]:
    """Return the three headers of one attempt. `secret` is `whsec_…`, `body` UTF-8. Raises InvalidInput for another
    secret."""
    signature = _webhook(secret).sign(notice, datetime.fromtimestamp(timestamp, UTC), body.decode())
    return {"webhook-id": notice, "webhook-timestamp": str(timestamp), "webhook-signature": signature}


def verify_webhook(secret: str, headers: Mapping[str, str], body: bytes) -> dict[str, Any]:
    """Verify a notice's signature and age and return it; `body` is the body exactly as received.

    Raises SignatureInvalid, also if it was signed more than five minutes away from this machine's time, and
    InvalidInput for a secret that is no `whsec_…`.
    """
    webhook = _webhook(secret)
    try:
        data = webhook.verify(body, dict(headers))
    except (WebhookVerificationError, ValueError):  # ValueError: malformed base64, UTF-8 or JSON
        raise SignatureInvalid(
            "The notice is not accepted: its headers are missing, its signature does not verify with this secret, or "
            "it was signed more than five minutes away from this machine's time."
        ) from None
    if not isinstance(data, dict):
        raise SignatureInvalid("The notice is signed, but is not a JSON object.")
    return data


def _webhook(secret: str) -> Webhook:
    try:
        return Webhook(secret if secret.startswith(PREFIX) else "")
    except (EmptyWebhookSecretError, ValueError):
        raise InvalidInput("A webhook secret looks like whsec_…; use the one shown when it was made.") from None
