"""Somebody with a shell at the labels party charges less than was released: refused where it is written, and found by
every checker where it was written past the rules; the receiver refuses what its own sum contradicts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from features_party.bootstrap import Services
from label_dp import errors
from label_dp.audit.compare import ComparedStore, StoreComparison, compare_parties
from label_dp.audit.events import ACCEPTED, DOCUMENT_REFUSED, POPULATION_CREATED, PUBLISHED, RETURNED, Event
from label_dp.audit.rulebook import RuleBroken
from label_dp.audit.rules import check_rules
from label_dp.audit.show import sentence
from label_dp.audit.store import AuditStore, read_export
from label_dp.audit.verification import verify_file, verify_store
from label_dp.documents.canonical import canonical_bytes, digest
from label_dp.documents.members import Unit
from label_dp.documents.signing import SigningKey
from label_dp.privacy import ZERO, Epsilon, EpsilonSplit
from labels_party.ledger.populations import Population
from labels_party.message.plan import ReleasePlan
from tests.support import chain_verdicts as verdicts
from tests.support import honest_chains as chains
from tests.support.calibrations import charged, score_table, signed
from tests.support.labels import LabelsParty, label_table
from tests.support.messages import Sender, features_party, world
from tests.support.predicting import ask, made, tables, with_features
from tests.support.receipts import Pair, pair

VALUES = np.array([1.0, 2.5, 7.0])


@pytest.fixture
def both(tmp_path: Path) -> Iterator[Pair]:
    with pair(tmp_path) as started:
        yield started


def owner_of(party: LabelsParty, name: str = "shop") -> Population:
    return party.services.database.read("p", lambda c: party.services.populations.get(c, name))


def give_back(party: LabelsParty, release: str, times: int = 1) -> None:
    """One call of the ledger's own, with everything right."""
    s, owner = party.services, owner_of(party)
    found = party.state(release)
    split = ReleasePlan.from_json(found.plan).split
    for _ in range(times):
        s.database.write("t", lambda c: s.ledger.give_back(c, owner, found.batch, release, split, "shell"))


def past_the_rules(party: LabelsParty, event: Event) -> None:
    """Chained as it must be, by somebody who leaves the rules out."""
    audit = party.services.audit
    party.services.database.write("t", lambda c: AuditStore.append(audit, c, event) and None)


def chain(party: LabelsParty) -> list[Event]:
    return party.services.database.read("e", lambda c: list(party.services.audit.scan(c)))


# --- refused where it is written ---------------------------------------------------------------------------


def test_the_charge_of_a_published_release_cannot_be_given_back(party_on: LabelsParty) -> None:
    batch = party_on.sealed_batch(label_table(20), lifetime="1")
    release = party_on.release(batch, "1")
    before = chain(party_on)
    with pytest.raises(errors.Conflict, match="its charge stands"):
        give_back(party_on, release)
    # whatever the tables say, the chain decides
    party_on.services.database.write("t", lambda c: c.exec_driver_sql("UPDATE work SET state='charged', attempt=0"))
    with pytest.raises(RuleBroken) as broken:
        give_back(party_on, release)
    assert broken.value.rule.number == 11
    assert chain(party_on) == before
    with pytest.raises(errors.BudgetExceeded):
        party_on.charge(batch, "1", additional_release=True)
    assert party_on.spent(batch) == "1"


def test_a_charge_cannot_be_given_back_once_a_draw_may_have_begun(party: LabelsParty) -> None:
    batch = party.sealed_batch(label_table(20))
    release = party.charge(batch, "1")
    pipeline = party.services.pipeline
    assert party.services.database.write("lease", lambda c: pipeline.take(c, release)) is not None
    with pytest.raises(errors.Conflict, match="its charge stands"):
        give_back(party, release)
    with pytest.raises(errors.Conflict):
        party.services.decisions.cancel(release, "test")
    assert party.spent(batch) == "1"


