"""A signing key hands over to the next: receivers follow it, ε goes on, and whatever is forged is refused."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from deploy.verify_standalone.audit import open_export
from features_party.receive.acceptances import contradiction
from features_party.receive.population_accounts import received
from label_dp import errors
from label_dp.audit.events import KEY_HANDED_OVER
from label_dp.audit.hand_overs import hand_over_event
from label_dp.audit.verification import verify_file
from label_dp.documents.canonical import canonical_bytes
from label_dp.documents.hand_over import HandOver, KeyFamilies
from label_dp.documents.receipt import public_key_text
from label_dp.documents.signing import SigningKey
from labels_party.bootstrap import bootstrap
from labels_party.storage.signing import next_path
from tests.support.labels import label_table
from tests.support.receipts import Pair, pair

pytestmark = pytest.mark.extended

DAY = "2024-01-01"


@pytest.fixture
def both(tmp_path: Path) -> Iterator[Pair]:
    with pair(tmp_path) as found:
        yield found


def rotate(both: Pair) -> HandOver:
    return both.labels.services.own_keys.rotate("test")


def totals(both: Pair) -> list[tuple[str, int, int]]:
    return [(row["epsilon_per_example"], row["messages"], row["batches"]) for row in received(both.receiver.events())]


def test_a_receiver_follows_at_its_next_pull_and_its_sum_goes_on(both: Pair, tmp_path: Path) -> None:
    batch = both.labels.sealed_batch(label_table(20, prefix="r"))
    first = both.labels.release(batch, "1")
    both.pull(first)
    handed = rotate(both)
    second = both.labels.release(batch, "0.5", additional_release=True)
    assert both.pull(second).problem is None
    assert both.pull(both.release()).problem is None
    assert totals(both) == [("1.5", 3, 2)]  # not 1 and 1
    pins = {pin["key_id"]: pin for pin in both.receiver.services.pinned.listed()}
    old, new = pins[handed.old.id], pins[handed.new.id]
    assert (old["state"], old["successor"], old["handed_over"]) == ("handed over", handed.new.id, handed.day)
    assert (new["state"], new["origin"]) == ("pinned", f"handed over by {handed.old.id}")
    # all three checkers, of both exports; and the comparison of both histories
    exports = both.labels_export(), both.receiver.export(tmp_path / "features.json")
    for export, key in zip(exports, (both.labels.services.key.public, both.receiver.key.public), strict=True):
        verify_file(export, lambda _, key=key: key)
        said = open_export(export, Ed25519PublicKey.from_public_bytes(key.raw), key.id)[1]
        assert any("rules 1 to 22 of an audit chain, but 19" in line for line in said)
    assert both.receiver.compare(exports[0])["findings"] == []
    assert both.compare_at_labels(exports[1])["findings"] == []


def test_what_the_old_key_signed_stays_and_is_acknowledged(both: Pair) -> None:
    early, late = both.release(), both.release()
    both.pull(early)
    rotate(both)
    assert both.pull(late).delivered == 1  # signed by the old key, on a day on which it signed
    assert both.pull(both.release()).delivered == 1
    assert both.pull(early).delivered == 0


def test_across_keys_a_repeated_id_and_an_understated_epsilon_are_refused(both: Pair) -> None:
    batch = both.labels.sealed_batch(label_table(20, prefix="r"))
    both.pull(both.labels.release(batch, "1"))
    handed = rotate(both)
    both.pull(both.release())
    families = KeyFamilies([handed])
    assert families.relatives(handed.new.id) == [handed.old.id, handed.new.id]
    accepted = next(e for e in both.receiver.events() if e.kind == "message-accepted")
    lie = dict(accepted.details) | {"key_id": handed.new.id}
    forged = replace(accepted, details=lie, subject=replace(accepted.subject, work="rel_other"))
    services = both.receiver.services
    found = services.database.write("test", lambda c: contradiction(services.audit, c, forged))
    assert "rule 18" in str(found)


def made(old: SigningKey, new: SigningKey, day: str = DAY, before: HandOver | None = None) -> dict[str, Any]:
    return HandOver.signed_by(old, new, day, before)


def follow(both: Pair, *envelopes: Any) -> list[Any]:
    return both.receiver.services.following.follow({"hand_overs": list(envelopes)}, "test")


def test_the_same_hand_over_again_changes_nothing(both: Pair) -> None:
    key, new = both.labels.services.key.now(), SigningKey.generate()
    envelope = made(key, new)
    assert [pin.key.id for pin in follow(both, envelope)] == [new.public.id]
    assert follow(both, envelope) == []
    assert [e.kind for e in both.receiver.events()].count(KEY_HANDED_OVER) == 1


def test_after_a_stop_between_event_and_pin_following_again_pins(both: Pair) -> None:
    services = both.receiver.services
    new = SigningKey.generate()
    envelope = made(both.labels.services.key.now(), new)
    services.following._record(HandOver.read(envelope), envelope, "test")
    assert [pin.key.id for pin in follow(both, envelope)] == [new.public.id]
    assert [e.kind for e in both.receiver.events()].count(KEY_HANDED_OVER) == 1


def test_what_is_forged_replayed_or_of_a_key_without_trust_is_refused(both: Pair) -> None:
    key = both.labels.services.key.now()
    one, other, stranger = (SigningKey.generate() for _ in range(3))
    pinned = both.receiver.services.pinned
    envelope = made(key, one)
    # in the name of the pinned key, signed by another
    told = HandOver.read(made(stranger, one)).document() | {"old_key": public_key_text(key.public)}
    forged = json.loads(stranger.sign(HandOver.TYPE, told))
    named = json.loads(json.dumps(forged))
    named["signatures"][0]["keyid"] = key.public.id
    # without the consent of the new key, whose owner is somebody else
    claimed = HandOver.read(envelope).document() | {"new_key": public_key_text(other.public)}
    for wrong in (forged, named, json.loads(key.sign(HandOver.TYPE, claimed))):
        with pytest.raises(errors.SignatureInvalid):
            follow(both, wrong)
    with pytest.raises(errors.SignatureInvalid, match="to come"):
        follow(both, made(key, one, "2999-01-01"))
    with pytest.raises(errors.SignatureInvalid, match="our own key"):
        follow(both, made(key, both.receiver.key))
    follow(both, envelope)
    with pytest.raises(errors.SignatureInvalid, match="to which that key handed over before"):
        follow(both, made(key, other))
    # a gap, and a chain that goes on from another hand-over
    second = HandOver.read(made(one, other, before=HandOver.read(envelope)))
    skipped = made(other, stranger, before=second)
    assert follow(both, skipped) == []  # of a key that we do not know
    broken = HandOver.read(made(stranger, one))
    with pytest.raises(errors.SignatureInvalid, match="rule 20"):
        follow(both, made(one, other, before=broken.model_copy(update={"position": 7})))
    pinned.revoke(one.public.id)
    with pytest.raises(errors.SignatureInvalid, match="revoked"):
        follow(both, made(one, other, before=HandOver.read(envelope)))
    assert {pin.key.id for pin in pinned.pins()} == {key.public.id, one.public.id}


def test_a_key_that_is_pinned_as_another_partys_is_no_successor(both: Pair, tmp_path: Path) -> None:
    other = SigningKey.generate()
    (tmp_path / "other.pub").write_bytes(other.public.pem)
    both.receiver.services.pinned.pin(tmp_path / "other.pub")
    with pytest.raises(errors.SignatureInvalid, match="another labels party"):
        follow(both, made(both.labels.services.key.now(), other))


def test_after_the_hand_over_the_old_key_signs_for_nothing(both: Pair) -> None:
    old = both.labels.services.key.now()
    both.clock.move(days=-2)
    rotate(both)
    both.clock.move(days=2)
    both.pull(both.release())
    (pin,) = [p for p in both.receiver.services.pinned.list() if p.id == old.public.id]
    assert pin.until is not None
    document = both.receiver.services.messages  # a message of today under the old key
    assert document.pinned.pin_of(old.public.id).trusted.until == pin.until


@pytest.mark.parametrize("named", [None, [], {"hand_overs": 1}, {"hand_overs": [1]}, {"hand_overs": [{}]}])
def test_nonsense_is_refused(both: Pair, named: Any) -> None:
    with pytest.raises(errors.MalformedHandOver):
        both.receiver.services.following.follow(named, "test")


def test_rotation_survives_a_stop_and_erases_the_old_key(both: Pair) -> None:
    services = both.labels.services
    private, old = services.home.private_key, services.key.now()
    following = services.own_keys.prepare()
    assert services.own_keys.prepare().public.id == following.public.id
    assert services.key.public.id == old.public.id
    envelope = HandOver.signed_by(old, following, DAY, None)
    services.database.write("test", lambda c: services.audit.append(c, hand_over_event(envelope, "test")) and None)
    again = bootstrap(services.settings)  # a command after the stop
    try:
        assert again.key.public.id == services.key.public.id == following.public.id
        assert not next_path(private).exists()
        assert all(old.pem not in path.read_bytes() for path in private.parent.iterdir())
        told = again.own_keys.told()
        assert base64.b64decode(told["public_key"]) == following.public.raw
        assert canonical_bytes(told["hand_overs"][0]) == canonical_bytes(envelope)
    finally:
        again.close()


def test_a_home_with_the_old_key_is_refused(both: Pair) -> None:
    services = both.labels.services
    old = services.key.now()
    rotate(both)
    services.home.private_key.unlink()
    services.home.private_key.write_bytes(old.pem)
    with pytest.raises(errors.Unavailable, match="handed over to"):
        bootstrap(services.settings)
