"""Approvals, cancellations and draws of one release at once, from two processes' services: one charge, one outcome."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from label_dp.audit import events
from label_dp.domain import Domain
from label_dp.errors import LabelDPError
from label_dp.privacy import Epsilon
from tests.support.asked import release_wish
from tests.support.asking import population as parse_population
from tests.support.labels import LabelsParty, label_table

ROUNDS = 12
OUTCOMES = {
    "published": [events.REQUESTED, events.APPROVED, events.CHARGED, events.PUBLISHED],
    "failed": [events.REQUESTED, events.APPROVED, events.CHARGED, events.CANCELLED, events.RETURNED],
}


def at_once(calls: list[tuple[float, Callable[[], Any]]]) -> None:
    """Each call after its pause in seconds; typed refusals are what the losers get."""
    gate = threading.Barrier(len(calls))
    bugs: list[Exception] = []

    def run(pause: float, call: Callable[[], Any]) -> None:
        gate.wait()
        time.sleep(pause)
        try:
            call()
        except LabelDPError:
            pass
        except Exception as error:
            bugs.append(error)

    threads = [threading.Thread(target=run, args=call) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert bugs == []


def test_a_release_is_charged_once_and_published_or_returned_once(tmp_path: Path, database_url: str) -> None:
    with (
        LabelsParty(tmp_path, database_url=database_url, worker=False) as one,
        LabelsParty(tmp_path, database_url=database_url, worker=False) as two,
    ):
        s, t = one.services, two.services
        shop = parse_population("shop", "revenue", Domain.parse("0:10"), "100", four_eyes=True)
        made = s.database.write("population", lambda c: s.populations.create(c, shop, "test"))
        batch = s.database.write("batch", lambda c: s.batches.create(c, made, "public")).id
        s.intake.add_labels(batch, label_table(50), owner=True)
        s.sealer.seal(batch, "test")
        published = 0
        for number in range(ROUNDS):
            asked = release_wish(Epsilon.parse("1"), additional_release=True)
            release = str(s.work.ask(s.message, batch, asked, "command line: zero")[1]["id"])
            later = 0.004 * number
            at_once(
                [
                    (0.0, lambda r=release: s.decisions.approve(r, "command line: one")),
                    (0.0, lambda r=release: t.decisions.approve(r, "command line: two")),
                    (0.02, lambda r=release: s.pipeline.run(r)),
                    (0.02, lambda r=release: t.pipeline.run(r)),
                    (later, lambda r=release: s.decisions.cancel(r, "command line")),
                    (later, lambda r=release: t.decisions.cancel(r, "command line")),
                ]
            )
            s.pipeline.run(release)  # where both workers came before the charge
            state = one.state(release).state
            kinds = [e.kind for e in s.database.read("events", lambda c, r=release: s.audit.events(c, work=r))]
            if state == "failed" and events.CHARGED not in kinds:
                assert kinds == [events.REQUESTED, events.CANCELLED]
            else:
                assert kinds == OUTCOMES[state]
            published += state == "published"
        assert one.spent(batch) == str(published)
