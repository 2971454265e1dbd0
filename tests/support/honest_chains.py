"""Chains of audit events as honest parties write them, and how a list of events becomes a signed export."""

from __future__ import annotations

import base64
import copy
import hashlib
import json
from collections.abc import Callable, Iterable
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from label_dp.documents.canonical import canonical_bytes
from label_dp.documents.export import AuditExport
from label_dp.documents.hand_over import HAND_OVER_TYPE, HandOver
from label_dp.documents.receipt import public_key_text
from label_dp.documents.signing import EXPORT_TYPE, SigningKey, pae

Chain = list[dict[str, Any]]
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


def rehearsed(events: Iterable[bytes]) -> Chain:
    """A recorded chain, from the bodies of its events, as something to change."""
    return [json.loads(body) for body in events]


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
        *people_chain(),
        *policy_chain(),
    ]


CLICKS: dict[str, Any] = {"population": "pop_3", "population_name": "clicks", "label": "clicked"}
CARTS: dict[str, Any] = {"population": "pop_4", "population_name": "carts", "label": "cart"}
USERS: dict[str, Any] = {"unit": {"column": "user", "kind": "unit", "max_examples": 3}}
VISITS = {"population": "pop_5", "population_name": "visits", "label": "visited"} | USERS
SPENDING = {"population": "pop_6", "population_name": "spending", "label": "spent"} | USERS


def body(name: str, epsilon: str, column: str | None, delta: str = "0") -> dict[str, Any]:
    details = {"name": name, "lifetime_epsilon": epsilon, "lifetime_delta": delta, "unit_column": column}
    return event("people-declared", details=details)


def joined(about: dict[str, Any], people: str) -> dict[str, Any]:
    return event("population-created", **about, **TOLD, details=DECLARATION | {"people": people})


def sealed(about: dict[str, Any], batch: str, ids: str | None = None) -> dict[str, Any]:
    return event("batch-sealed", **about, batch=batch, details={"n": 9} | ({"people_ids": ids} if ids else {}))


def people_chain() -> Chain:
    """Two bodies. 30 a body of examples, 31 and 32 its populations, 33 to 37 their seals, of which 33 and 34 as 35 and
    36 have the same ids, 38 to 42 charges; 43 a body of units, 44 and 45 its populations, 46 and 47 seals, 48 to 51 a
    charge that is returned and two that stand."""
    return [
        body("shoppers", "2", None),
        joined(CLICKS, "shoppers"),
        joined(CARTS, "shoppers"),
        sealed(CLICKS, "bat_3", "a" * 64),
        sealed(CARTS, "bat_4", "a" * 64),
        sealed(CLICKS, "bat_5", "b" * 64),
        sealed(CARTS, "bat_6", "b" * 64),
        sealed(CARTS, "bat_7"),
        charge("rel_3a", 1.5, "bat_3", **CLICKS),
        charge("rel_4a", 0.5, "bat_4", **CARTS),
        charge("rel_5a", 0.25, "bat_5", **CLICKS),
        charge("rel_7a", 0.5, "bat_7", **CARTS),
        charge("rel_6a", 1.75, "bat_6", **CARTS),
        body("households", "6", "user", "0.000045"),
        joined(VISITS, "households"),
        joined(SPENDING, "households"),
        sealed(VISITS, "bat_8"),
        sealed(SPENDING, "bat_9"),
        charge("rel_8a", 1, "bat_8", **VISITS),
        event("release-cancelled", batch="bat_8", work="rel_8a", details={"state": "charged"}, **VISITS, **TOLD),
        event("charge-returned", epsilon=1, batch="bat_8", work="rel_8a", **VISITS, **TOLD),
        charge("rel_8b", 1, "bat_8", **VISITS, delta="0.000001"),
        charge("rel_9a", 1, "bat_9", **SPENDING, delta="0.000001"),
    ]


