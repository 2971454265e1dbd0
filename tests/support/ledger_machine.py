"""The machine by which Hypothesis plays with a `World`: calls, faults, restarts, old copies of the database."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any, ClassVar

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

from tests.support.ledger_faults import CRASH, DROP, FULL, LOSE
from tests.support.ledger_parties import Here
from tests.support.ledger_places import Template, place
from tests.support.ledger_receiver import Receiving
from tests.support.ledger_world import OPEN, World

EPSILONS = st.sampled_from(["0.5", "1", "1.7", "3"])
KINDS = st.sampled_from([CRASH, CRASH, CRASH, DROP, LOSE, FULL, ""])


def answered(machine: Any) -> bool:
    return machine.world.pending is None


class Machine(RuleBasedStateMachine):
    template: ClassVar[Template]

    @initialize(presence=st.sampled_from(["public", "id-list"]))
    def begin(self, presence: str) -> None:
        """With one batch sealed and one open."""
        self.stack = ExitStack()
        folder = Path(self.stack.enter_context(tempfile.TemporaryDirectory()))
        here = self.stack.enter_context(place(self.template, folder))
        self.party = Here(here.home, here.url)
        self.world = World(self.party, Receiving(folder / "features"), here)
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

    @rule(kind=KINDS, nth=st.integers(1, 4))
    def pull(self, kind: str, nth: int) -> None:
        assert self.world.receiver is not None
        self.world.receiver.faults.arm(kind, nth)
        self.world.pull()

    @rule(kind=KINDS, nth=st.integers(1, 12))
    def train(self, kind: str, nth: int) -> None:
        self.world.train(kind, nth)

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
                self.stack.close()


def play(template: Template, examples: int) -> None:
    """So many sequences of ten steps. Raises AssertionError with what was done."""
    machine = type("Played", (Machine,), {"template": template})
    checks = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
    # shrinking takes minutes: `World.log` of a failure says what was done
    phases = [Phase.explicit, Phase.reuse, Phase.generate]
    scale = settings(
        max_examples=examples, stateful_step_count=10, deadline=None, suppress_health_check=checks, phases=phases
    )
    run_state_machine_as_test(machine, settings=scale)
