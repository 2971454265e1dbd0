"""Hypothesis plays with a labels party and its receiver: calls, faults, restarts, old copies of the database.

`ledger_world` says what may be true afterwards. Sequences that once failed are tests of their own below.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from features_party.bootstrap import bootstrap as features_bootstrap
from features_party.settings import Settings as FeaturesSettings
from labels_party.storage.idempotency import IdempotentCall
from shared.errors import Unavailable
from tests.support.ledger_parties import CRASH, DROP, FULL, LOSE, Here, make_template
from tests.support.ledger_world import OPEN, World, fresh

EPSILONS = st.sampled_from(["0.5", "1", "1.7", "3"])
KINDS = st.sampled_from([CRASH, CRASH, CRASH, DROP, LOSE, FULL, ""])


def answered(machine: Any) -> bool:
    return machine.world.pending is None


class Machine(RuleBasedStateMachine):
    template: ClassVar[Path]

    @initialize(presence=st.sampled_from(["public", "id-list"]))
    def begin(self, presence: str) -> None:
        """With one batch sealed and one open."""
        self.folder = tempfile.TemporaryDirectory()
        self.party = Here(fresh(self.template, Path(self.folder.name)))
        receiver = features_bootstrap(FeaturesSettings(home=Path(self.folder.name) / "features"))
        self.world = World(self.party, receiver)
        for kind in ("public", presence):
            self.world.create(kind)
        sealed, _ = self.world.batches
        self.world.ingest(sealed, 0, 3, "insert")
        self.world.seal(sealed)
        self.world.release(sealed, "0.5", additional=False)

    def batch(self, data: Any) -> str:
        return str(data.draw(st.sampled_from(list(self.world.batches)), "batch"))

    @precondition(answered)
    @rule(data=st.data(), steps=st.lists(st.tuples(KINDS, st.integers(1, 4), EPSILONS), min_size=1, max_size=4))
    def next(self, data: Any, steps: Any) -> None:
        """What comes next in the life of a batch, with faults in the midst of it."""
        name = self.batch(data)
        for kind, nth, epsilon in steps:
            self.world.resolve()
            self.party.arm(kind, nth)
            self._step(name, epsilon, purge=nth == 4)
            self.world.check()

    def _step(self, name: str, epsilon: str, *, purge: bool) -> None:
        batch = self.world.batches[name]
        if batch.state == OPEN:
            if batch.presence == "id-list" and not batch.listed:
                self.world.list(name, 4)
            elif not batch.labelled:
                self.world.ingest(name, 0, 3, "insert")
            else:
                self.world.seal(name)
        elif purge and batch.releases:
            self.world.purge(name)
        elif len(self.world.digests) < len(self.world.charged):
            self.world.work()
        else:
            self.world.release(name, epsilon, additional=bool(batch.releases))

    @precondition(answered)
    @rule(data=st.data(), epsilon=EPSILONS, first=st.integers(0, 6), mode=st.sampled_from(["insert", "upsert"]))
    def anything(self, data: Any, epsilon: str, first: int, mode: str) -> None:
        """Also what does not fit."""
        name = self.batch(data)
        step = data.draw(st.sampled_from(["create", "list", "ingest", "seal", "release", "purge"]), "step")
        if step == "create":
            self.world.create(data.draw(st.sampled_from(["public", "id-list"]), "presence"))
        elif step == "list":
            self.world.list(name, 2 + first)
        elif step == "ingest":
            self.world.ingest(name, first, 3, mode)
        elif step == "release":
            self.world.release(name, epsilon, data.draw(st.booleans(), "additional"))
        else:
            getattr(self.world, step)(name)

    @rule(kind=KINDS, nth=st.integers(1, 12))
    def work(self, kind: str, nth: int) -> None:
        self.party.arm(kind, nth)
        self.world.work()

    @precondition(lambda self: not answered(self))
    @rule()
    def resolve(self) -> None:
        self.world.resolve()

    @precondition(lambda self: self.world.log[-1] != "restart")
    @rule()
    def restart(self) -> None:
        self.party.calm()
        self.world.restart()

    @rule()
    def pull(self) -> None:
        self.world.pull()

    @rule(days=st.sampled_from([-366, -1, 1, 366]))
    def clock(self, days: int) -> None:
        self.party.clock.move(days=days)

    @precondition(lambda self: len(self.world.copies) < 2)
    @rule()
    def copy(self) -> None:
        self.world.copy()

    @precondition(lambda self: self.world.copies)
    @rule(number=st.integers(0, 1))
    def restore(self, number: int) -> None:
        self.world.restore(number)

    @invariant()
    def holds(self) -> None:
        if hasattr(self, "world"):
            self.world.check()

    def teardown(self) -> None:
        if hasattr(self, "world"):
            try:
                self.world.finish()
            finally:
                self.party.close()
                assert self.world.receiver is not None
                self.world.receiver.close()
                self.folder.cleanup()


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_template(tmp_path_factory.mktemp("template") / "home")


def test_whatever_is_done_the_ledger_holds(template: Path) -> None:
    Machine.template = template
    checks = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
    # shrinking takes minutes: `World.log` of a failure says what was done
    phases = [Phase.explicit, Phase.reuse, Phase.generate]
    scale = settings(
        max_examples=25, stateful_step_count=10, deadline=None, suppress_health_check=checks, phases=phases
    )
    run_state_machine_as_test(Machine, settings=scale)


# --- sequences of their own ----------------------------------------------------------------------------------


@pytest.fixture
def world(template: Path, tmp_path: Path) -> Iterator[World]:
    """A released batch, in this process."""
    party = Here(fresh(template, tmp_path))
    found = World(party)
    found.create("public")
    (batch,) = found.batches
    found.ingest(batch, 0, 3, "insert")
    found.seal(batch)
    yield found
    party.close()


def here(world: World) -> Here:
    assert isinstance(world.party, Here)
    return world.party


def test_a_ledger_that_forgets_its_calls_is_found_out(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: without idempotency each repetition is one more release, charged."""
    (batch,) = world.batches
    monkeypatch.setattr(IdempotentCall, "earlier", lambda _self, _connection: None)
    here(world).arm(LOSE, 1)
    world.release(batch, "0.5", additional=True)
    assert world.pending is not None
    with pytest.raises(AssertionError, match="another answer"):
        world.resolve()


def test_a_draw_that_is_published_twice_is_found_out(world: World) -> None:
    """The control of the fence: what was published is drawn again, behind the ledger's back."""
    (batch,) = world.batches
    world.release(batch, "0.5", additional=False)
    world.work()
    world.check()
    s = world.party.look()
    for statement in ("UPDATE releases SET state = 'charged'", "DELETE FROM release_files"):
        s.database.write("attack", lambda c, text=statement: c.exec_driver_sql(text) and None)
    world.work()
    with pytest.raises(AssertionError, match="published twice"):
        world.check()


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


def test_a_full_disk_in_every_call_changes_nothing(world: World) -> None:
    (batch,) = world.batches
    moves: list[Callable[[], None]] = [
        lambda: world.create("id-list"),
        lambda: world.list(list(world.batches)[-1], 4),
        lambda: world.ingest(list(world.batches)[-1], 0, 4, "upsert"),
        lambda: world.seal(list(world.batches)[-1]),
        lambda: world.release(batch, "0.5", additional=False),
        world.work,
    ]
    for move in moves:
        here(world).arm(FULL, 1)
        move()
        world.check()
        world.resolve()
    world.work()
    here(world).arm(FULL, 1)
    world.purge(batch)
    world.finish()
    assert len(world.digests) == 1


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
