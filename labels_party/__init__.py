"""The labels party: takes labels in, charges the ledger, emits one signed, privatized message.

import labels_party

labels_party.check(sales, id="click_id", label="revenue", domain="0:400").says  # not private: for you alone
labels_party.plan(domain="0:400", n=200_000, epsilon=[0.5, 1])["recommendations"]
message = labels_party.privatize(sales, id="click_id", label="revenue", domain="0:400", epsilon=1, budget=2)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from labels_party.files.frames import PublishedMessage as PublishedMessage
    from labels_party.files.frames import check as check
    from labels_party.files.frames import plan as plan
    from labels_party.files.frames import privatize as privatize

__all__ = ["PublishedMessage", "check", "plan", "privatize"]


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    if name in __all__:
        # imported at first use: a reader of one module does not load the engine
        return getattr(import_module("labels_party.files.frames"), name)
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