def test_a_charge_is_given_back_once_and_by_a_cancellation(party: LabelsParty) -> None:
    batch = party.sealed_batch(label_table(20))
    release = party.charge(batch, "1")
    with pytest.raises(RuleBroken, match="not cancelled"):
        give_back(party, release)
    party.services.decisions.cancel(release, "test")
    assert party.spent(batch) == "0"
    party.services.database.write("t", lambda c: c.exec_driver_sql("UPDATE work SET state = 'charged'") and None)
    with pytest.raises(RuleBroken, match="rule 11"):
        give_back(party, release)
    with suppress(ValueError):  # its manifest would state less spent than it costs
        party.services.pipeline.run_due()
    assert not [e for e in chain(party) if e.kind == PUBLISHED], "a cancelled release is not published"
    assert party.spent(batch) == "0"


@pytest.mark.parametrize("what", ["release", "calibration"])
def test_nothing_is_published_without_an_open_charge(party: LabelsParty, what: str) -> None:
    batch = party.sealed_batch(label_table(60))
    s = party.services
    name = party.charge(batch, "1") if what == "release" else charged(party, batch, score_table(label_table(60)))
    other = name[:-1] + ("0" if name[-1] != "0" else "1")
    s.database.write("t", lambda c: c.exec_driver_sql(f"UPDATE work SET id = '{other}'") and None)
    assert s.pipeline.run_due() == 0
    assert not [e for e in chain(party) if e.kind in (PUBLISHED, "answer-published")]


def test_a_population_is_declared_once_whatever_its_table_says(party: LabelsParty) -> None:
    s, batch = party.services, party.sealed_batch(label_table(20), lifetime="1")
    party.release(batch, "1")
    rich = replace(owner_of(party), lifetime=Epsilon.parse("100"))
    s.database.write("t", lambda c: c.exec_driver_sql("UPDATE populations SET lifetime_nano = 100000000000") and None)
    with pytest.raises(RuleBroken) as broken:
        party.charge(batch, "1", additional_release=True)
    assert broken.value.rule.number == 8
    s.database.write("t", lambda c: c.exec_driver_sql("UPDATE populations SET name = 'other'") and None)
    for again in (rich, replace(rich, id="pop_again"), replace(rich, name="shop again")):
        with pytest.raises(RuleBroken) as broken:
            s.database.write("t", lambda c, again=again: s.populations.create(c, again, "shell") and None)  # type: ignore[misc]  # mypy cannot infer a lambda with a default
        assert broken.value.rule.number == 3


# --- found where it was written past the rules -------------------------------------------------------------


def test_every_checker_finds_an_event_that_was_written_past_the_rules(both: Pair, tmp_path: Path) -> None:
    release = both.release("1")
    both.pull(release)
    labels = both.labels
    (published,) = [e for e in chain(labels) if e.kind == PUBLISHED]
    (charge,) = [e for e in chain(labels) if e.kind == "release-charged"]
    (declared,) = [e for e in chain(labels) if e.kind == POPULATION_CREATED]
    free = replace(published, subject=replace(published.subject, work="rel_free"))
    copy = both.keep_copy(labels.home)
    written = {
        11: replace(charge, kind=RETURNED, details={}),
        12: free,
        3: replace(declared, details=dict(declared.details) | {"lifetime_epsilon": "1000"}),
    }
    for rule, event in written.items():
        both.restore(labels.home, copy)
        past_the_rules(labels, replace(event, time=""))
        s, export = labels.services, both.labels_export()
        for check in (
            lambda s=s: s.database.read("v", lambda c: verify_store(c, s.audit, s.key.public)),
            lambda export=export, s=s: verify_file(export, lambda _: s.key.public),
            lambda export=export: both.receiver.compare(export),
        ):
            with pytest.raises(RuleBroken) as broken:
                check()
            assert broken.value.rule.number == rule
        assert verdicts.standalone(export.read_bytes(), s.key, tmp_path).rule == rule


