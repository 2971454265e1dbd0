"""The newest head of each counterparty is kept: an export that does not go on from it is a fork or a rollback, and two
exports of one party are compared without any store."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from label_dp.audit.verification import compare_files
from label_dp.errors import InvalidInput
from tests.support.commands import command
from tests.support.receipts import Pair, pair

pytestmark = pytest.mark.extended


@pytest.fixture
def both(tmp_path: Path) -> Iterator[Pair]:
    with pair(tmp_path) as started:
        yield started


def kinds(found: dict[str, Any]) -> list[str]:
    return [finding["kind"] for finding in found["findings"]]


def forked(both: Pair) -> tuple[Path, Path]:
    """Two exports of the labels party with one history until a moment, and releases that nobody pulled after it."""
    both.pull()
    copy = both.keep_copy(both.labels.home)
    both.release()
    one = both.labels_export("one.json")
    both.restore(both.labels.home, copy)
    both.release()
    both.release()
    return one, both.labels_export("two.json")


def test_a_fork_shown_to_one_receiver_is_found_by_what_it_saw_before(both: Pair) -> None:
    """Neither export contradicts what was accepted: without the head of the first the second passes."""
    one, two = forked(both)
    assert kinds(both.receiver.compare(one)) == []
    found = both.receiver.compare(two)
    assert kinds(found) == ["fork"]
    assert "two histories" in found["findings"][0]["sentence"]
    assert kinds(both.receiver.compare(one)) == [], "the head that was kept is the first one's"


def test_without_a_head_the_same_export_passes(both: Pair) -> None:
    """The control: it is the kept head that tells."""
    assert kinds(both.receiver.compare(forked(both)[1])) == []


def test_heads_move_on_and_never_back(both: Pair) -> None:
    both.pull()
    early = both.labels_export("early.json")
    both.pull()
    late = both.labels_export("late.json")
    assert kinds(both.receiver.compare(early)) == []
    assert kinds(both.receiver.compare(late)) == []
    again = both.receiver.compare(early)
    assert kinds(again) == []
    assert "before one that was seen" in " ".join(again["notes"])
    query = both.receiver.services.heads.table.select()
    rows = both.receiver.services.database.read("t", lambda c: c.execute(query).all())
    assert sorted(row.sequence for row in rows) == sorted(len(json_events(path)) for path in (early, late))


def json_events(path: Path) -> list[Any]:
    import base64

    events: list[Any] = json.loads(base64.b64decode(json.loads(path.read_bytes())["payload"]))["events"]
    return events


def test_a_rollback_is_found_although_nothing_of_ours_was_lost(both: Pair) -> None:
    both.pull()
    copy = both.keep_copy(both.labels.home)
    both.release()
    assert kinds(both.receiver.compare(both.labels_export("before.json"))) == []
    both.restore(both.labels.home, copy)
    both.clock.move(minutes=1)
    assert kinds(both.receiver.compare(both.labels_export("after.json"))) == ["rollback"]


def test_the_labels_party_keeps_the_head_of_a_receiver_too(both: Pair) -> None:
    both.pull()
    copy = both.keep_copy(both.receiver.home)
    both.pull()
    assert kinds(both.compare_at_labels(both.features_export("before.json"))) == []
    both.restore(both.receiver.home, copy)
    both.clock.move(minutes=1)
    assert kinds(both.compare_at_labels(both.features_export("after.json")))[0] == "rollback"


def test_another_store_under_the_same_key_is_named(both: Pair) -> None:
    both.pull()
    assert kinds(both.compare_at_labels(both.features_export("one.json"))) == []
    both.receiver.services.close()
    for file in both.receiver.home.glob("*.sqlite*"):
        file.unlink()
    both.receiver.start()
    both.pull()
    found = both.compare_at_labels(both.features_export("two.json"))
    assert kinds(found)[0] == "fork"
    assert "replaced" in found["findings"][0]["sentence"]


def test_two_exports_are_compared_without_a_store(both: Pair) -> None:
    one, two = forked(both)
    key = both.labels.services.key.public

    def compared(first: Path, second: Path) -> list[str]:
        return kinds(compare_files(first, second, lambda _: key))

    assert compared(one, two) == compared(two, one) == ["fork"]
    both.pull()
    longer = both.labels_export("longer.json")
    assert compared(two, longer) == compared(longer, two) == compared(two, two) == []
    copy = both.keep_copy(both.labels.home)
    both.release()
    before = both.labels_export("before.json")
    both.restore(both.labels.home, copy)
    both.clock.move(minutes=1)
    assert compared(both.labels_export("after.json"), before) == ["rollback"]
    other = both.features_export()
    keys = {both.receiver.key.public.id: both.receiver.key.public, key.id: key}
    with pytest.raises(InvalidInput, match="two parties"):
        compare_files(one, other, lambda envelope: keys[json.loads(envelope)["signatures"][0]["keyid"]])


def test_the_commands(both: Pair) -> None:
    one, two = forked(both)
    features = {"FEATURES_PARTY_HOME": str(both.receiver.home)}
    labels = {"LABELS_PARTY_HOME": str(both.folder / "none")}
    nothing = {"FEATURES_PARTY_HOME": str(both.folder / "none")}

    def run(program: str, environment: dict[str, str], *words: object, code: int) -> str:
        done = command(program, "audit", "verify", *words, folder=both.folder, environment=environment)
        assert done.returncode == code, (done.stdout, done.stderr)
        return done.stdout

    public = both.labels.services.home.public_key
    assert "fork: " in run("features-party", features, one, "--against", two, code=1)
    assert "fork: " in run("features-party", nothing, one, "--against", two, "--key", public, code=1)
    assert "fork: " in run("labels-party", labels, one, "--against", two, "--key", public, code=1)
    assert "agree" in run("features-party", features, "--against", one, code=0)
    assert "fork: " in run("features-party", features, "--against", two, code=1)
