"""Waiting for a service's work."""

from __future__ import annotations

import time

from label_dp.client.conversation import Conversation, Json, get
from label_dp.errors import Conflict, Unavailable

ENDED = frozenset({"failed", "declined", "cancelled", "retired"})
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0


def until(state: str, noun: str, template: str, name: str, timeout: float) -> Conversation[Json]:
    """Poll `template` for `name` until its state is `state`, and return the reply. Raises Conflict if it ended
    otherwise, Unavailable after `timeout` seconds."""
    end, pause = time.monotonic() + timeout, FIRST_PAUSE
    while True:
        reply: Json = yield from get(template, name)
        if reply["state"] == state:
            return reply
        if reply["state"] in ENDED:
            why = (reply.get("problem") or {}).get("detail", "")
            raise Conflict(f"{noun} '{name}' is {reply['state']}. {why}".strip())
        if time.monotonic() > end:
            waits = " It waits for approval." if reply["state"] == "accepted" else ""
            raise Unavailable(
                f"{noun} '{name}' did not end within {timeout:g} seconds; its state is {reply['state']}.{waits}"
            )
        yield pause
        pause = min(LONGEST_PAUSE, pause * 1.5)
