"""`audit verify --against EXPORT`: a rollback, a fork, a missing and an altered release on either side are named."""

from __future__ import annotations

import json
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from deploy.verify_standalone.audit import open_export
from deploy.verify_standalone.comparison import compare
from deploy.verify_standalone.refusal import RefusedError
from label_dp.audit.compare import ComparedStore, compare_parties
from label_dp.audit.events import PUBLISHED, Event
from label_dp.privacy import Epsilon, EpsilonSplit
from tests.support.commands import command
from tests.support.labels import label_table
from tests.support.receipts import Away, Pair, accept, pair


@pytest.fixture
def both(tmp_path: Path) -> Iterator[Pair]:
    with pair(tmp_path) as started:
        yield started


def kinds(found: dict[str, Any]) -> list[str]:
    return [finding["kind"] for finding in found["findings"]]


def sentences(found: dict[str, Any]) -> str:
    return " ".join(finding["sentence"] for finding in found["findings"])


def test_an_untouched_pair_agrees_in_all_four_directions(both: Pair) -> None:
    for _ in range(2):
        both.pull()
    mine, theirs = both.labels_export("then.json"), both.features_export("there.json")
    for found in (*both.compare_both(), both.compare_at_labels(mine), both.receiver.compare(theirs)):
        assert found["agrees"], found
        assert found["findings"] == found["notes"] == []
    both.pull()
    for found in (both.compare_at_labels(mine), both.receiver.compare(theirs)):  # older exports are prefixes
        assert found["agrees"]
        assert "after the export" in found["notes"][0]
    for found in (both.compare_at_labels(theirs), both.receiver.compare(mine)):  # made before the last release
        assert found["agrees"], found
        assert f"came after {found['made']}" in found["notes"][0]


def test_a_release_that_nobody_accepted_yet_is_no_finding(both: Pair) -> None:
    both.pull()
    both.release()
    for found in both.compare_both():
        assert found["agrees"], found
        assert "1 published release not accepted by 'features-party'" in found["notes"][0]


def test_a_labels_party_rolled_back_is_found_by_both(both: Pair) -> None:
    both.pull()
    copy = both.keep_copy(both.labels.home)
    lost = both.release()
    both.pull(lost)
    before = both.labels_export("before.json")
    both.restore(both.labels.home, copy)
    own = both.compare_at_labels(before)
    assert kinds(own) == ["rollback"]
    assert "rolled back" in sentences(own)
    for found in both.compare_both():
        assert kinds(found) == ["missing-work"], found
        assert lost in sentences(found)
        assert found["findings"][0]["work"] == lost


@pytest.mark.extended
def test_the_next_pull_tells_that_the_labels_party_lost_a_release(both: Pair) -> None:
    both.pull()
    copy = both.keep_copy(both.labels.home)
    lost = both.release()
    both.pull(lost)
    both.restore(both.labels.home, copy)
    said = both.pull()
    assert lost in str(said.problem)
    assert "refused" in str(said.problem)
    assert said.delivered == 1


def test_a_features_party_rolled_back_is_found_by_both(both: Pair) -> None:
    both.pull()
    copy = both.keep_copy(both.receiver.home)
    lost = both.release()
    both.pull(lost)
    before = both.features_export("before.json")
    both.restore(both.receiver.home, copy)
    assert kinds(both.receiver.compare(before)) == ["rollback"]
    for found in both.compare_both():
        assert kinds(found) == ["rollback", "missing-work"], found
        assert lost in sentences(found)
    # accepting the same again on the same day is the same history again; it is told at once when it goes on otherwise
    other = both.release()
    assert "rolled back" in str(both.pull(other).problem)
    for found in both.compare_both():
        assert "fork" in kinds(found), found


@pytest.mark.parametrize("party", ["labels", "features"])
def test_two_histories_from_one_copy_are_a_fork(both: Pair, party: str) -> None:
    home = both.labels.home if party == "labels" else both.receiver.home
    both.pull()
    copy = both.keep_copy(home)
    first = both.release()
    both.pull(first)
    one = both.labels_export("one.json") if party == "labels" else both.features_export("one.json")
    both.restore(home, copy)
    second = both.release()
    both.pull(second)
    compare = both.compare_at_labels if party == "labels" else both.receiver.compare
    own = compare(one)
    assert kinds(own) == ["fork"]
    assert "different histories" in sentences(own)
    for found in both.compare_both():
        assert not found["agrees"]
        assert first in sentences(found)
        assert kinds(found)[0] == ("missing-work" if party == "labels" else "fork"), found


