"""Hypothesis plays with a labels party and its receiver on both databases (`ledger_machine`), and sequences of its own.

`ledger_world` says what may be true afterwards. Sequences that once failed are tests of their own below.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from label_dp.audit.events import ANSWER_PUBLISHED, PUBLISHED
from label_dp.audit.judged import JudgedStore
from label_dp.audit.rulebook import RuleBroken
from label_dp.audit.store import AuditStore
from label_dp.errors import Unavailable
from label_dp.store.idempotency import IdempotentCall
from labels_party.work.pipeline import Pipeline
from tests.support.ledger_faults import CRASH, FULL, LOSE
from tests.support.ledger_kills import template as template
from tests.support.ledger_machine import play
from tests.support.ledger_parties import Here
from tests.support.ledger_places import PostgresTemplate, SqliteTemplate
from tests.support.ledger_rules import nano
from tests.support.ledger_world import World


def test_whatever_is_done_the_ledger_holds(template: SqliteTemplate) -> None:
    play(template, examples=7)


def test_whatever_is_done_the_ledger_holds_on_postgresql(postgres_url: str, tmp_path: Path) -> None:
    play(PostgresTemplate(tmp_path / "template", postgres_url), examples=2)


# --- sequences of their own ----------------------------------------------------------------------------------


@pytest.fixture
def world(template: SqliteTemplate, tmp_path: Path) -> Iterator[World]:
    """A sealed batch, in this process."""
    place = template.fresh(tmp_path)
    party = Here(place.home)
    found = World(party, place=place)
    found.create("public")
    (batch,) = found.batches
    found.ingest(batch, 0, 3, "insert")
    found.seal(batch)
    yield found
    party.close()


def here(world: World) -> Here:
    assert isinstance(world.party, Here)
    return world.party


def behind_its_back(world: World, *statements: str) -> None:
    s = world.party.look()
    for statement in statements:
        s.database.write("attack", lambda c, text=statement: c.exec_driver_sql(text) and None)


def predictor_of(world: World, batch: str) -> str:
    """A trained one, of ε = 0.2 a query."""
    world.features(batch)
    world.predictor(batch, "0.2", "2", additional=False)
    world.work()
    (predictor,) = world.batches[batch].predictors
    return predictor


def test_a_ledger_that_forgets_its_calls_is_found_out(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: without idempotency each repetition is one more release, charged."""
    (batch,) = world.batches
    monkeypatch.setattr(IdempotentCall, "earlier", lambda _self, _connection: None)
    here(world).arm(LOSE, 1)
    world.release(batch, "0.5", additional=True)
    assert world.pending is not None
    with pytest.raises(AssertionError, match="another answer"):
        world.resolve()


