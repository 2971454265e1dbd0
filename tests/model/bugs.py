"""Bugs that are planted in the model, each of one safeguard of the code, and the property that each breaks."""

from __future__ import annotations

from enum import Enum

PROPERTIES = ("paid", "agreed", "one_draw", "one_charge", "lifetime", "body")  # in the order of protocol.pml
HOLE = "-DHOLE=1"


class Bug(Enum):
    """The number in the model, what is broken, and in a sentence what the code would do."""

    FENCE = 1, "one_draw", "an attempt publishes although it lost its lease"
    LATE_CHARGE = 2, "paid", "the charge comes with the publication, after the draw"
    REDRAW = 3, "one_draw", "an attempt draws anew although the store saw a byte of the draft"
    ROWS = 4, "lifetime", "what was spent is summed over rows, so that failed work costs nothing"
    REVIVAL = 5, "one_draw", "unfinished work of a restored backup goes on"
    LATE_CANCELLATION = 6, "paid", "work is cancelled, and its charge returned, after an attempt began"
    BLIND_APPROVAL = 7, "lifetime", "an approval charges without judging the budget again"
    HASTY_PURGE = 8, "cycle", "a purge does not wait for charged work"
    WAITING_COPY = 9, "one_draw", "an old database in which drawn work still waits for its approval is opened"
    NO_BODY = 10, "body", "a charge is not held to the cap of the body of people"
    WAITING_BACKUP = 11, "paid", "a backup in which drawn work still waits is restored beside the newer store"
    ETERNAL_LEASE = 12, "cycle", "the lease of a dead worker never ends"
    REPEATED_CALL = 13, "one_charge", "a call repeated after a lost reply is charged again"
    FORGOTTEN_EVENTS = 14, "lifetime", "a restore does not go on from the newest export"
    ONE_PAIR_OF_EYES = 15, "agreed", "a request in a four-eyes population is charged at once"

    @property
    def breaks(self) -> str:
        return self.value[1]


def options(bug: Bug) -> tuple[str, ...]:
    """Macros of the model; of its properties the broken one is looked at alone."""
    only = () if bug.breaks == "cycle" else (f"-DONLY={PROPERTIES.index(bug.breaks) + 1}",)
    return (f"-DBUG={bug.value[0]}", "-DFAULTS=1", *only)