@pytest.mark.extended
def test_a_receipt_that_did_not_arrive_is_named(both: Pair) -> None:
    both.pull()
    release = both.release()
    accept(both, release).acknowledge(Away())
    both.clock.move(minutes=1)
    for found in both.compare_both():
        assert kinds(found) == ["missing-receipt"]
        assert release in sentences(found)
    both.pull(release)
    assert all(found["agrees"] for found in both.compare_both())


@pytest.mark.extended
def test_another_manifest_or_split_at_one_side_is_altered(both: Pair) -> None:
    release = both.release()
    both.pull(release)
    labels, features = both.labels_events(), both.receiver.events()
    key, receiver = both.labels.services.key.public, both.receiver.key.public

    def compared(events: list[Event]) -> list[str]:
        found = compare_parties(
            ComparedStore(labels, key, "the labels party"), ComparedStore(events, receiver, "the features party")
        )
        return [f["kind"] for f in found.findings]

    assert compared(features) == []
    cheaper = EpsilonSplit(Epsilon(0), Epsilon(0), Epsilon.parse("0.5"))
    changed = [replace(e, split=cheaper) if e.subject.work == release else e for e in features]
    assert compared(changed) == ["unmatched"]
    other = {"manifest_sha256": "0" * 64}
    # its receipt at the labels party is of the manifest that was published, so it is left out here
    labels[:] = [
        replace(e, details=other) if e.kind == PUBLISHED else e for e in labels if e.kind != "receipt-received"
    ]
    assert "altered" in compared(features)


@pytest.mark.extended
def test_a_replaced_store_is_named(both: Pair, tmp_path: Path) -> None:
    both.pull()
    export = both.features_export()
    both.receiver.services.close()
    for file in both.receiver.home.glob("*.sqlite*"):
        file.unlink()
    both.receiver.start()
    assert kinds(both.receiver.compare(export)) == ["rollback"]  # nothing was written since
    both.pull()
    assert kinds(both.receiver.compare(export)) == ["fork"]
    assert "replaced" in sentences(both.receiver.compare(export))


@pytest.mark.extended
def test_both_commands_compare_register_and_deliver(both: Pair) -> None:
    """The whole story by command line: exit code 0, then 1 with one sentence a finding."""
    labels = {"LABELS_PARTY_HOME": str(both.labels.home)}
    features = {"FEATURES_PARTY_HOME": str(both.folder / "second"), "FEATURES_PARTY_NAME": "second"}

    def run(program: str, *words: object, code: int = 0) -> str:
        environment = labels if program == "labels-party" else features
        done = command(program, *words, folder=both.folder, environment=environment)
        assert done.returncode == code, (done.stdout, done.stderr)
        return done.stdout

    run("features-party", "keygen")
    run("features-party", "pin-key", both.labels.services.home.public_key)
    public = both.folder / "second" / "keys" / "signing.pub"
    create = ("apikey", "create", "--role", "features", "--audience", "second", "--receipt-key")
    features["FEATURES_PARTY_LABELS_API_KEY"] = run("labels-party", *create, public).strip()
    run("labels-party", "apikey", "create", "--role", "owner", "--receipt-key", public, code=2)
    run("labels-party", *create, "nothing", code=2)
    batch = both.labels.sealed_batch(label_table(20), "other", audiences=["second"])
    release = both.labels.release(batch)
    where = ("pull", "--url", both.url, "--release", release)
    assert "receipts: 1 delivered" in run("features-party", *where, "--out", "m.parquet")
    assert json.loads(run("features-party", *where, "--out", "m.parquet", "--json"))["receipts"]["delivered"] == 0
    since = ("pull", "--url", both.url, "--since", "2020-01-01", "--out", "in")
    assert "all were delivered before" in run("features-party", *since)
    assert "acknowledged" in run("labels-party", "audit", "show", "--kind", "receipt-received")
    for program, name in (("labels-party", "l.json"), ("features-party", "f.json")):
        run(program, "audit", "export", "--out", name)
        run(program, "audit", "verify")
        run(program, "audit", "verify", name)
        run(program, "audit", "verify", "--against", name)
    # the other one's export is checked with its registered, or pinned, key; with no other
    assert "events verified" in run("labels-party", "audit", "verify", "f.json")
    assert "events verified" in run("features-party", "audit", "verify", "l.json")
    run("features-party", "audit", "verify", "l.json", "--key", public, code=1)
    spent = json.loads(run("features-party", "audit", "show", "--totals", "--json"))
    assert [(t["epsilon_spent"], t["epsilon_lifetime"], t["delta_lifetime"]) for t in spent] == [("1", "10", "0")]
    assert "agree" in run("labels-party", "audit", "verify", "--against", "f.json")
    found = json.loads(run("features-party", "audit", "verify", "--against", "l.json", "--json"))
    assert (found["agrees"], found["findings"]) == (True, [])
    run("labels-party", "audit", "verify", "l.json", "--against", "f.json", code=2)
    (both.folder / "second" / "features-party.sqlite").unlink()
    told = run("features-party", "audit", "verify", "--against", "l.json", code=1)
    assert "rollback: " in told
    assert release in told
    told = run("features-party", "audit", "verify", "--against", "f.json", "--json", code=1)
    assert json.loads(told)["findings"][0]["kind"] == "rollback"
    (both.folder / "f.json").write_bytes(b"{}")
    run("labels-party", "audit", "verify", "--against", "f.json", code=1)


