"""Audit chains that lie, for long: random changes of an honest and of a recorded chain, judged by all checkers; and the
findings of a hostile review about the ledger as it is seen from outside."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path

import pytest

from label_dp import errors
from label_dp.audit.rulebook import RuleBroken
from label_dp.audit.verification import compare_files
from label_dp.documents.signing import SigningKey
from tests.integration.test_days import SECOND, day
from tests.integration.test_seen_heads import forked
from tests.integration.test_under_charging import give_back, recorded_day, send
from tests.soak.conftest import Scale
from tests.soak.report import Report
from tests.support import chain_verdicts as verdicts
from tests.support import honest_chains as chains
from tests.support import lying_chains as lies
from tests.support import mutated_chains as mutants
from tests.support.labels import LabelsParty, label_table
from tests.support.messages import Sender, features_party
from tests.support.receipts import pair


def _judged(honest: chains.Chain, folder: Path, scale: Scale) -> tuple[int, int, list[str]]:
    """(chains, those refused, where the two checkers differ) in a third of the seconds."""
    key, rng, end = SigningKey.generate(), random.Random(scale.seed), time.monotonic() + scale.seconds / 3
    tried, refused, differ = 0, 0, list[str]()
    while time.monotonic() < end:
        chain = mutants.mutated(honest, rng)
        envelope = chains.whole(chain, key)
        ours, theirs = verdicts.product(envelope, key), verdicts.standalone(envelope, key, folder)
        if (ours.rule is None) != (theirs.rule is None) or (ours.rule and theirs.rule and ours.rule != theirs.rule):
            differ.append(f"{ours} / {theirs}")
        tried, refused = tried + 1, refused + (ours.rule is not None)
    return tried, refused, differ


def test_changed_chains_are_judged_alike(scale: Scale, report: Report, tmp_path: Path) -> None:
    with LabelsParty(tmp_path / "home", worker=False) as party:
        recorded = [json.loads(event.body()) for event in recorded_day(party)]
    told = [_judged(one, tmp_path, scale) for one in (chains.labels_chain(), chains.features_chain(), recorded)]
    tried, refused = (sum(one[place] for one in told) for place in (0, 1))
    differ = [why for one in told for why in one[2]]
    report.row(tried, tried - len(differ), f"one verdict of product and standalone verifier; {refused:,} refused")
    assert not differ, differ[:5]


def test_under_charging(report: Report, tmp_path: Path) -> None:
    refused = []
    with LabelsParty(tmp_path / "home", worker=False) as party:
        batch = party.sealed_batch(label_table(20), lifetime="1")
        release = party.release(batch, "1")
        for statement in ("SELECT 1", "UPDATE work SET state = 'charged', attempt = 0"):
            party.services.database.write("t", lambda c, text=statement: c.exec_driver_sql(text) and None)  # type: ignore[misc]  # mypy cannot infer a lambda with a default
            try:
                give_back(party, release)
            except (errors.Conflict, RuleBroken) as refusal:
                refused.append(type(refusal).__name__)
        spent = party.spent(batch)
    key, found, told = SigningKey.generate(), 0, 0
    corpus = [*lies.lying(chains.labels_chain(), lies.LIES), *lies.lying(chains.features_chain(), lies.RECEIVED_LIES)]
    for _, rule, chain in corpus:
        envelope = chains.whole(chain, key)
        told += 1
        found += verdicts.product(envelope, key).rule == rule == verdicts.standalone(envelope, key, tmp_path).rule
    receiver, sender = features_party(tmp_path / "receiver"), Sender()
    receiver.pinned.pin(sender.public_key(tmp_path))
    receiver.messages.accept(send(sender, tmp_path, "rel_1", "1"))
    with pytest.raises(errors.Contradicted):
        receiver.messages.accept(send(sender, tmp_path, "rel_2", "1"))
    on_record = receiver.database.read("e", lambda c: receiver.audit.events(c, kind="document-refused"))
    receiver.close()
    report.finding(
        "1 who has a shell can under-charge unseen",
        tried="one call of give_back on a published release, also with its row changed; a corpus of lying chains; two "
        "messages that state the spending of one",
        before="the charge went back; product, --against and standalone verifier said yes; the receiver took both",
        after=f"refused {len(refused)} of 2 times ({', '.join(refused)}), ε {spent} stays spent; {found} of {told} "
        "lying chains refused by both checkers under the same rule; the second message refused, "
        f"{len(on_record)} on record",
    )
    assert (len(refused), spent, found, len(on_record)) == (2, "1", told, 1)


def test_forks(report: Report, tmp_path: Path) -> None:
    with pair(tmp_path) as both:
        one, two = forked(both)
        first = both.receiver.compare(one)["agrees"]
        second = [finding["kind"] for finding in both.receiver.compare(two)["findings"]]
        key = both.labels.services.key.public
        without = [finding["kind"] for finding in compare_files(one, two, lambda _: key)["findings"]]
    report.finding(
        "2 two exports of the other party cannot be compared",
        tried="a labels party goes on twice from one copy, and shows one receiver both exports",
        before="both agreed with the receiver's store; no command compared them",
        after=f"the first agrees: {first}; the second against the head kept: {', '.join(second)}; one export against "
        f"the other: {', '.join(without)}",
    )
    assert (first, second, without) == (True, ["fork"], ["fork"])


def test_times(report: Report, tmp_path: Path) -> None:
    seen = day(tmp_path, 400)
    seconds = sum(len(SECOND.findall(text)) for text in seen.values())
    report.finding(
        "3 times tell when labels were complete",
        tried=f"a sealed and released day, as {len(seen)} views of an auditor and a receiver and the export show it",
        before="the second of the seal and of each event in exports, audit events and an auditor's views",
        after=f"{seconds} times finer than a day in {len(seen)} views",
    )
    assert seconds == 0
