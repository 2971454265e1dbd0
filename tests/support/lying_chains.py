"""Chains of audit events that lie, each chained as a real one, with the number of the rule that it breaks.

They are made from the honest ones of `honest_chains`. Every checker takes what `whole` says of a list of events: the
product, `--against`, and the standalone verifier.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

from label_dp.documents.receipt import public_key_text
from tests.support.honest_chains import (
    ABOUT,
    ASKED,
    CARTS,
    CLICKS,
    DECLARATION,
    EYES,
    FIFTH,
    FIRST,
    FOURTH,
    HANDED,
    NARROW,
    NEWEST,
    RIDES,
    SPENDING,
    THIRD,
    TOLD,
    VISITS,
    WIDE,
    Chain,
    accepted,
    cancelled,
    chained,
    charge,
    event,
    failed,
    handed,
    handed_raw,
    published,
    query,
    respelled,
    returned,
    sealed,
    shared,
    split,
)

Change = Callable[[Chain], object]


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
RIDDEN = [
    charge(name, epsilon, "bat_10", **RIDES, details={"mechanism": "rr-on-bins"})
    for name, epsilon in (("rel_x", 0.5), ("rel_y", 0.1))
]
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
    "four eyes that are null": (3, _details(2, four_eyes=None)),
    "a lifetime δ that is null": (3, _details(2, lifetime_delta=None)),
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
    "a zero where false was approved": (10, lambda chain: chain[12].update(details=ASKED | {"additional_release": 0})),
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
    "an answer that is true, published as 1": (
        12,
        lambda chain: (chain[16]["details"].update(answer=True), chain[17]["details"].update(answer=1)),
    ),
    "a charge for a lost batch, published": (12, _details(5, lost=["bat_0"])),
    "a charge of a restore, published as any other": (12, _details(5, restored=True)),
    "an answer shown before it was published": (12, lambda chain: chain.insert(17, shared(chain[17]))),
    "an answer shown to nobody": (12, lambda chain: chain.insert(18, shared(chain[17], audiences=[]))),
    "a message shown as an answer is": (12, lambda chain: chain.insert(7, shared(chain[6]))),
    "a query without a predictor": (13, _drop(21)),
    "a query that costs less": (13, _member(22, "epsilon_nano", split(0.05))),
    "queries beyond the cap": (13, lambda chain: chain.__setitem__(slice(26, 26), query("ans_8", 3))),
    "a query after the predictor retired": (13, lambda chain: chain.__setitem__(slice(27, 27), query("ans_8", 3))),
    "a predictor made twice": (13, lambda chain: chain.insert(22, copy.deepcopy(chain[21]))),
    "a predictor retired twice": (13, lambda chain: chain.insert(27, copy.deepcopy(chain[26]))),
    "an audience that nobody allowed": (14, _drop(18)),
    "an audience beyond what was allowed": (14, _details(18, epsilon="0.4")),
    "an audience that is none": (14, _details(19, by_audience="stranger")),
    "a body of people twice": (21, lambda chain: chain.insert(31, copy.deepcopy(chain[30]))),
    "a body of people without a name": (21, _details(30, name="")),
    "a body of people with a lifetime that is no number": (21, _details(30, lifetime_epsilon="2.0")),
    "a body of people without a lifetime δ": (21, lambda chain: chain[30]["details"].pop("lifetime_delta")),
    "a body of people with a number as its unit column": (21, _details(43, unit_column=1)),
    "a population of people that nobody declared": (21, _drop(30)),
    "a population of people whose name is a number": (21, _details(31, people=1)),
    "a population with another unit column than its people": (21, _details(43, unit_column="household")),
    "a population of units among people that are examples": (21, _details(43, unit_column=None)),
    "the same ids twice in a population": (21, _details(35, people_ids="a" * 64)),
    "ids of people that are no MAC": (21, _details(35, people_ids=5)),
    "beyond the people's lifetime, by batches of the same ids": (21, _put(43, charge("rel_x", 0.1, "bat_4", **CARTS))),
    "beyond the people's lifetime, by the largest batches": (21, _put(43, charge("rel_x", 0.1, "bat_7", **CARTS))),
    "batches of other ids, said to be of the same nowhere": (21, lambda chain: chain[36]["details"].pop("people_ids")),
    "the same ids, after which ids may repeat": (21, _put(42, sealed(CLICKS, "bat_x", "may-repeat"))),
    "beyond the people's lifetime by units": (
        21,
        lambda chain: chain.append(charge("rel_x", 0.1, "bat_9", **SPENDING)),
    ),
    "beyond the people's lifetime after a return": (
        21,
        lambda chain: chain.insert(51, charge("rel_x", 1.5, "bat_8", **VISITS)),
    ),
    "beyond the people's lifetime δ": (21, _details(43, lifetime_delta="0.000044")),
    "a charge beyond the policy's ceiling": (22, _member(56, "epsilon_nano", split(0.6))),
    "a charge of δ beyond the policy's ceiling": (22, _member(56, "delta", "0.0000001")),
    "an example beyond the policy's ceiling": (22, _put(57, *RIDDEN)),
    "a year beyond the policy's ceiling": (22, lambda chain: chain.append(charge("rel_x", 0.4, "bat_10", **RIDES))),
    "a charge for nothing named, where the policy names None": (
        22,
        lambda chain: (
            chain[53]["details"].update(ceilings=NARROW | {"mechanisms": ["None"]}),
            chain[56]["details"].pop("mechanism"),
        ),
    ),
    "a mechanism that the policy does not allow": (22, _details(56, mechanism="exponential")),
    "an answer that the policy does not allow": (22, _details(56, answer="sum")),
    "a charge that nobody approved, where the policy asks for it": (
        22,
        _details(53, ceilings=NARROW | {"four_eyes_above": "0.4"}),
    ),
    "a policy loosened by one person": (22, _member(58, "actor", "Command line: Ada")),
    "a policy loosened without a proposal": (22, _drop(57)),
    "a policy that is looser than what was proposed": (22, _details(58, ceilings=WIDE | {"epsilon_per_release": "2"})),
    "a policy that names another proposer": (22, _details(58, proposed_by="command line: eve")),
    "a policy that hides who proposed it": (22, _details(58, proposed_by=None)),
    "a policy of nobody": (22, _member(53, "actor", "")),
    "a policy without a name": (22, _details(53, policy="")),
    "a policy without ceilings": (22, lambda chain: chain[53]["details"].pop("ceilings")),
    "a policy without one of the ceilings": (
        22,
        lambda chain: chain[53]["details"].update(ceilings={n: v for n, v in NARROW.items() if n != "mechanisms"}),
    ),
    "a ceiling in another spelling": (22, _details(53, ceilings=NARROW | {"epsilon_per_release": "0.50"})),
    "a ceiling that is a number": (22, _details(53, ceilings=NARROW | {"epsilon_per_release": 1})),
    "mechanisms of a policy out of order": (22, _details(53, ceilings=NARROW | {"mechanisms": ["rr", "median"]})),
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
    "a hand-over number 2 that follows none": (20, _put(9, handed_raw(FOURTH, FIFTH, position=2))),
    "a first hand-over that follows one": (20, _put(9, handed_raw(FOURTH, FIFTH, previous="1" * 64))),
    "a hand-over on a day that is none": (20, _put(9, handed_raw(FOURTH, FIFTH, day="2026-02-30"))),
    "a key in another spelling of its base64": (
        20,
        _put(9, handed_raw(FOURTH, FIFTH, old_key=respelled(public_key_text(FOURTH.public)))),
    ),
    "a consent in another spelling of its base64": (20, _put(9, handed_raw(FOURTH, FIFTH, respelled))),
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