# --- by the standalone verifier, which has two exports and nothing else ------------------------------------------


def alone(both: Pair, labels: Path, features: Path) -> list[str]:
    """What it says of one export of each party. Raises RefusedError."""
    keys = both.labels.services.key.public, both.receiver.key.public
    opened = [
        open_export(path, Ed25519PublicKey.from_public_bytes(key.raw), key.id)[0]
        for path, key in zip((labels, features), keys, strict=True)
    ]
    assert compare(*opened) == compare(*reversed(opened))
    return compare(*opened)


def own_alone(both: Pair, one: Path, other: Path) -> list[str]:
    key = both.labels.services.key.public
    return compare(*(open_export(p, Ed25519PublicKey.from_public_bytes(key.raw), key.id)[0] for p in (one, other)))


@pytest.mark.extended
def test_alone_two_exports_of_an_untouched_pair_agree(both: Pair) -> None:
    both.pull()
    both.pull_answer()
    then = both.labels_export("then.json")
    said = alone(both, then, both.features_export())
    assert said[0].startswith("2 accepted releases and answers are published and charged alike (rule 19); 0 may")
    assert said[1].startswith("2 receipts are the same at both parties; 0 came")
    both.release()
    assert own_alone(both, then, both.labels_export())[0].endswith("more in the longer export")
    both.clock.move(days=1)
    both.pull()
    assert "1 may be newer" in alone(both, then, both.features_export())[0]


@pytest.mark.extended
def test_alone_a_labels_party_rolled_back_and_gone_on_is_refused(both: Pair) -> None:
    both.pull()
    copy = both.keep_copy(both.labels.home)
    lost = both.release()
    both.pull(lost)
    before = both.labels_export("before.json")
    both.clock.move(days=1)
    both.restore(both.labels.home, copy)
    with pytest.raises(RefusedError, match=f"{lost}, accepted 2030-01-01, is not among what the labels party"):
        alone(both, both.labels_export(), both.features_export())
    both.release()
    with pytest.raises(RefusedError, match="different histories"):
        own_alone(both, before, both.labels_export("after.json"))


@pytest.mark.extended
def test_alone_a_receiver_rolled_back_and_another_charge_are_refused(both: Pair) -> None:
    both.pull()
    copy = both.keep_copy(both.receiver.home)
    both.pull()
    labels = both.labels_export()
    both.restore(both.receiver.home, copy)
    with pytest.raises(RefusedError, match="1 receipts that the labels party holds are not in the receiver's store"):
        alone(both, labels, both.features_export())
    found = [
        open_export(p, Ed25519PublicKey.from_public_bytes(k.raw), k.id)[0]
        for p, k in (
            (labels, both.labels.services.key.public),
            (both.features_export(), both.receiver.key.public),
        )
    ]
    for change, words in (
        (lambda e: e["details"].update(manifest_digest="ab" * 32), "is another document"),
        (lambda e: e["epsilon_nano"].update(total=1), "is charged otherwise"),
    ):
        changed = copy_of(found[1])
        change(next(e for e in changed[0]["events"] if e["kind"] == "message-accepted"))
        with pytest.raises(RefusedError, match=words):
            compare(found[0], changed)


def copy_of(found: Any) -> Any:
    return deepcopy(found[0]), found[1]