def test_what_was_accepted_is_charged_at_the_other_side(both: Pair) -> None:
    """A labels party that takes a release out of its chain, or charges less, is found in both directions."""
    from label_dp.audit.compare import ComparedStore, compare_parties

    both.pull(both.release("1"))
    both.pull_answer()
    key, receiver = both.labels.services.key.public, both.receiver.key.public
    features = both.receiver.events()

    def findings(events: list[Event]) -> list[tuple[str, Any]]:
        found = compare_parties(ComparedStore(events, key, "theirs"), ComparedStore(features, receiver, "ours"))
        return [(one["kind"], one.get("rule")) for one in found.findings]

    events = [e for e in chain(both.labels) if e.kind != "receipt-received"]
    assert [kind for kind, _ in findings(events)] == ["missing-receipt"] * 2
    less = EpsilonSplit(ZERO, ZERO, Epsilon(1))
    half = [replace(e, split=less) if e.kind == "release-charged" else e for e in events]
    gone = [e for e in events if e.kind != "release-charged"]
    for lie in (half, gone):
        assert findings(lie)[:2] == [("unmatched", 19)] * 2
    for found in both.compare_both():
        assert found["agrees"], found


# --- what a receiver refuses -------------------------------------------------------------------------------


KEYS = SigningKey.generate(), SigningKey.generate()


def side(key: SigningKey, events: chains.Chain, made: str = "") -> ComparedStore:
    return ComparedStore(
        read_export(chains.whole(chains.chained(events), key), key.public).events, key.public, "a store", made
    )


def compared(own: chains.Chain, accepted: list[dict[str, Any]], made: str = "") -> StoreComparison:
    """A receiver's live store against the export of a labels party that begins as an honest one."""
    there = side(KEYS[0], chains.labels_chain()[:5] + own, made)
    found = compare_parties(there, side(KEYS[1], [chains.event("store-created"), *accepted]))
    check_rules(there.events)
    return found


def accepted(release: str, spent: str = "2", key: SigningKey = KEYS[0]) -> dict[str, Any]:
    stated: dict[str, Any] = {
        "epsilon_spent": spent,
        "epsilon_lifetime": "3",
        "delta_spent": "0",
        "delta_lifetime": "0.000001",
    }
    details = {"manifest_digest": chains.published(release)["details"]["manifest_sha256"], "key_id": key.public.id}
    first = canonical_bytes(chains.chained(chains.labels_chain()[:1])[0])
    stated["chain_head"] = {"day": chains.DAY, "digest": digest(first)}
    about = chains.ABOUT | chains.TOLD | {"batch": "bat_1", "work": release}
    return chains.event("message-accepted", epsilon=1, **about, details=details | stated)


@pytest.mark.parametrize("made", ["2020-01-01", "2026-11-19T23:59:59Z", chains.DAY])
def test_an_export_that_claims_to_be_old_hides_nothing_its_chain_denies(made: str) -> None:
    """What was published and returned, or failed, is no item that came later."""
    second = [chains.charge("rel_2"), chains.published("rel_2")]
    for end in ([chains.cancelled("rel_1"), chains.returned("rel_1")], [chains.failed("rel_1")]):
        found = compared([chains.charge("rel_1"), *end, *second], [accepted("rel_1"), accepted("rel_2")], made)
        assert [(one["kind"], one["work"]) for one in found.findings] == [("missing-work", "rel_1")]
    # the control: of what it does not know an older export cannot tell, on a day after its last event
    newer = accepted("rel_3", "3") | {"time": "2026-11-21"}
    assert not compared(second, [newer], made).findings
    # and one that lacks what came before its own last event is not old
    assert compared(second, [accepted("rel_3", "3") | {"time": "2026-11-19"}], "2020-01-01").findings


def test_what_was_charged_for_others_is_not_what_was_accepted() -> None:
    honest = [chains.charge("rel_1"), chains.published("rel_1")]
    assert not compared(honest, [accepted("rel_1")]).findings
    (found,) = compared(honest, [accepted("rel_1") | {"audiences": ["features-party", "somebody"]}]).findings
    assert (found["kind"], found["rule"]) == ("unmatched", 19)


