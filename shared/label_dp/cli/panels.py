"""Panels of a help; a command without one is an everyday command, of which there are at most ten."""

from __future__ import annotations

from dataclasses import dataclass

OFFICER, AROUND, ADMINISTRATION = "Officer", "Around the message", "Administration"
EXPERT_PANEL = "Expert options"


@dataclass(frozen=True)
class Panel:
    """Panel of a schema's everyday options in a command, and the members that the command sets itself."""

    title: str | None = None
    without: tuple[str, ...] = ()
