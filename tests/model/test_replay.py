"""What the code was seen to do the model can do, and nothing that must not be: so neither changes without the other."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from label_dp.errors import Unavailable
from labels_party.message.kind import MessageKind
from tests.integration.test_four_eyes import ask, sealed
from tests.model.spin import installed
from tests.model.traces import ROWS, Kind, Step, Trace, accepted
from tests.support import object_store
from tests.support.backups import brought_back, keys_of, taken
from tests.support.labels import LabelsParty, label_table
from tests.support.ledger_kills import DRAW, random_kills
from tests.support.ledger_kills import nursery as nursery
from tests.support.ledger_kills import template as template
from tests.support.ledger_machine import play
from tests.support.ledger_parties import Here, There
from tests.support.ledger_places import SqlitePlace, SqliteTemplate
from tests.support.ledger_process import Nursery
from tests.support.ledger_world import Unknown, World
from tests.support.receipts import pair

pytestmark = pytest.mark.processes
SEQUENCES = 2


@pytest.fixture(autouse=True)
def _spin() -> None:
    installed()


@pytest.fixture
def traces(monkeypatch: pytest.MonkeyPatch) -> dict[World, Trace]:
    """Of each world that is played, which is looked at whenever it is checked."""
    traces, killed, check = dict[World, Trace](), set[Any](), World.check

    def looking(world: World) -> None:
        trace = traces.setdefault(world, Trace(store=bool(getattr(world.party, "objects", ""))))
        trace.look(world.party.look(), *([Kind.KILL] if world.party in killed else []))
        killed.discard(world.party)
        check(world)

    def noticing(call: Callable[..., Any]) -> Callable[..., Any]:
        def calling(party: Any, *arguments: Any, **options: Any) -> Any:
            try:
                return call(party, *arguments, **options)
            except Unknown as why:
                if not why.args:  # not a refusal, but an end
                    killed.add(party)
                raise

        return calling

    monkeypatch.setattr(World, "check", looking)
    for party in (Here, There):
        monkeypatch.setattr(party, "call", noticing(party.call))
    return traces


def replay(trace: Trace, folder: Path) -> int:
    """How many batches the trace has, each a trace of its own that the model accepts."""
    batches = dict.fromkeys(trace.batch.values())
    for batch in batches:
        part = trace.of_batch(batch)
        assert accepted(part, folder), "the model cannot do this:\n" + "\n".join(map(str, part.steps))
    return len(batches)


def test_sequences_of_hypothesis(template: SqliteTemplate, traces: dict[World, Trace], tmp_path: Path) -> None:
    play(template, SEQUENCES)
    assert sum(replay(trace, tmp_path) for trace in traces.values()) >= SEQUENCES


def test_kills_at_every_named_point_of_a_draw(
    nursery: Nursery, template: SqliteTemplate, traces: dict[World, Trace], tmp_path: Path
) -> None:
    party = There(nursery, template.fresh(tmp_path).home, random.Random(0))
    world = World(party)
    try:
        world.create("public")
        (batch,) = world.batches
        world.ingest(batch, 0, 3, "insert")
        world.seal(batch)
        for point in DRAW:
            if not world.due(batch):
                world.release(batch, "0.1", additional=True)
            party.kill_at(point)
            world.work()
            world.check()
        world.finish()
        assert party.kills == len(DRAW)
    finally:
        party.close()
    assert [step.kind for step in traces[world].steps].count(Kind.KILL) == len(DRAW)
    replay(traces[world], tmp_path)


@pytest.mark.usefixtures("bucket")
def test_kills_with_an_object_store(
    nursery: Nursery,
    template: SqliteTemplate,
    traces: dict[World, Trace],
    s3_server: object_store.Server,
    tmp_path: Path,
) -> None:
    for seed in range(3, 11):  # on a slow machine every kill may come before the first charge
        (folder := tmp_path / str(seed)).mkdir()
        party = There(nursery, template.fresh(folder).home, random.Random(seed), objects=s3_server.room().url)
        try:
            world = random_kills(party, kills=8, calls=60)
        finally:
            party.close()
        if replay(traces[world], folder):
            return
    pytest.fail("in eight runs nothing was charged")


def test_four_eyes_a_failure_a_receipt_and_a_restored_backup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = Trace()
    with pair(tmp_path) as both:
        party, owner = both.labels, both.labels.client("owner")
        batch, s = sealed(owner), both.labels.services

        def asked(epsilon: str) -> str:
            release = str(ask(owner, batch, epsilon, additional_release=True)["id"])
            trace.look(s)
            return release

        def approved(epsilon: str) -> str:
            s.decisions.approve(release := asked(epsilon), "command line: Ann")
            trace.look(s)
            return release

        def drawn(release: str) -> str:
            assert s.pipeline.run(release)
            trace.look(s)
            return release

        both.pull(drawn(approved("0.5")))
        s.decisions.cancel(asked("1.5"), "test")
        s.decisions.cancel(approved("1.5"), "test")
        failing = approved("0.25")
        with monkeypatch.context() as patch:
            patch.setattr(MessageKind, "draw", lambda *_: 1 // 0)
            with pytest.raises(ZeroDivisionError):
                s.pipeline.run(failing)
        waiting = asked("0.25")
        approved("0.125")
        taken(party, tmp_path / "b.zip")
        trace.look(s, Kind.COPY)
        s.decisions.approve(waiting, "command line: Ann")
        drawn(waiting)
        drawn(approved("0.125"))
        approved("0.125")
        own, keys = both.labels_export(), keys_of(party, tmp_path / "keys")
    brought_back(tmp_path / "b.zip", tmp_path / "again", keys, own, charge_lost=True)
    with LabelsParty(tmp_path / "again", worker=False) as again:
        trace.look(again.services, Kind.RESTORE)
        again.services.worker.drain()
        again.services.retention.purge(batch, "test")
        trace.look(again.services)
    assert {Kind.APPROVAL, Kind.CANCELLATION, Kind.FAILURE, Kind.RECEIPT} < {step.kind for step in trace.steps}
    replay(trace, tmp_path)


def test_an_old_database_is_opened_where_the_model_opens_it(tmp_path: Path) -> None:
    """Put back once before a draw, and once after one."""
    trace, place = Trace(), SqlitePlace(tmp_path / "home")
    with LabelsParty(place.home, worker=False) as party:
        batch = party.sealed_batch(label_table(20))
        party.charge(batch)
        place.copy("charged")
        trace.look(party.services, Kind.COPY)
        party.charge(batch, additional_release=True)
        trace.look(party.services)
    place.put_back("charged")
    with LabelsParty(place.home, worker=False) as party:
        trace.look(party.services, Kind.RETURN)
        place.copy("charged")
        trace.look(party.services, Kind.COPY)
        party.services.worker.drain()
        trace.look(party.services, Kind.REFUSAL)
    place.put_back("charged")
    with pytest.raises(Unavailable, match="older than the folder"):
        LabelsParty(place.home, worker=False)
    replay(trace, tmp_path)


# --- controls ------------------------------------------------------------------------------------------------


def test_a_second_draw_behind_the_ledgers_back_is_not_replayed(tmp_path: Path) -> None:
    with LabelsParty(tmp_path / "home", worker=False) as party:
        trace, batch = Trace(), party.sealed_batch(label_table(20))
        party.release(batch)
        trace.look(party.services)
        assert accepted(trace, tmp_path)
        party.services.database.write(
            "attack", lambda c: c.exec_driver_sql("UPDATE work SET state = 'charged'") and None
        )
        trace.look(party.services, Kind.KILL)
        assert not accepted(trace, tmp_path)


A, B, BATCH = "rel_a", "rel_b", "bat"
LIFE = [
    *(Step(Kind.REQUEST, A), Step(Kind.ROW, A, ROWS["accepted"]), Step(Kind.APPROVAL, A), Step(Kind.COPY)),
    *(Step(Kind.KILL), Step(Kind.ROW, A, ROWS["drawing"] + 2), Step(Kind.PUBLICATION, A, 3), Step(Kind.RECEIPT, A)),
    *(Step(Kind.REFUSAL), Step(Kind.REQUEST, B), Step(Kind.APPROVAL, B), Step(Kind.FAILURE, B, 1)),
    *(Step(Kind.ROW, B, ROWS["failed"] + 1), Step(Kind.PURGE, BATCH)),
]
PLANTED: dict[str, Callable[[list[Step]], list[Step]]] = {
    "a publication of what nobody approved": lambda life: life[:2] + life[3:],
    "a publication by an attempt before the last": lambda life: [*life[:6], Step(Kind.PUBLICATION, A, 2)],
    "two publications": lambda life: life[:7] + life[6:7],
    "a draw after a publication": lambda life: [*life[:7], Step(Kind.ROW, A, ROWS["drawing"] + 4)],
    "a cancellation after a draw began": lambda life: [*life[:6], Step(Kind.CANCELLATION, A)],
    "a receipt before the publication": lambda life: life[:6] + life[7:8],
    "a purge before the publication": lambda life: life[:6] + life[-1:],
    "an old copy after a publication": lambda life: [*life[:8], Step(Kind.RETURN)],
    "unfinished work after a restore": lambda life: [*life[:6], Step(Kind.RESTORE), Step(Kind.PUBLICATION, A, 3)],
}


def life(steps: list[Step], epsilon: int = 1) -> Trace:
    return Trace(False, steps, {A: 1, B: epsilon}, {A: BATCH, B: BATCH}, lifetime=2, four_eyes=True)


def test_the_life_that_the_controls_change_is_accepted(tmp_path: Path) -> None:
    assert accepted(life(LIFE), tmp_path)


@pytest.mark.parametrize("planted", PLANTED)
def test_a_planted_step_is_not_accepted(planted: str, tmp_path: Path) -> None:
    assert not accepted(life(PLANTED[planted](LIFE)), tmp_path)


def test_a_charge_beyond_the_lifetime_is_not_accepted(tmp_path: Path) -> None:
    assert not accepted(replace(life(LIFE), epsilon={A: 1, B: 2}), tmp_path)