def ceilings(**stated: Any) -> dict[str, Any]:
    """Ceilings as a policy's events state them; what is not given is none."""
    names = ("release", "example", "person_and_year")
    none = dict.fromkeys((*(f"epsilon_per_{name}" for name in names), "delta_per_release", "four_eyes_above"))
    return none | {"mechanisms": None} | stated


def policy(kind: str, name: str, actor: str, stated: dict[str, Any], **more: Any) -> dict[str, Any]:
    return event(f"policy-{kind}", actor=actor, details={"policy": name * 64, "ceilings": stated} | more)


RIDES: dict[str, Any] = {"population": "pop_7", "population_name": "rides", "label": "fare"}
NARROW = ceilings(
    epsilon_per_release="0.5",
    epsilon_per_example="1",
    epsilon_per_person_and_year="1",
    delta_per_release="0",
    four_eyes_above="0.5",
    mechanisms=["median", "rr-on-bins"],
)
WIDE = ceilings(epsilon_per_release="1", epsilon_per_example="2", epsilon_per_person_and_year="1.5")


def policy_chain() -> Chain:
    """53 a policy, 54 a population, 55 its seal, 56 a charge; 57 a looser policy proposed, 58 applied by somebody else,
    59 a charge that the first one would not have allowed."""
    return [
        policy("applied", "a", "command line: ada", NARROW, proposed_by=None),
        event("population-created", **RIDES, **TOLD, details=dict(DECLARATION)),
        sealed(RIDES, "bat_10"),
        charge("rel_10a", 0.5, "bat_10", **RIDES, details={"mechanism": "rr-on-bins"}),
        policy("proposed", "b", "command line: ada", WIDE),
        policy("applied", "b", "command line: bob", WIDE, proposed_by="command line: ada"),
        charge("rel_10b", 0.75, "bat_10", **RIDES, details={"mechanism": "exponential"}),
        # one person may propose and apply what is no looser
        policy("proposed", "c", "command line: ada", NARROW),
        policy("applied", "c", "command line: ada", NARROW, proposed_by="command line: ada"),
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
    details["chain_head"] = {"day": DAY, "digest": "cd" * 32}
    details |= members.pop("more", {})
    kind = members.pop("kind", "message-accepted")
    about = ABOUT | TOLD | {"details": details} | members
    return event(kind, epsilon=epsilon, batch=batch, work=release, party="features-party", **about)


FIRST, SECOND, THIRD, FOURTH, FIFTH = (
    SigningKey(Ed25519PrivateKey.from_private_bytes(bytes([n]) * 32)) for n in range(1, 6)
)
HANDED = [(FIRST, SECOND, None), (SECOND, THIRD, HandOver.read(HandOver.signed_by(FIRST, SECOND, DAY, None)))]
NEWEST = THIRD.public.id


def handed(old: SigningKey, new: SigningKey, before: HandOver | None) -> dict[str, Any]:
    envelope = HandOver.signed_by(old, new, DAY, before)
    details = {"old_key_id": old.public.id, "new_key_id": new.public.id, "hand_over": envelope}
    return event("key-handed-over", actor="cli", party="features-party", details=details)


def respelled(text: str) -> str:
    """The same bytes in base64, an unused bit set."""
    digits = text.rstrip("=")
    return digits[:-1] + chr(ord(digits[-1]) + 1) + text[len(digits) :]


def handed_raw(old: SigningKey, new: SigningKey, spell: Callable[[str], str] = str, **changed: Any) -> dict[str, Any]:
    """The event of a first hand-over with other members, signed by both keys; `spell`: of the consent."""
    members = {"format": "label-dp-hand-over/1", "day": DAY, "position": 1, "previous": "0" * 64}
    members |= {"old_key": public_key_text(old.public), "new_key": public_key_text(new.public)} | changed
    consent = base64.b64encode(new.key.sign(pae(HAND_OVER_TYPE, canonical_bytes(members)))).decode()
    envelope = json.loads(old.sign(HAND_OVER_TYPE, {"consent": spell(consent)} | members))
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
