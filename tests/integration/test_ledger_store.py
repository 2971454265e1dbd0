"""The ledger's store on both engines: a cap holds exactly under concurrency, charges are events, totals derived."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import sqlalchemy as sa

from label_dp.audit.events import CHARGED, RETURNED, Event, Subject
from label_dp.audit.store import AuditStore
from label_dp.errors import AuditChainBroken, BudgetExceeded, InvalidEpsilon
from label_dp.privacy import ZERO, Epsilon, EpsilonSplit
from label_dp.store.migrations import append_only_drop
from tests.support.labels import LabelsParty, label_table
from tests.support.ledger_race import race


def population(party: LabelsParty, name: str = "shop") -> Any:
    return party.services.database.read("p", lambda c: party.services.populations.get(c, name))


NAMES = itertools.count()


def spend(party: LabelsParty, owner: Any, batch: str, nano: int, release: str | None = None) -> bool:
    name = release or f"rel_{next(NAMES)}"
    split = EpsilonSplit(ZERO, Epsilon(nano // 3), Epsilon(nano - nano // 3))
    ledger = party.services.ledger
    try:
        party.services.database.write("charge", lambda c: ledger.charge(c, owner, batch, name, split, "test", {}))
    except BudgetExceeded:
        return False
    return True


def test_sixteen_threads_against_a_cap_get_exactly_the_cap(party_on: LabelsParty) -> None:
    batch = party_on.sealed_batch(label_table(5), lifetime="0.0000001")  # 100 nano-ε
    owner = population(party_on)
    with ThreadPoolExecutor(16) as pool:
        jobs = [pool.submit(lambda: [spend(party_on, owner, batch, 1) for _ in range(25)]) for _ in range(16)]
        granted = sum(sum(job.result()) for job in jobs)
    assert granted == 100
    assert party_on.spent(batch) == "0.0000001"
    count, _ = party_on.services.database.read("v", party_on.services.audit.verify)
    assert count == 3 + 100


@pytest.mark.processes
def test_sixty_four_clients_of_four_processes_get_exactly_the_cap(party_on: LabelsParty) -> None:
    """The shape of anchor 8; a thousand spends each against a cap of a thousand are in `make soak`."""
    batch = party_on.sealed_batch(label_table(5), lifetime="0.0000001")  # 100 nano-ε
    found = race(party_on.settings.url, "shop", batch, clients=64, spends=4, processes=4)
    assert sum(f.granted for f in found) == 100
    assert sum(f.granted + f.refused for f in found) == 256
    assert party_on.spent(batch) == "0.0000001"
    events = party_on.services.database.read("e", lambda c: party_on.services.audit.events(c, kind=CHARGED))
    assert len({(e.subject.work, e.sequence) for e in events}) == 100
    count, _ = party_on.services.database.read("v", party_on.services.audit.verify)
    assert count == 3 + 100


def test_batches_are_capped_each_for_itself_under_concurrency(party_on: LabelsParty) -> None:
    batches = [party_on.sealed_batch(label_table(5, prefix=f"b{i}"), lifetime="0.00000001") for i in range(4)]
    owner = population(party_on)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda i: (i % 4, spend(party_on, owner, batches[i % 4], 1)), range(60)))
    assert [sum(ok for i, ok in found if i == j) for j in range(4)] == [10, 10, 10, 10]
    assert [party_on.spent(b) for b in batches] == ["0.00000001"] * 4
    report = party_on.services.database.read("r", lambda c: party_on.services.ledger.report(c, owner))
    assert report["epsilon_spent_at_most"] == "0.00000001"


def test_charges_of_one_batch_add_up_exactly(party_on: LabelsParty) -> None:
    batch = party_on.sealed_batch(label_table(5), lifetime="1")
    owner = population(party_on)
    assert spend(party_on, owner, batch, 300_000_001)
    assert spend(party_on, owner, batch, 699_999_998)
    assert party_on.spent(batch) == "0.999999999"
    assert not spend(party_on, owner, batch, 2)
    assert spend(party_on, owner, batch, 1)
    assert party_on.spent(batch) == "1"


def test_a_refused_charge_leaves_no_event(party_on: LabelsParty) -> None:
    batch = party_on.sealed_batch(label_table(5), lifetime="1")
    owner = population(party_on)
    before = party_on.services.database.read("v", party_on.services.audit.verify)
    assert not spend(party_on, owner, batch, 10**9 + 1)
    with pytest.raises(InvalidEpsilon):
        spend(party_on, owner, batch, 0)
    assert party_on.services.database.read("v", party_on.services.audit.verify) == before
    assert party_on.spent(batch) == "0"


def test_a_returned_charge_can_be_spent_again(party_on: LabelsParty) -> None:
    batch = party_on.sealed_batch(label_table(5), lifetime="1")
    owner = population(party_on)
    split = EpsilonSplit(ZERO, ZERO, Epsilon.parse("1"))
    release = party_on.charge(batch, "1")
    assert not spend(party_on, owner, batch, 1)
    party_on.services.decisions.cancel(release, "test")
    assert party_on.spent(batch) == "0"
    assert spend(party_on, owner, batch, split.total.nano)
    kinds = [e.kind for e in party_on.services.database.read("e", party_on.services.audit.events)]
    assert kinds[-4:] == ["release-charged", "release-cancelled", RETURNED, "release-charged"]


def test_more_returned_than_charged_stops_the_batch(party_on: LabelsParty) -> None:
    """Nothing of ours writes such a return; whoever writes one past the rules ends what the batch may do."""
    batch = party_on.sealed_batch(label_table(5), lifetime="1")
    owner = population(party_on)
    database, audit = party_on.services.database, party_on.services.audit
    subject = Subject(owner.id, owner.name, owner.label, batch, "rel_1")
    back = Event(RETURNED, subject, EpsilonSplit(ZERO, ZERO, Epsilon(5)), audiences=owner.audiences)
    database.write("return", lambda c: AuditStore.append(audit, c, back) and None)
    with pytest.raises(AuditChainBroken, match="returns more"):
        spend(party_on, owner, batch, 1)


def test_there_is_no_total_beside_the_events(party_on: LabelsParty) -> None:
    """Taking charges out of the events is the only way to lower what was spent, and verification sees it."""
    batch = party_on.sealed_batch(label_table(5), lifetime="1")
    assert spend(party_on, population(party_on), batch, 10**9)
    database = party_on.services.database

    def attack(connection: sa.Connection) -> None:
        for statement in append_only_drop(database.dialect, "audit_events"):
            connection.execute(sa.text(statement))
        connection.execute(sa.text("UPDATE audit_events SET epsilon_nano = 1 WHERE kind = 'release-charged'"))

    database.write("attack", attack)
    with pytest.raises(AuditChainBroken):
        database.read("v", party_on.services.audit.verify)


def test_large_budgets_do_not_overflow(party_on: LabelsParty) -> None:
    batch = party_on.sealed_batch(label_table(5), lifetime="1000000")
    owner = population(party_on)
    assert spend(party_on, owner, batch, 10**15 - 1)
    assert spend(party_on, owner, batch, 1)
    assert party_on.spent(batch) == "1000000"
    assert not spend(party_on, owner, batch, 1)
