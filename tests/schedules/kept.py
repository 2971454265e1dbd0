"""Schedules that failed once, shrunk: of the product, and of each planted bug with what it breaks."""

from __future__ import annotations

from tests.schedules.bugs import Bug

FOUND = [
    # a full disk on the way of an object from the store was an internal error, not "try again"
    "store 0 0 0; window 0 1 0; ingest 0 0 0; ingest 1 0 1 full 1",
]
# the shortest schedule that finds it, and what fails
PLANTED = {
    Bug.NO_FENCE: (
        "store 0 0 0; window 2 5 2; ingest 2 3 11; seal 2 2 8; release 2 2 0; work 1 1 2 pause 1; "
        "wait 0 2 0; work 2 0 0",
        "UNIQUE constraint failed",
    ),
    Bug.LATE_CHARGE: (
        "store 0 1 0; window 1 1 1; ingest 1 4 11; seal 0 2 1; release 2 2 7",
        "work that was asked for is not in the chain",
    ),
    Bug.REDRAW: (
        "store 0 0 0; window 0 4 3; ingest 0 3 5; seal 0 1 8; release 2 5 4; approve 0 5 2; "
        "work 1 2 10 late 4; day 0 0 0; work 0 4 6",
        "the store saw two draws of one charge",
    ),
    Bug.REPEATED_CALL: (
        "store 0 0 0; window 1 3 9; day 0 0 0; ingest 1 5 5 reply 1",
        "a sealed batch has other rows than its client sent",
    ),
    Bug.ROWS: (
        "store 0 1 0; window 1 1 1; ingest 1 4 11; seal 0 2 1; release 2 2 7; window 2 0 1; day 0 0 0; "
        "release 1 2 9; ingest 2 5 5; release 2 2 3; work 0 5 3; approve 1 1 11; release 2 0 1",
        "the cap of the body of people is exceeded",
    ),
    Bug.NO_BODY: (
        "store 0 1 0; window 1 1 1; ingest 1 4 11; seal 0 2 1; release 2 2 7; window 2 0 1; day 0 0 0; "
        "release 1 2 9; ingest 2 5 5; release 2 2 3; work 0 5 3; approve 1 1 11; release 2 0 1",
        "the cap of the body of people is exceeded",
    ),
    Bug.ETERNAL_LEASE: (
        "store 0 1 0; window 2 0 1; ingest 0 0 9; day 0 0 0; work 2 2 6; approve 2 0 11; work 1 0 3 crash 4",
        "charged work does not end",
    ),
    Bug.EARLY_PUBLICATION: (
        "folder 0 0 0; window 0 1 0; ingest 0 0 0; seal 0 0 0; release 0 0 0; work 0 0 0 pause 3",
        "published before its files are durable",
    ),
    Bug.HASTY_PURGE: (
        "folder 0 0 0; window 0 1 0; ingest 0 0 0; seal 0 0 0; release 0 0 0; purge 0 0 0",
        "purged before what was charged is published",
    ),
    Bug.ONE_PAIR_OF_EYES: (
        "folder 0 1 0; window 0 2 7; ingest 1 4 1; seal 0 5 3; release 0 3 2",
        "charged at once where a second person must approve",
    ),
    Bug.OLD_COPY: (
        "store 0 0 0; window 2 3 6; ingest 0 2 3; seal 1 2 4; release 2 5 8; copy 2 2 0; work 1 5 8; old 1 1 0",
        "an old database would draw again",
    ),
}
