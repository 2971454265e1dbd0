"""What must hold of the party of a `World` at any moment, and once everything that was begun is finished."""

from __future__ import annotations

from typing import TYPE_CHECKING

from label_dp.audit import events
from label_dp.audit.rules import check_rules
from labels_party.bootstrap import Services
from labels_party.labels.batch_uses import FAILED, RETIRED, TRAINING, standing
from labels_party.storage.files import INPUTS
from labels_party.storage.tables import work
from tests.support.ledger_calls import LIFETIME, Calls
from tests.support.ledger_rules import OPEN, PURGED, SEALED, Batch, cost, nano

if TYPE_CHECKING:
    from tests.support.ledger_world import Pending, World

PREDICTOR = "predictor"
LEARNED = ("/predictor-", "/features-")  # objects of a batch that its predictors need


def check(world: World) -> None:
    s = world.party.look()
    s.database.read("v", s.audit.verify)
    published = _check_chain(s, world)
    digests = Calls(s).verify(None)  # type: ignore[arg-type]  # not used
    assert set(digests) == published
    assert world.digests.items() <= digests.items(), "a published document changed"
    world.digests |= digests
    for batch, found in world.batches.items():
        _check_batch(s, batch, found, world.pending)
        for predictor in found.predictors.values():
            for answer, digest in predictor.answers.values():
                assert digests[answer] == digest, "what was handed out is not what is stored"
    if world.receiver is not None:
        taken = world.receiver.accepted()
        assert len(set(taken)) == len(taken), "accounted for twice"
        assert set(taken) <= published


def _check_chain(s: Services, world: World) -> set[str]:
    """Ids of releases and answers that were published, each once and after its one charge."""
    chain = s.database.read("e", s.audit.events)
    check_rules(chain)
    charged: set[str] = set()
    published: set[str] = set()
    queries: set[tuple[str, str]] = set()
    for event in chain:
        charge = str(event.subject.work)
        if event.kind == events.CHARGED:
            assert charge not in charged, "charged twice"
            charged.add(charge)
            if "query" in event.details:
                query = event.details[PREDICTOR], event.details["query"]
                assert query not in queries, "a query is charged twice"
                queries.add(query)
        elif event.kind in (events.PUBLISHED, events.ANSWER_PUBLISHED):
            assert charge in charged, "published without a charge"
            assert charge not in published, "published twice"
            published.add(charge)
        assert event.kind not in (events.RETURNED, events.FAILED, events.ANSWER_FAILED), (event, world.log)
    return published


def _check_batch(s: Services, batch: str, found: Batch, pending: Pending | None) -> None:
    row, _ = s.database.read("b", lambda c: s.batches.get(c, batch))
    standing_ = s.database.read("r", lambda c: standing(c, batch))
    spent = s.database.read("s", lambda c: s.ledger.spent(c, batch)).nano
    maybe = pending if pending is not None and batch in pending.arguments else None
    name, arguments = (maybe.name, maybe.arguments) if maybe else ("", ())
    assert row.state in (found.state, {"seal": SEALED, "purge": PURGED}.get(name, found.state))
    if row.state != OPEN and not maybe:
        assert row.n == found.size
    assert spent - found.spent in (0, cost(name, found, arguments))
    assert spent <= nano(LIFETIME)
    charges = {f.id for f in standing_ if f.what != PREDICTOR}
    assert charges.issuperset(found.charges)
    assert len(charges) - len(found.charges) == int(spent != found.spent)
    states = {f.id: f.state for f in standing_ if f.what == PREDICTOR}
    assert states.keys() >= found.predictors.keys()
    assert len(states) - len(found.predictors) in (0, int(name == PREDICTOR))
    assert FAILED not in states.values()
    for predictor, known in found.predictors.items():
        ending = name == "purge" or (name == "retire" and predictor in arguments)
        assert (states[predictor] == RETIRED) in (known.retired, known.retired or ending)


def check_finished(world: World) -> None:
    """After the last restart: nothing charged is unfinished, no predictor waits, and nothing is left over."""
    s = world.party.look()
    assert s.database.read("w", s.work.waiting) == []
    assert s.database.read("u", s.retention.unfinished) == []
    requests = s.database.read("i", lambda c: c.execute(work.select()).all())
    left = {path.name for path in s.home.work.glob(f"{INPUTS}*")}
    assert left.isdisjoint(row.inputs for row in requests), "inputs of a finished answer are left over"
    for batch, found in world.batches.items():
        assert not world.progress(batch).training
        kept = s.vault.keys(f"{batch}/")
        if found.state == PURGED:
            assert not [k for k in kept if any(part in k for part in LEARNED)]
            assert not [k for k in kept if k.endswith(".parquet") and "examples" not in k]
        rows = [s.database.read("p", lambda c, p=p: s.companions.predictors.get(c, p)) for p in found.predictors]
        learned = {row.state_key for row in rows if row.state not in (RETIRED, TRAINING)}
        named = {row.state_key for row in rows} - learned
        assert learned <= set(kept), "a predictor lost what it learned"
        assert named.isdisjoint(kept), "a retired predictor still has what it learned"
