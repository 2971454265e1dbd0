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
CHARGES = ["release", "median", "calibrate", "predict", "predict", "retire"]
ASKED = st.sampled_from([*CHARGES, "purge"])
STEPS = ["create", "list", "ingest", "seal", "release", "median", "calibrate", "features", "predictor"]
STEPS += ["predict", "predict", "retire", "purge"]
KINDS = st.sampled_from([CRASH, CRASH, CRASH, DROP, LOSE, FULL, ""])


def answered(machine: Any) -> bool:
    return machine.world.pending is None


class Machine(RuleBasedStateMachine):
    template: ClassVar[Template]

    @initialize(
        presence=st.sampled_from(["public", "id-list"]),
        asked=st.permutations(CHARGES),
        faults=st.lists(st.tuples(KINDS, st.integers(1, 6)), min_size=4, max_size=6),
    )
    def begin(self, presence: str, asked: list[str], faults: list[tuple[str, int]]) -> None:
        """With one batch open, and one sealed, of which everything was asked that can be charged."""
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
        self.world.features(sealed)
        self.world.predictor(sealed, "0.2", "0.6", additional=True)
        for (kind, nth), what in zip(faults, asked, strict=False):
            self._live(sealed, [(kind, nth, "0.3", what)] * (1 if what == "retire" else 2))

    def batch(self, data: Any) -> str:
        return str(data.draw(st.sampled_from(list(self.world.batches)), "batch"))

    @precondition(answered)
    @rule(data=st.data(), steps=st.lists(st.tuples(KINDS, st.integers(1, 4), EPSILONS, ASKED), min_size=1, max_size=4))
    def next(self, data: Any, steps: Any) -> None:
        """What comes next in the life of a batch, with faults in the midst of it."""
        self._live(self.batch(data), steps)

    def _live(self, name: str, steps: list[tuple[str, int, str, str]]) -> None:
        for kind, nth, epsilon, what in steps:
            self.world.resolve()
            self.party.arm(kind, nth)
            self._step(name, epsilon, what)
            self.world.check()

    def _step(self, name: str, epsilon: str, what: str) -> None:
        batch = self.world.batches[name]
        if batch.state == OPEN:
            if batch.presence == "id-list" and not batch.listed:
                self.world.list(name, 4)
            elif not batch.labelled:
                self.world.ingest(name, 0, 3, "insert")
            else:
                self.world.seal(name)
        elif what == "purge":
            self.world.purge(name)
        elif self.world.due(name):
            self.world.work()
        elif what in ("predict", "retire"):
            self._of_predictor(name, what)
        else:
            getattr(self.world, what)(name, epsilon, batch.carries)

    def _of_predictor(self, name: str, what: str) -> None:
        """One query or the end of a batch's predictor, or first what that needs."""
        batch = self.world.batches[name]
        usable = [p for p, known in batch.predictors.items() if not known.retired]
        if not batch.features:
            self.world.features(name)
        elif not usable:
            self.world.predictor(name, "0.2", "0.6", batch.carries)
        elif what == "retire":
            self.world.retire(name, usable[-1])
        else:
            self.world.predict(name, usable[-1], len(batch.predictors[usable[-1]].answers))

    @precondition(answered)
    @rule(data=st.data(), epsilon=EPSILONS, first=st.integers(0, 6), mode=st.sampled_from(["insert", "upsert"]))
    def anything(self, data: Any, epsilon: str, first: int, mode: str) -> None:
        """Also what does not fit."""
        name = self.batch(data)
        step = data.draw(st.sampled_from(STEPS), "step")
        if step == "create":
            self.world.create(data.draw(st.sampled_from(["public", "id-list"]), "presence"))
        elif step == "list":
            self.world.list(name, 2 + first)
        elif step == "ingest":
            self.world.ingest(name, first, 3, mode)
        elif step in ("release", "median", "calibrate"):
            getattr(self.world, step)(name, epsilon, data.draw(st.booleans(), "additional"))
        elif step == "predictor":
            self.world.predictor(name, epsilon, "3", data.draw(st.booleans(), "additional"))
        elif step in ("predict", "retire"):
            for predictor in list(self.world.batches[name].predictors)[-1:]:
                self.world.retire(name, predictor) if step == "retire" else self.world.predict(name, predictor, first)
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