def test_items_of_another_key_of_the_labels_party_are_told_not_passed_over() -> None:
    honest = [chains.charge("rel_1"), chains.published("rel_1")]
    assert not compared(honest, [accepted("rel_1")]).notes
    found = compared(honest, [accepted("rel_1"), accepted("rel_2", "1", KEYS[1])])
    assert not found.findings
    (note,) = found.notes
    assert "1 accepted item" in note
    assert KEYS[0].public.id in note


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[Services]:
    services = features_party(tmp_path / "home")
    yield services
    services.close()


def send(sender: Sender, folder: Path, release: str, spent: str, **members: Any) -> Path:
    data, path = world(20), folder / f"{release}.parquet"
    sender.write(path, data.ids, data.labels, release=release, epsilon="1", epsilon_spent=spent, **members)
    return path


def of_kind(party: Services, *kinds: str) -> list[Event]:
    return [e for e in party.database.read("e", lambda c: list(party.audit.scan(c))) if e.kind in kinds]


def test_two_received_and_one_stated_is_refused_and_on_record(receiver: Services, tmp_path: Path) -> None:
    sender = Sender()
    receiver.pinned.pin(sender.public_key(tmp_path))
    receiver.messages.accept(send(sender, tmp_path, "rel_1", "1"))
    second = send(sender, tmp_path, "rel_2", "1")
    for _ in range(2):
        with pytest.raises(errors.Contradicted, match="rule 18"):
            receiver.messages.accept(second)
    assert len(of_kind(receiver, ACCEPTED)) == 1
    (refused,) = of_kind(receiver, DOCUMENT_REFUSED)
    assert refused.split.total == Epsilon(0)
    assert refused.details["rule"] == 18
    assert refused.details["refused"] == receiver.messages.verify(second).digest
    assert "states ε 1 as spent" in sentence(refused)
    assert list((tmp_path / "home" / "messages").glob("rel_2*")) == []
    # an answer of the same batch counts in the same sum
    with pytest.raises(errors.Contradicted):
        receiver.answers.accept(signed(sender.key, VALUES, [30, 60], batch="bat_1", epsilon_spent="1.4"))
    assert receiver.answers.accept(signed(sender.key, VALUES, [30, 60], batch="bat_1", epsilon_spent="1.5")).fresh
    # a later figure does not excuse the earlier one
    receiver.messages.accept(send(sender, tmp_path, "rel_3", "4"))
    with pytest.raises(errors.Contradicted):
        receiver.messages.accept(second)
    assert len(of_kind(receiver, DOCUMENT_REFUSED)) == 2
    check_rules(receiver.database.read("e", lambda c: list(receiver.audit.scan(c))))


def test_items_may_come_in_any_order(receiver: Services, tmp_path: Path) -> None:
    sender = Sender()
    receiver.pinned.pin(sender.public_key(tmp_path))
    for number in (3, 1, 4, 2):
        receiver.messages.accept(send(sender, tmp_path, f"rel_{number}", str(number)))
    with pytest.raises(errors.Contradicted):
        receiver.messages.accept(send(sender, tmp_path, "rel_5", "4"))
    assert len(of_kind(receiver, ACCEPTED)) == 4


