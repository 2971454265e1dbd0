"""Waiting for something that a service works on."""

from __future__ import annotations

import time

from label_dp.client.conversation import Conversation, Json, get
from label_dp.errors import Conflict, Unavailable

ENDED = frozenset({"failed", "declined", "cancelled", "retired"})
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0


def until(state: str, noun: str, template: str, name: str, timeout: float) -> Conversation[Json]:
    """What `template` shows of `name`, once its state is `state`.

    Raises Conflict if it ended otherwise, Unavailable after `timeout` seconds.
    """
    end, pause = time.monotonic() + timeout, FIRST_PAUSE
    while True:
        found: Json = yield from get(template, name)
        if found["state"] == state:
            return found
        if found["state"] in ENDED:
            why = (found.get("problem") or {}).get("detail", "")
            raise Conflict(f"{noun} '{name}' is {found['state']}. {why}".strip())
        if time.monotonic() > end:
            waits = " It waits for approval." if found["state"] == "accepted" else ""
            raise Unavailable(
                f"{noun} '{name}' did not end within {timeout:g} seconds; its state is {found['state']}.{waits}"
            )
        yield pause
        pause = min(LONGEST_PAUSE, pause * 1.5)
