"""A webhook: who is told of what happens."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from label_dp.schemas.base import NO_OPTION, SINGULAR, Ask, Word, whole

EVENTS = (
    "release.published",
    "release.failed",
    "answer.published",
    "answer.failed",
    "budget.alert",
    "approval.requested",
)


class Webhook(Ask):
    """A URL that is told of events, by signed notices."""

    model_config = whole({"url": "https://example.org/label-dp", "events": ["release.published", "budget.alert"]})

    url: Annotated[str, Word(NO_OPTION, "it is the argument of `webhook create`")] = Field(
        max_length=2000,
        examples=["https://example.org/label-dp"],
        description="https://host/path, or http on this machine.",
    )
    population: str | None = Field(default=None, max_length=200, description="Name or id; default all populations.")
    events: Annotated[list[str] | None, Word("--event", SINGULAR)] = Field(
        default=None, max_length=20, examples=[["release.published"]], description=f"Of {', '.join(EVENTS)}; all."
    )