def test_an_acceptance_reads_as_much_however_many_came_before(
    receiver: Services, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of its own labels party and of another one that uses the same ids."""
    senders = Sender(), Sender()
    for one in senders:
        receiver.pinned.pin(one.public_key(tmp_path))
    read: list[int] = []
    parse = Event.from_body
    monkeypatch.setattr(Event, "from_body", lambda body: read.append(1) or parse(body))
    counts = []
    for number in range(1, 11):
        for one in senders:
            path, before = send(one, tmp_path, f"rel_{number}", str(number)), len(read)
            receiver.messages.accept(path)
        counts.append(len(read) - before)
    assert set(counts[2:]) == {counts[2]}


def test_another_declaration_of_a_population_is_refused(receiver: Services, tmp_path: Path) -> None:
    sender, stranger = Sender(), Sender()
    for one in (sender, stranger):
        (tmp_path / one.key.public.id[-8:]).mkdir()
        receiver.pinned.pin(one.public_key(tmp_path / one.key.public.id[-8:]))
    receiver.messages.accept(send(sender, tmp_path, "rel_1", "1"))
    for number, lie in enumerate(
        (
            {"epsilon_lifetime": "100"},
            {"unit": Unit(kind="unit", column="u", max_examples=2, epsilon_per_unit="2", examples_beyond=0)},
        )
    ):
        with pytest.raises(errors.Contradicted, match="rule 17"):
            receiver.messages.accept(send(sender, tmp_path, f"rel_b{number}", "1", batch=f"b{number}", **lie))
    # one labels party's words say nothing of another's
    receiver.messages.accept(send(stranger, tmp_path, "rel_1", "1", epsilon_lifetime="100"))
    assert len(of_kind(receiver, ACCEPTED)) == 2


# --- honest ones pass --------------------------------------------------------------------------------------


def test_recorded_flows_of_a_labels_party_keep_every_rule(tmp_path: Path) -> None:
    """Releases, answers, predictors, cancellations, failures, four eyes, erasures and purges, as they are written."""
    with LabelsParty(tmp_path / "home", worker=False) as party:
        _recorded(party, tmp_path)


def _recorded(party: LabelsParty, tmp_path: Path) -> None:
    recorded = recorded_day(party)
    kinds = {e.kind for e in recorded}
    wanted = {"release-charged", "charge-returned", "release-approved", "release-declined", "answer-published"}
    wanted |= {"predictor-created", "predictor-retired", "label-erased", "batch-purged", "release-failed"}
    assert kinds >= wanted, wanted - kinds
    s = party.services
    s.database.read("v", lambda c: verify_store(c, s.audit, s.key.public))
    envelope = s.database.read("e", lambda c: s.audit.export(c, s.key))
    assert verdicts.product(envelope, s.key).rule is None
    assert verdicts.standalone(envelope, s.key, tmp_path).rule is None
    again = chains.whole(chains.chained([json.loads(e.body()) for e in recorded]), s.key)
    assert verdicts.standalone(again, s.key, tmp_path).rule is None


def recorded_day(party: LabelsParty) -> list[Event]:
    """The chain after one of everything."""
    owner, officer = party.client("owner"), party.client("auditor")
    labels, features = tables()
    batch = with_features(party, labels, features)
    party.release(batch, "1")
    party.services.decisions.cancel(party.charge(batch, "1", additional_release=True), "command line")
    name = charged(party, batch, score_table(labels), additional_release=True)
    party.services.pipeline.run(name)
    predictor = made(party, batch)
    ask(party, predictor)
    ask(party, predictor)
    party.services.companions.predictors.retire(predictor, "test")
    broken = party.charge(batch, "1", additional_release=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(party.services.message.engine, "draw", lambda _job: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            party.services.pipeline.run(broken)
    body = {"name": "eyes", "label": "visits", "domain": "0:3", "lifetime_epsilon": "3", "four_eyes": True}
    owner.post("/v1/populations", json=body | {"missing_label": 0, "audiences": ["features-party"]})
    second = owner.post("/v1/populations/eyes/batches", json={"presence": "public"}).json()["id"]
    owner.post(f"/v1/batches/{second}/labels", json={"records": [{"example_id": "x", "label": 1}]})
    owner.post(f"/v1/batches/{second}/seal")
    for more, decision in ((False, "approve"), (True, "decline")):
        asked = {"epsilon": "1", "mechanism": "one-bit", "additional_release": more}
        release = owner.post(f"/v1/batches/{second}/releases", json=asked).json()["id"]
        assert officer.post(f"/v1/releases/{release}/{decision}").status_code == 200
        party.services.pipeline.run_due()
    assert owner.post("/v1/populations/eyes/erasures", json={"example_ids": ["x"]}).status_code == 202
    party.services.erasures.finish()
    for one in (batch, second):
        assert owner.post(f"/v1/batches/{one}/purge").status_code == 200
    return chain(party)
