"""Golden bytes of an audit event, field by field, and of its place in the chain."""

from __future__ import annotations

import hashlib
import json

import pytest

from label_dp.audit.events import CHARGED, CREATED, GENESIS, Event, Subject, check_chain
from label_dp.documents.canonical import canonical_bytes
from label_dp.errors import AuditChainBroken
from label_dp.privacy import Epsilon, EpsilonSplit, PrivacyUnit

FIRST = (
    b'{"actor":"","audiences":[],"delta":"0","details":{}'
    b',"epsilon_nano":{"clip":0,"prior":0,"randomize":0,"total":0}'
    b',"format":"label-dp-audit/1","kind":"store-created","party":"labels-party"'
    # there is no event before the first
    b',"previous":"0000000000000000000000000000000000000000000000000000000000000000"'
    b',"sequence":1,"store":"abababababababababababababababab"'
    # every member is always there; what does not apply is null
    b',"subject":{"attempt":null,"batch":null,"label":null,"population":null,"population_name":null,"work":null}'
    b',"time":"2026-01-02","unit":{"column":null,"kind":"example","max_examples":null}}'
)
FIRST_DIGEST = hashlib.sha256(FIRST).hexdigest()

SECOND = (
    # who did it: a key's public id, or "command line", or "worker"
    b'{"actor":"apikey:abc"'
    # whose message it is
    b',"audiences":["features-party"]'
    # a decimal string, exact to 10^-18
    b',"delta":"0.000000000000000001"'
    # free form, without floats
    b',"details":{"mechanism":"rr-on-bins","n":5}'
    # the charge in whole nano-epsilon, rounded up
    b',"epsilon_nano":{"clip":0,"prior":50000000,"randomize":1200000000,"total":1250000000}'
    b',"format":"label-dp-audit/1"'
    # only release-charged and message-accepted add to what an example has spent
    b',"kind":"release-charged"'
    b',"party":"labels-party"'
    # SHA-256 of the whole body before it
    b',"previous":"' + FIRST_DIGEST.encode() + b'"'
    # from 1 without gaps
    b',"sequence":2'
    # random, the same in the whole store
    b',"store":"abababababababababababababababab"'
    b',"subject":{"attempt":2,"batch":"bat_1","label":"revenue","population":"pop_1","population_name":"shop"'
    b',"work":"rel_1"}'
    # the UTC day: what others may see of when it was
    b',"time":"2026-01-02"'
    b',"unit":{"column":"user","kind":"unit","max_examples":3}}'
)


def test_the_first_event_and_its_digest() -> None:
    event = Event(CREATED).placed(
        store="ab" * 16, party="labels-party", sequence=1, previous=GENESIS, time="2026-01-02T03:04:05Z"
    )
    assert event.body() == FIRST
    assert event.digest == "3479cb92cfc476050280e60198e17082b56c7e8c0a935f2210ff51e489f9044b"


def test_a_charge_and_its_place_in_the_chain() -> None:
    event = Event(
        CHARGED,
        Subject("pop_1", "shop", "revenue", "bat_1", "rel_1", 2),
        EpsilonSplit(Epsilon(0), Epsilon.parse("0.05"), Epsilon.parse("1.2"), 1),
        PrivacyUnit("user", 3),
        ("features-party",),
        "apikey:abc",
        {"mechanism": "rr-on-bins", "n": 5},
    ).placed(store="ab" * 16, party="labels-party", sequence=2, previous=FIRST_DIGEST, time="2026-01-02T03:04:05Z")
    assert event.body() == SECOND
    assert event.digest == "24f9b6176b5db3cbb3000ef105f53b5c93a82c23ccb07bdba2636f7fd5f880fd"
    assert check_chain([FIRST, SECOND]) == (2, event.digest)


@pytest.mark.parametrize("body", [FIRST, SECOND])
def test_an_event_is_read_back_whole(body: bytes) -> None:
    event = Event.from_body(body)
    assert event.body() == body
    assert Event.from_body(event.body()) == event


@pytest.mark.parametrize("body", [FIRST, SECOND])
def test_every_flipped_bit_breaks_the_event_or_its_digest(body: bytes) -> None:
    golden = hashlib.sha256(body).hexdigest()
    for position in range(len(body)):
        for bit in range(8):
            forged = bytearray(body)
            forged[position] ^= 1 << bit
            try:
                assert Event.from_body(bytes(forged)).digest != golden
            except AuditChainBroken:
                continue


CHANGES = {
    "another format": {"format": "label-dp-audit/2"},
    "a charge as text": {"epsilon_nano": {"clip": 0, "prior": 0, "randomize": "1", "total": 1}},
    "a total that is not the sum": {"epsilon_nano": {"clip": 0, "prior": 0, "randomize": 1, "total": 2}},
    "a negative charge": {"epsilon_nano": {"clip": 0, "prior": 0, "randomize": -1, "total": -1}},
    "an unknown member": {"surprise": 1},
    "an unknown subject": {"subject": {"person": "x"}},
    "a delta with another spelling": {"delta": "0.0"},
    "another unit": {"unit": {"column": None, "kind": "unit", "max_examples": None}},
}


@pytest.mark.parametrize("name", CHANGES)
def test_forged_events_are_refused(name: str) -> None:
    with pytest.raises(AuditChainBroken):
        Event.from_body(canonical_bytes(json.loads(SECOND) | CHANGES[name]))


@pytest.mark.parametrize("body", [b"", b"{}", b"null", b"[]", SECOND[:-1], SECOND + b"\n", b"\xff", b'{"format":1}'])
def test_what_is_no_event_is_refused(body: bytes) -> None:
    with pytest.raises(AuditChainBroken):
        Event.from_body(body)


def _second(**members: object) -> bytes:
    return canonical_bytes(json.loads(SECOND) | members)


@pytest.mark.parametrize(
    ("bodies", "why"),
    [
        ([SECOND], "missing or reordered"),
        ([SECOND, FIRST], "missing or reordered"),
        ([FIRST, FIRST], "missing or reordered"),
        ([FIRST, _second(sequence=3)], "missing or reordered"),
        ([FIRST, _second(previous="0" * 64)], "does not link"),
        ([FIRST, _second(store="00" * 16)], "another audit store"),
    ],
)
def test_a_chain_that_does_not_fit_is_refused_by_its_first_bad_event(bodies: list[bytes], why: str) -> None:
    with pytest.raises(AuditChainBroken, match=why):
        check_chain(bodies)


def test_an_empty_chain_is_no_error_and_has_the_genesis_head() -> None:
    assert check_chain([]) == (0, GENESIS)
