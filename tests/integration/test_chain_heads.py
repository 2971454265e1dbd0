"""Heads of both chains travel with documents and receipts: two receivers who compare a day notice two histories."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from label_dp.audit.compare import ComparedStore, compare_parties
from label_dp.audit.events import ACCEPTED, CHARGED, PUBLISHED, Event
from label_dp.audit.heads import day_head
from label_dp.audit.receipts import seen_heads
from label_dp.documents.bundle import FOLDER_ENVELOPE
from label_dp.documents.manifest import Manifest
from tests.support.commands import command
from tests.support.receipts import Pair, Receiver, pair


@pytest.fixture
def both(tmp_path: Path) -> Iterator[Pair]:
    with pair(tmp_path) as started:
        yield started


def first_of(events: list[Event], day: str) -> str:
    return next(event.digest for event in events if event.time == day)


def test_each_party_learns_the_other_ones_heads_day_by_day(both: Pair) -> None:
    days = []
    for _ in range(3):
        both.pull()
        both.pull_answer()
        days.append(both.receiver.events()[-1].time)
        both.clock.move(days=1)
    labels, features = both.labels_events(), both.receiver.events()
    key = both.labels.services.key.public.id
    assert seen_heads(features) == [{"of": key, "day": d, "digest": first_of(labels, d)} for d in days]
    # a receipt states the chain before its own event, so the first one of a day states the day before
    theirs = [{"of": "features-party", "day": d, "digest": first_of(features, d)} for d in days]
    assert seen_heads(labels) == theirs
    assert all(found["agrees"] for found in both.compare_both())


def test_a_message_states_the_first_event_of_the_newest_day(both: Pair) -> None:
    both.clock.move(days=1)
    release = both.release()
    both.pull(release)
    (folder,) = (both.receiver.home / "messages").glob(f"{release}-*")
    manifest, _ = Manifest.opened((folder / FOLDER_ENVELOPE).read_bytes(), both.labels.services.key.public)
    assert manifest.chain_head is not None
    assert manifest.chain_head.day == manifest.created
    assert manifest.chain_head.digest == first_of(both.labels_events(), manifest.created)


def test_two_receivers_of_two_histories_see_different_heads(both: Pair) -> None:
    both.pull()
    copy = both.keep_copy(both.labels.home)
    other = Receiver(both.folder / "other", both.labels, both.clock)
    both.clock.move(days=1)
    release = both.release()
    both.pull(release)
    both.restore(both.labels.home, copy)
    other.pull(both.url, both.api_key, both.release())
    ours, theirs = ({h["day"]: h["digest"] for h in seen_heads(r.events())} for r in (both.receiver, other))
    day = both.receiver.events()[-1].time
    assert ours[day] != theirs[day]
    other.services.close()


def changed(events: list[Event], kind: str, **details: Any) -> list[Event]:
    return [replace(e, details=dict(e.details) | details) if e.kind == kind else e for e in events]


def findings(both: Pair, labels: list[Event], features: list[Event]) -> list[str]:
    key, own = both.labels.services.key.public, both.receiver.key.public
    found = compare_parties(
        ComparedStore(labels, key, "the labels party"), ComparedStore(features, own, "the receiver")
    )
    return [f"{one['kind']}: {one['sentence']}" for one in found.findings]


@pytest.mark.parametrize("head", [None, {"day": "2026-11-20", "digest": "0" * 64}, {"day": 7, "digest": ""}, "text"])
def test_another_head_than_the_chains_is_a_fork(both: Pair, head: Any) -> None:
    both.pull()
    labels, features = both.labels_events(), both.receiver.events()
    assert findings(both, labels, features) == []
    (said,) = findings(both, labels, changed(features, ACCEPTED, chain_head=head))
    assert said.startswith("fork: Release")
    assert "another head of the labels party's chain" in said


def test_a_restored_publication_names_the_head_of_the_lost_history(both: Pair) -> None:
    """A labels party with two histories has to say so in a chain that it shows: what it calls restored is compared."""
    both.pull()
    lost = {"day": "2026-11-20", "digest": "0" * 64}
    labels, features = both.labels_events(), both.receiver.events()
    theirs = changed(features, ACCEPTED, chain_head=lost)
    assert findings(both, changed(labels, PUBLISHED, restored=lost), theirs) == []
    for ours, other in (
        (changed(labels, PUBLISHED, restored=lost), features),
        (changed(labels, PUBLISHED, restored=True), theirs),
        (changed(labels, PUBLISHED, restored=None), changed(features, ACCEPTED, chain_head=None)),
        (changed(labels, CHARGED, restored=True), theirs),
    ):
        (said,) = findings(both, ours, other)
        assert "another head of the labels party's chain" in said


def test_a_head_seen_in_a_transaction_that_failed_is_forgotten(both: Pair) -> None:
    services = both.receiver.services
    both.pull()
    both.clock.move(days=1)

    def work(connection: Any, *, fail: bool) -> Any:
        event = services.audit.append(connection, Event("model-trained", actor=f"fail {fail}"))
        head = day_head(services.audit, connection)
        assert head is not None
        assert head.digest == event.digest
        if fail:
            raise InterruptedError
        return event

    with pytest.raises(InterruptedError):
        services.database.write("test", lambda c: work(c, fail=True))
    event = services.database.write("test", lambda c: work(c, fail=False))
    head = services.database.read("test", lambda c: day_head(services.audit, c))
    assert (head.day, head.digest) == (event.time, event.digest)


def test_the_first_event_of_a_day_of_many_is_found(both: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("label_dp.audit.heads.PAGE", 3)
    services = both.receiver.services
    both.pull()
    both.clock.move(days=1)
    for number in range(8):
        event = Event("model-trained", actor=str(number))
        services.database.write("test", lambda c, e=event: services.audit.append(c, e))
    head = services.database.read("test", lambda c: day_head(services.audit, c))
    assert head.digest == first_of(both.receiver.events(), head.day)
    assert head.digest != both.receiver.events()[-1].digest


def test_the_command_lists_them(both: Pair) -> None:
    both.pull()
    both.receiver.services.close()
    home = {"FEATURES_PARTY_HOME": str(both.receiver.home)}

    def told(*options: str) -> str:
        return command("features-party", "audit", "heads", *options, folder=both.folder, environment=home).stdout

    (row,) = json.loads(told("--json"))
    assert row["of"] == both.labels.services.key.public.id
    assert row["day"] in told()
