"""Chains of audit events that lie, each signed and chained as a real one, with the number of the rule that it breaks;
and the honest ones that they were made from: recorded, whole flows of both parties.

Every checker takes what `whole` says of a list of events: the product, `--against`, and the standalone verifier.
"""

from __future__ import annotations

import copy
import hashlib
import json
import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from deploy.verify_standalone.audit import verify_audit
from deploy.verify_standalone.refusal import RefusedError, RuleError
from label_dp.audit.receipts import Receipts
from label_dp.audit.rulebook import RuleBroken
from label_dp.audit.rules import check_rules
from label_dp.audit.store import read_export
from label_dp.documents.canonical import canonical_bytes
from label_dp.documents.export import AuditExport
from label_dp.documents.hand_over import HandOver
from label_dp.documents.signing import EXPORT_TYPE, SigningKey
from label_dp.errors import LabelDPError

Chain = list[dict[str, Any]]
Change = Callable[[Chain], object]
DAY = "2026-11-20"
NANO = 10**9


def split(epsilon: float, **parts: float) -> dict[str, int]:
    found = {"clip": 0, "prior": 0, "randomize": 0} | {name: round(value * NANO) for name, value in parts.items()}
    found["randomize"] += round(epsilon * NANO) - sum(found.values()) if not found["randomize"] else 0
    return found | {"total": round(epsilon * NANO)}


def event(kind: str, *, epsilon: float = 0, **members: Any) -> dict[str, Any]:
    """One event as both parties write it; subject members by name, the rest in `members`."""
    names = ("population", "population_name", "label", "batch", "work", "attempt")
    subject = {name: members.pop(name, None) for name in names}
    charge = split(epsilon) if epsilon else dict.fromkeys(("clip", "prior", "randomize", "total"), 0)
    base: dict[str, Any] = {
        "format": "label-dp-audit/1",
        "store": "ab" * 16,
        "party": "labels-party",
        "time": DAY,
        "kind": kind,
        "subject": subject,
        "epsilon_nano": charge,
        "delta": "0",
        "unit": {"column": None, "kind": "example", "max_examples": None},
        "audiences": [],
        "actor": "apikey:a",
        "details": {},
    }
    return base | members


def chained(chain: Chain) -> Chain:
    """Numbers, links and one store made right again: what somebody with the signing key does."""
    previous, store = "0" * 64, chain[0]["store"] if chain else ""
    for number, one in enumerate(chain, start=1):
        one |= {"sequence": number, "previous": previous, "store": store}
        previous = hashlib.sha256(canonical_bytes(one)).hexdigest()
    return chain


def whole(chain: Chain, key: SigningKey, **members: Any) -> bytes:
    """The signed export of a chain."""
    head = hashlib.sha256(canonical_bytes(chain[-1])).hexdigest() if chain else "0" * 64
    document = {"format": AuditExport.FORMAT, "party": "labels-party", "count": len(chain), "head": head, "made": DAY}
    return key.sign(EXPORT_TYPE, document | {"events": chain} | members)


# --- verdicts ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Verdict:
    """`rule`: of the first event that breaks one; 0 where something else is wrong, None where nothing is."""

    rule: int | None
    why: str = ""


def product(envelope: bytes, key: SigningKey) -> Verdict:
    """What `audit verify EXPORT` says."""
    try:
        events = read_export(envelope, key.public).events
        check_rules(events)
        Receipts.of(events, key.public)
    except RuleBroken as broken:
        return Verdict(broken.rule.number, broken.detail)
    except LabelDPError as refused:
        return Verdict(0, refused.detail)
    return Verdict(None)