@pytest.mark.parametrize("what", ["release", "median"])
def test_a_draw_is_not_published_twice_and_without_rules_that_is_found(
    world: World, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control of the fence: what was published is drawn again, behind the ledger's back."""
    (batch,) = world.batches
    getattr(world, what)(batch, "0.5", additional=False)
    world.work()
    world.check()
    behind_its_back(world, "UPDATE work SET state = 'charged'", "DELETE FROM work_files")

    def published() -> int:
        chain = world.party.look().database.read("e", world.party.look().audit.events)
        return sum(event.kind in (PUBLISHED, ANSWER_PUBLISHED) for event in chain)

    world.work()
    assert published() == 1
    monkeypatch.setattr(JudgedStore, "append", AuditStore.append)
    world.work()
    assert published() == 2
    with pytest.raises(RuleBroken, match=r"rule 12 \(published\)"):
        world.check()


def test_a_query_that_is_forgotten_is_found_out(world: World) -> None:
    """The control of stored answers: the query is drawn and charged again."""
    (batch,) = world.batches
    predictor = predictor_of(world, batch)
    world.predict(batch, predictor, 1)
    behind_its_back(world, "DELETE FROM predictions")
    with pytest.raises(AssertionError, match="the same query has another answer"):
        world.predict(batch, predictor, 1)
    with pytest.raises(AssertionError, match="a query is charged twice"):
        world.check()


def test_inputs_that_are_left_over_are_found_out(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control of the sweep: killed between publication and the removal of its inputs, an answer keeps them."""
    (batch,) = world.batches
    monkeypatch.setattr(Pipeline, "sweep", lambda _self: 0)
    world.calibrate(batch, "0.5", additional=False)
    here(world).faults.at("answer.publish:after-commit")
    world.work()
    with pytest.raises(AssertionError, match="left over"):
        world.finish()
    monkeypatch.undo()
    world.finish()


def test_an_old_copy_of_the_database_is_refused_once_a_release_was_drawn(world: World) -> None:
    (batch,) = world.batches
    world.copy()
    world.release(batch, "0.5", additional=False)
    world.copy()  # charged and not drawn
    world.work()
    world.restore(0)
    world.restore(1)
    world.check()
    world.finish()


def test_an_old_copy_is_refused_once_an_answer_was_handed_out(world: World) -> None:
    """Of a median, and of a query whose first call died before the answer was noted beside the database: whoever asked
    again was given it, and an older copy would have drawn it anew."""
    (batch,) = world.batches
    predictor = predictor_of(world, batch)
    world.copy()
    here(world).faults.at("prediction.draw:after-commit")
    world.predict(batch, predictor, 1)
    assert world.pending is not None
    world.restore(0)  # nobody has seen it
    world.resolve()
    assert world.batches[batch].predictors[predictor].answers
    world.restore(0)
    world.copy()
    world.median(batch, "0.5", additional=True)
    world.work()
    world.restore(1)
    world.finish()


def test_an_answer_that_cannot_be_noted_is_not_handed_out(world: World) -> None:
    """Kept and charged once, it is given when there is room."""
    (batch,) = world.batches
    predictor = predictor_of(world, batch)
    notes = world.party.home / "predictors"
    notes.rename(notes.with_name("elsewhere"))
    world.predict(batch, predictor, 1)
    assert world.pending is not None
    world.check()
    notes.with_name("elsewhere").rename(notes)
    world.resolve()
    assert world.batches[batch].spent == nano("0.2")
    world.finish()


def test_a_full_disk_in_every_call_changes_nothing(world: World) -> None:
    (batch,) = world.batches
    moves: list[Callable[[], None]] = [
        lambda: world.create("id-list"),
        lambda: world.list(list(world.batches)[-1], 4),
        lambda: world.ingest(list(world.batches)[-1], 0, 4, "upsert"),
        lambda: world.seal(list(world.batches)[-1]),
        lambda: world.release(batch, "0.5", additional=False),
        world.work,
        lambda: world.calibrate(batch, "0.5", additional=True),
        world.work,
        lambda: world.features(batch),
        lambda: world.predictor(batch, "0.2", "2", additional=True),
        world.work,
        lambda: world.predict(batch, next(iter(world.batches[batch].predictors)), 1),
    ]
    for move in moves:
        here(world).arm(FULL, 1)
        move()
        world.check()
        world.resolve()
        if move == world.work:
            assert world.due(batch), "the disk was not full"
            world.work()
    here(world).arm(FULL, 1)
    world.purge(batch)
    world.finish()
    assert len(world.digests) == 3


def test_an_upload_whose_end_is_interrupted_keeps_its_labels(world: World) -> None:
    """Found by the machine: whatever came between the commit and the answer deleted what had been committed."""
    world.create("public")
    batch = list(world.batches)[-1]
    here(world).arm(CRASH, 4)  # labels.store:after-commit
    world.ingest(batch, 0, 3, "insert")
    assert world.pending is not None
    world.resolve()
    world.seal(batch)
    world.finish()


def test_a_merge_whose_answer_is_lost_keeps_what_it_made(world: World) -> None:
    """The merged run had been deleted although the batch named it: it could never be sealed."""
    world.create("public")
    batch = list(world.batches)[-1]
    lost: list[str] = []

    def lose(point: str) -> None:
        if point == "runs.merge:after-commit" and not lost:
            lost.append(point)
            raise Unavailable("The answer of the database was lost on its way.")

    world.party.look().database.fault = lose
    for first in range(40):
        world.ingest(batch, first, 1, "upsert")
        if lost:
            break
    assert lost
    world.resolve()
    world.seal(batch)
    world.finish()