def standalone(envelope: bytes, key: SigningKey, folder: Path) -> Verdict:
    """What `verify_standalone audit EXPORT` says, in this process."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    path = folder / "export.json"
    path.write_bytes(envelope)
    try:
        verify_audit(path, Ed25519PublicKey.from_public_bytes(key.public.raw), key.public.id)
    except RuleError as broken:
        return Verdict(broken.rule, str(broken))
    except RefusedError as refused:
        return Verdict(0, str(refused))
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, ArithmeticError, RecursionError) as escaped:
        # its command line refuses these as well
        return Verdict(0, repr(escaped))
    return Verdict(None)


# --- an honest chain, by hand -------------------------------------------------------------------------------

ABOUT: dict[str, Any] = {"population": "pop_1", "population_name": "shop", "label": "revenue"}
TOLD: dict[str, Any] = {"audiences": ["features-party"]}
EYES: dict[str, Any] = {"population": "pop_2", "population_name": "eyes", "label": "visits"}
DECLARATION: dict[str, Any] = {"lifetime_epsilon": "3", "lifetime_delta": "0.000001", "four_eyes": False}


def charge(release: str, epsilon: float = 1, batch: str = "bat_1", **members: Any) -> dict[str, Any]:
    return event("release-charged", epsilon=epsilon, batch=batch, work=release, **(ABOUT | TOLD | members))


def published(release: str, batch: str = "bat_1", **members: Any) -> dict[str, Any]:
    details = {"manifest_sha256": hashlib.sha256(release.encode()).hexdigest(), "n": 9}
    given = {"details": details, "attempt": 1, "actor": "worker"} | ABOUT | TOLD | members
    return event("release-published", batch=batch, work=release, **given)


def cancelled(release: str, state: str = "charged", **members: Any) -> dict[str, Any]:
    return event("release-cancelled", batch="bat_1", work=release, details={"state": state}, **(ABOUT | TOLD | members))


def returned(release: str, epsilon: float = 1, **members: Any) -> dict[str, Any]:
    return event("charge-returned", epsilon=epsilon, batch="bat_1", work=release, **(ABOUT | TOLD | members))


def failed(release: str) -> dict[str, Any]:
    details = {"code": "error", "charge": "kept"}
    return event("release-failed", batch="bat_1", work=release, details=details, attempt=1, **ABOUT, **TOLD)


ASKED: dict[str, Any] = {"mechanism": "rr-on-bins", "loss": "squared", "additional_release": False}
COST = {"clip": "0", "prior": "0", "randomize": "1", "total": "1", "delta": "0"}


def four_eyes(release: str = "rel_9", asker: str = "apikey:a", other: str = "apikey:b") -> Chain:
    """Asked for, approved, charged, published."""
    about = EYES | TOLD | {"batch": "bat_2", "work": release}
    return [
        event("release-requested", **about, actor=asker, details=ASKED | {"epsilon": COST}),
        event("release-approved", **about, actor=other, details={"requested_by": asker}),
        event("release-charged", epsilon=1, **about, actor=other, details=dict(ASKED)),
        published(release, "bat_2", **EYES),
    ]


def answer(name: str, epsilon: float = 0.5, *, by: str | None = None, kind: str = "median") -> Chain:
    about = ABOUT | TOLD | {"batch": "bat_1", "work": name}
    return [
        event("release-charged", epsilon=epsilon, **about, details={"answer": kind, "by_audience": by}),
        event("answer-published", **about, attempt=1, details={"answer": kind, "sha256": "a" * 64, "n": 9}),
    ]


def query(name: str, number: int, epsilon: float = 0.1, predictor: str = "prd_1") -> Chain:
    about = ABOUT | TOLD | {"batch": "bat_1", "work": name}
    told = {"answer": "prediction", "predictor": predictor}
    return [
        event("release-charged", epsilon=epsilon, **about, details=told | {"query": f"{number:064x}"}),
        event("answer-published", **about, details=told | {"sha256": "b" * 64, "n": 9}),
    ]


def shared(answered: dict[str, Any], **members: Any) -> dict[str, Any]:
    """The event of an audience that asked what `answered` had published already."""
    return copy.deepcopy(answered) | {"kind": "answer-shared"} | members


def predictor(kind: str = "predictor-created", cap: str = "0.2") -> dict[str, Any]:
    about = ABOUT | TOLD | {"batch": "bat_1", "work": "prd_1"}
    details = {"predictor": "prd_1", "plan": {"epsilon_per_query": "0.1", "epsilon_cap": cap}}
    return event(kind, **about, details=details)


def labels_chain() -> Chain:
    """Everything that a labels party does: 0 the store, 1 and 2 populations, 3 and 4 seals, then what follows."""
    return [
        event("store-created", actor=""),
        event("population-created", **ABOUT, **TOLD, details=dict(DECLARATION)),
        event("population-created", **EYES, **TOLD, details=DECLARATION | {"four_eyes": True}),
        event("batch-sealed", **ABOUT, batch="bat_1", details={"n": 9}),
        event("batch-sealed", **EYES, batch="bat_2", details={"n": 9}),
        charge("rel_1"),
        published("rel_1"),
        charge("rel_2"),
        cancelled("rel_2"),
        returned("rel_2"),
        *four_eyes(),
        charge("rel_3", 0.2),
        failed("rel_3"),
        *answer("ans_1", 0.3),
        event("allowance-set", **ABOUT, **TOLD, batch="bat_1", details={"answer": "median", "epsilon": "0.5"}),
        *answer("ans_2", 0.5, by="features-party"),
        predictor(),
        *query("ans_3", 1),
        *query("ans_4", 2),
        predictor("predictor-retired"),
        event("erasure-requested", **ABOUT, details={"examples": 1, "ids_mac": "c"}),
        event(
            "label-erased",
            **ABOUT,
            batch="bat_1",
            details={
                "examples": 1,
                "effect": "after a release",
                "published": ["rel_1", "ans_1", "ans_2", "ans_3", "ans_4"],
            },
        ),
        event("batch-purged", **ABOUT, batch="bat_1", details={"n": 9, "why": "asked for"}),
    ]


def accepted(
    release: str, epsilon: float, spent: str, *, batch: str = "bat_1", key: str = "1", **members: Any
) -> dict[str, Any]:
    details = {
        "manifest_digest": hashlib.sha256(release.encode()).hexdigest(),
        "key_id": f"ed25519:{key * 64}" if len(key) == 1 else key,
        "n": 9,
    }
    details |= {"epsilon_spent": spent, "epsilon_lifetime": "3", "delta_spent": "0", "delta_lifetime": "0.000001"}
    details |= members.pop("more", {})
    kind = members.pop("kind", "message-accepted")
    about = ABOUT | TOLD | {"details": details} | members
    return event(kind, epsilon=epsilon, batch=batch, work=release, party="features-party", **about)


FIRST, SECOND, THIRD, FOURTH = (SigningKey(Ed25519PrivateKey.from_private_bytes(bytes([n]) * 32)) for n in range(1, 5))
HANDED = [(FIRST, SECOND, None), (SECOND, THIRD, HandOver.read(HandOver.signed_by(FIRST, SECOND, DAY, None)))]
NEWEST = THIRD.public.id


def handed(old: SigningKey, new: SigningKey, before: HandOver | None) -> dict[str, Any]:
    envelope = HandOver.signed_by(old, new, DAY, before)
    details = {"old_key_id": old.public.id, "new_key_id": new.public.id, "hand_over": envelope}
    return event("key-handed-over", actor="cli", party="features-party", details=details)


def features_chain() -> Chain:
    """What a receiver accepts, in another order than it was charged."""
    more = {"answer": "median", "document_digest": "a" * 64}
    return [
        event("store-created", actor="", party="features-party"),
        accepted("rel_3", 0.5, "2"),
        accepted("rel_1", 1, "1"),
        accepted("ans_1", 0.5, "1.5", kind="answer-accepted", more=more),
        accepted("rel_4", 1, "3", batch="bat_9"),
        accepted("rel_1", 1, "1", key="2"),
        handed(*HANDED[0]),
        handed(*HANDED[1]),
        accepted("rel_6", 1, "2", batch="bat_8", key=NEWEST),
    ]


# --- lies --------------------------------------------------------------------------------------------------


def _put(place: int, *events: dict[str, Any]) -> Change:
    return lambda chain: chain.__setitem__(slice(place, place), list(events))


def _end(*events: dict[str, Any]) -> Change:
    """Before anything is retired, erased or purged."""
    return _put(19, *events)


def _details(place: int, **changed: Any) -> Change:
    return lambda chain: chain[place]["details"].update(changed)


def _member(place: int, name: str, value: Any) -> Change:
    return lambda chain: chain[place].update({name: value})


def _subject(place: int, **changed: Any) -> Change:
    return lambda chain: chain[place]["subject"].update(changed)


def _drop(*places: int) -> Change:
    def change(chain: Chain) -> None:
        for place in sorted(places, reverse=True):
            del chain[place]

    return change


HUNDREDFOLD = DECLARATION | {"lifetime_epsilon": "300"}
UNITS = {"column": "user", "kind": "unit", "max_examples": 3}
# places in `labels_chain`: 5 charge, 6 published, 7 charge, 8 cancelled, 9 returned, 10 asked, 11 approved,
# 12 charged, 13 published, 14 charge, 15 failed, 16 and 17 an answer, 18 allowance, 19 and 20 an answer of an audience,
# 21 predictor, 22 to 25 queries, 26 retired, 27 and 28 an erasure, 29 purged
LIES: dict[str, tuple[int, Change]] = {
    "a store that was never made": (1, _drop(0)),
    "a store made twice": (1, _put(3, event("store-created"))),
    "a charge of nothing": (2, _member(5, "epsilon_nano", dict.fromkeys(("clip", "prior", "randomize", "total"), 0))),
    "a cost where none is": (2, _member(6, "epsilon_nano", split(1))),
    "a δ where none is": (2, _member(3, "delta", "0.000001")),
    "a population again, with a hundred times the lifetime": (
        3,
        _put(3, event("population-created", **ABOUT, **TOLD, details=HUNDREDFOLD)),
    ),
    "a population's name again under another id": (
        3,
        _put(3, event("population-created", **(ABOUT | {"population": "pop_8"}), **TOLD, details=HUNDREDFOLD)),
    ),
    "a lifetime that is no number": (3, _details(1, lifetime_epsilon="1_0")),
    "a lifetime in another spelling": (3, _details(1, lifetime_epsilon="3.0")),
    "a lifetime as a number": (3, _details(1, lifetime_epsilon=3)),
    "no lifetime": (3, lambda chain: chain[1]["details"].pop("lifetime_epsilon")),
    "four eyes that are neither": (3, _details(2, four_eyes="yes")),
    "a population for nobody": (3, _member(1, "audiences", [])),
    "a population that was not declared": (4, _drop(1)),
    "a charge under another name": (4, _subject(5, population_name="shap")),
    "a charge of another label": (4, _subject(5, label="visits")),
    "a charge of another unit": (4, _member(5, "unit", UNITS)),
    "a charge without its audience": (4, _member(5, "audiences", [])),
    "a publication for a stranger": (4, _member(6, "audiences", ["features-party", "stranger"])),
    "an answer for a stranger": (4, _member(17, "audiences", ["stranger"])),
    "a batch sealed twice": (5, _put(4, event("batch-sealed", **ABOUT, batch="bat_1", details={"n": 9}))),
    "a batch that was not sealed": (5, _drop(3)),
    "a batch of another population": (5, _subject(3, population="pop_2", population_name="eyes", label="visits")),
    "a charge before the seal": (5, lambda chain: chain.insert(3, chain.pop(5))),
    "a charge after the purge": (6, lambda chain: chain.append(charge("rel_8", 0.1))),
    "a purge while a charge is open": (6, lambda chain: chain.insert(29, charge("rel_8", 0.1))),
    "a batch purged twice": (6, lambda chain: chain.append(copy.deepcopy(chain[29]))),
    "a release charged twice": (7, _put(6, charge("rel_1"))),
    "a published release charged again": (7, _end(charge("rel_1"))),
    "a failed release charged again": (7, _end(charge("rel_3", 0.2))),
    "a returned release charged again": (7, _end(charge("rel_2"))),
    "a release asked for twice": (7, lambda chain: chain.insert(11, copy.deepcopy(chain[10]))),
    "a charge of nobody": (7, _subject(5, work=None)),
    "beyond the lifetime ε": (8, _end(charge("rel_8", 2))),
    "beyond the lifetime after a return": (8, _put(10, charge("rel_8", 2.5), published("rel_8"))),
    "beyond the lifetime δ": (8, _end(charge("rel_8", 0.1, delta="0.000002"))),
    "approved by who asked": (9, _member(11, "actor", "apikey:a")),
    "approved by who asked, in capitals": (9, _member(11, "actor", "APIKEY:A")),
    "an approval for somebody else's request": (9, _details(11, requested_by="apikey:c")),
    "approved and never asked for": (9, _drop(10)),
    "approved twice": (9, lambda chain: chain.insert(12, copy.deepcopy(chain[11]))),
    "declined, then approved": (
        9,
        lambda chain: chain.insert(11, copy.deepcopy(chain[10]) | {"kind": "release-declined", "details": {}}),
    ),
    "four eyes charged without an approval": (10, _drop(11)),
    "four eyes charged and never asked for": (10, _drop(10, 11)),
    "four eyes charged by who asked": (10, _member(12, "actor", "apikey:a")),
    "another ε than was approved": (10, _member(12, "epsilon_nano", split(2))),
    "another split than was approved": (10, _member(12, "epsilon_nano", split(1, prior=0.5))),
    "another mechanism than was approved": (10, lambda chain: chain[12].update(details=ASKED | {"mechanism": "rr"})),
    "an answer in four eyes": (
        10,
        _put(10, event("release-charged", epsilon=1, **EYES, **TOLD, batch="bat_2", work="ans_9")),
    ),
    "a charge returned after publication": (11, _put(7, returned("rel_1"))),
    "a published release cancelled": (11, _put(7, cancelled("rel_1"))),
    "a charge returned twice": (11, _put(10, returned("rel_2"))),
    "a charge returned in part": (11, _member(9, "epsilon_nano", split(0.5))),
    "a charge returned as another split": (11, _member(9, "epsilon_nano", split(1, prior=0.5))),
    "a charge returned without being cancelled": (11, _drop(8)),
    "a charge returned to another batch": (
        11,
        lambda chain: (
            chain.insert(4, event("batch-sealed", **ABOUT, batch="bat_3", details={"n": 9})),
            chain[10]["subject"].update(batch="bat_3"),
        ),
    ),
    "a charge returned that was never made": (11, _drop(7, 8)),
    "a failed release cancelled": (11, _end(cancelled("rel_3"))),
    "a failed charge returned": (11, _end(returned("rel_3", 0.2))),
    "cancelled as another state": (11, _details(8, state="accepted")),
    "published without a charge": (12, _drop(5)),
    "published twice": (12, _put(7, published("rel_1"))),
    "published after it was cancelled": (12, _put(9, published("rel_2"))),
    "published after its charge was returned": (12, _put(10, published("rel_2"))),
    "published after it failed": (12, _end(published("rel_3"))),
    "failed without a charge": (12, _drop(14)),
    "failed after publication": (12, _put(7, failed("rel_1"))),
    "a release published as an answer": (12, _member(6, "kind", "answer-published")),
    "an answer published as a release": (12, _member(17, "kind", "release-published")),
    "an answer published as another kind": (12, _details(17, answer="rectangle")),
    "published of another batch": (
        12,
        lambda chain: (
            chain.insert(4, event("batch-sealed", **ABOUT, batch="bat_3", details={"n": 9})),
            chain[7]["subject"].update(batch="bat_3"),
        ),
    ),
    "an answer published for nobody": (12, _member(17, "audiences", [])),
    "an answer shown before it was published": (12, lambda chain: chain.insert(17, shared(chain[17]))),
    "an answer shown to nobody": (12, lambda chain: chain.insert(18, shared(chain[17], audiences=[]))),
    "a query without a predictor": (13, _drop(21)),
    "a query that costs less": (13, _member(22, "epsilon_nano", split(0.05))),
    "queries beyond the cap": (13, lambda chain: chain.__setitem__(slice(26, 26), query("ans_8", 3))),
    "a query after the predictor retired": (13, lambda chain: chain.__setitem__(slice(27, 27), query("ans_8", 3))),
    "a predictor made twice": (13, lambda chain: chain.insert(22, copy.deepcopy(chain[21]))),
    "a predictor retired twice": (13, lambda chain: chain.insert(27, copy.deepcopy(chain[26]))),
    "an audience that nobody allowed": (14, _drop(18)),
    "an audience beyond what was allowed": (14, _details(18, epsilon="0.4")),
    "an audience that is none": (14, _details(19, by_audience="stranger")),
    "an erasure that nobody asked for": (15, _drop(27)),
    "an erasure that hides what was published": (15, _details(28, published=["rel_1"])),
    "an erasure with another effect": (15, _details(28, effect="before any release")),
}
RECEIVED_LIES: dict[str, tuple[int, Change]] = {
    "accepted twice": (16, lambda chain: chain.append(copy.deepcopy(chain[2]))),
    "accepted from nobody": (16, lambda chain: chain[2]["details"].pop("key_id")),
    "accepted for nothing": (
        2,
        _member(2, "epsilon_nano", dict.fromkeys(("clip", "prior", "randomize", "total"), 0)),
    ),
    "another lifetime than before": (17, _details(2, epsilon_lifetime="300")),
    "another lifetime δ than before": (17, _details(2, delta_lifetime="0.1")),
    "another unit than before": (17, _member(2, "unit", UNITS)),
    "another label than before": (17, _subject(2, label="visits")),
    "a batch of two populations": (17, _subject(2, population="pop_7")),
    "two releases and the spending of one": (18, lambda chain: chain.append(accepted("rel_5", 1, "1"))),
    "more than is stated, hidden behind a later figure": (
        18,
        lambda chain: chain.append(accepted("rel_5", 1, "1.2")),
    ),
    "more δ than is stated": (18, _member(2, "delta", "0.0000001")),
    "a stated sum that is no number": (18, _details(2, epsilon_spent="1_0")),
    "a sum that a hand-over would begin again": (
        18,
        lambda chain: chain.append(accepted("rel_7", 1.5, "2", batch="bat_8", key=FIRST.public.id)),
    ),
    "a hand-over twice": (20, lambda chain: chain.append(handed(*HANDED[0]))),
    "a second successor": (20, lambda chain: chain.append(handed(FIRST, FOURTH, None))),
    "a hand-over that skips one": (20, lambda chain: chain.append(handed(THIRD, FOURTH, HANDED[1][2]))),
    "a hand-over to a known key": (20, lambda chain: chain.append(handed(THIRD, FIRST, None))),
    "a hand-over of another key": (20, _details(6, old_key_id=NEWEST)),
    "a hand-over without its signature": (20, lambda chain: chain[6]["details"].pop("hand_over")),
    "a hand-over by somebody else": (
        20,
        lambda chain: chain[6]["details"]["hand_over"]["signatures"][0].update(sig="A" * 86 + "=="),
    ),
    "more stated than the lifetime": (18, _details(4, epsilon_spent="3.5")),
}


def lying(honest: Chain, lies: dict[str, tuple[int, Change]]) -> Iterator[tuple[str, int, Chain]]:
    """(name, number of the rule that it breaks, chain)."""
    for name, (rule, change) in lies.items():
        chain = copy.deepcopy(honest)
        change(chain)
        yield name, rule, chained(chain)


# --- random ones --------------------------------------------------------------------------------------------

VALUES: list[Any] = [None, "", "x", "0", "1", "1.5", "300", "0.000000001", "1_0", "1.50", "٣", 0, 1, -1, True, [], {}]


def mutated(honest: Chain, rng: random.Random) -> Chain:
    """One to three events dropped, doubled, moved or edited, then chained again."""
    chain = copy.deepcopy(honest)
    for _ in range(rng.randint(1, 3)):
        place = rng.randrange(len(chain))
        move = rng.randrange(5)
        if move == 0 and len(chain) > 1:
            del chain[place]
        elif move == 1:
            chain.insert(rng.randint(0, len(chain)), copy.deepcopy(chain[place]))
        elif move == 2:
            chain.insert(rng.randrange(len(chain)), chain.pop(place))
        elif move == 3:  # whose it is
            other = rng.choice(chain)["subject"]
            for name in rng.sample(sorted(other), rng.randint(1, 3)):
                chain[place]["subject"][name] = other[name]
        else:
            _edit(chain, place, rng)
    return chained(chain)


def _edit(chain: Chain, place: int, rng: random.Random) -> None:
    one, other = chain[place], rng.choice(chain)
    name = rng.choice(["kind", "subject", "epsilon_nano", "delta", "unit", "audiences", "actor", "details", "inside"])
    if name != "inside":
        one[name] = copy.deepcopy(other[name]) if rng.random() < 0.8 else rng.choice(VALUES)
        return
    inside = one[rng.choice(["subject", "epsilon_nano", "unit", "details"])]
    if isinstance(inside, dict) and inside:
        with suppress(TypeError):
            inside[rng.choice(sorted(inside))] = rng.choice([*VALUES, *DECLARATION.values()])


def rehearsed(events: Iterable[bytes]) -> Chain:
    """A recorded chain, from the bodies of its events, as something to change."""
    return [json.loads(body) for body in events]
