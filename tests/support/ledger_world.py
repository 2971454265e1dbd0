"""What may be true of a labels party after calls, faults and restarts: a model, and the moves that are tried on it.

A call that was answered has happened, one that was refused has not, and of one whose answer was lost either may be
true until it is repeated with its key: then exactly one effect stands (`ledger_rules`). At any moment, whatever
happened, `ledger_checks` holds:
- every published release and answer was charged before, once, and its document never changes;
- nothing is charged twice, no query of a predictor, and no batch beyond its population's lifetime ε;
- the audit chain verifies, here and at the receiver, who accounts once for what he accepted;
- an old copy of the database is noticed, and refused where anything drawn since was seen.
After the last fault a restart finishes whatever was begun.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from label_dp.audit.compare import compare_own
from label_dp.audit.store import read_export
from label_dp.companions.kinds.prediction import PREDICTION
from labels_party.bootstrap import Services
from labels_party.labels.batch_uses import PUBLISHED, TRAINING, standing
from tests.support import ledger_checks
from tests.support.ledger_calls import POPULATION, Calls
from tests.support.ledger_places import Place
from tests.support.ledger_process import Refused
from tests.support.ledger_receiver import Receiving
from tests.support.ledger_rules import OK, OPEN, PURGED, SEALED, Batch, Predictor, Progress, allowed, apply


class Unknown(Exception):
    """The call was not answered, or with 'unavailable': it happened or not."""


class Party(Protocol):
    """A labels party that can be asked, may die while it is, and is there again afterwards."""

    home: Path

    def call(self, name: str, *arguments: Any, key: str = "") -> Any:
        """Raises Refused or Unknown."""

    def calm(self) -> None:
        """No fault from here on."""

    def close(self) -> None: ...

    def open(self) -> None: ...

    def look(self) -> Services:
        """To read from."""


@dataclass(frozen=True)
class Pending:
    """A call whose answer was lost."""

    name: str
    key: str
    arguments: tuple[Any, ...]
    allowed: frozenset[str]


@dataclass(frozen=True)
class Copy:
    """Of the database: the last event it has, and what had been begun and seen by then."""

    name: str
    last: int
    begun: frozenset[str]
    seen: frozenset[str]


class World:
    def __init__(self, party: Party, receiver: Receiving | None = None, place: Place | None = None) -> None:
        self.party, self.receiver, self.place = party, receiver, place
        self.batches: dict[str, Batch] = {}
        self.pending: Pending | None = None
        self.number, self.name = 0, secrets.token_hex(4)  # several worlds may share a database
        self.digests: dict[str, str] = {}  # of published manifests and answers
        self.copies: list[Copy] = []
        self.log: list[str] = []

    @property
    def charged(self) -> set[str]:
        """Releases and answers whose charge was answered."""
        return {charge for batch in self.batches.values() for charge in batch.charges}

    # --- moves --------------------------------------------------------------------------------------------

    def create(self, presence: str) -> None:
        self._try("create", presence)

    def list(self, batch: str, n: int) -> None:
        self._try("list", batch, [f"{batch}-{i}" for i in range(n)])

    def ingest(self, batch: str, first: int, n: int, mode: str) -> None:
        self._try("ingest", batch, [f"{batch}-{i}" for i in range(first, first + n)], 3, mode)

    def seal(self, batch: str) -> None:
        self._try("seal", batch)

    def release(self, batch: str, epsilon: str, additional: bool) -> None:
        self._try("release", batch, epsilon, additional)

    def median(self, batch: str, epsilon: str, additional: bool) -> None:
        self._try("median", batch, epsilon, additional)

    def calibrate(self, batch: str, epsilon: str, additional: bool) -> None:
        """With a score of every example."""
        self._try("calibrate", batch, epsilon, additional, sorted(self._ids(batch)))

    def features(self, batch: str) -> None:
        self._try("features", batch, sorted(self._ids(batch) or {f"{batch}-0"}))

    def predictor(self, batch: str, epsilon: str, cap: str, additional: bool) -> None:
        self._try("predictor", batch, epsilon, cap, additional)

    def predict(self, batch: str, predictor: str, query: int) -> None:
        self._try("predict", batch, predictor, query)

    def retire(self, batch: str, predictor: str) -> None:
        self._try("retire", batch, predictor)

    def purge(self, batch: str) -> None:
        self._try("purge", batch)

    def work(self) -> None:
        """The worker's round; whatever it left is done by another."""
        self.log.append("work")
        try:
            self.party.call("work")
        except (Unknown, Refused):
            self.log.append("  broke off")

    def pull(self) -> None:
        """The receiver takes what is published, and again what he has."""
        if self.receiver is None:
            return
        s = self.party.look()
        for release in Calls(s).published():
            digest = self.receiver.pull(Calls(s).folder(release).path, s.key.public)
            assert digest is None or self.digests.setdefault(release, digest) == digest

    def train(self, kind: str, nth: int) -> None:
        """The receiver trains on all that is published, and once more where it broke off: nothing here is charged."""
        s = self.party.look()
        messages = [Calls(s).folder(release).path for release in Calls(s).published()]
        if self.receiver is None or not messages:
            return
        last, batches = s.database.read("last", s.audit.last), [*self.batches]
        self.log.append(f"train {kind} {nth}")
        self.receiver.faults.arm(kind, nth)
        if not self.receiver.train(messages, batches, s.key.public):
            assert self.receiver.train(messages, batches, s.key.public), "without a fault there is a model"
        assert set(self.receiver.accepted()) >= set(Calls(s).published())
        assert s.database.read("last", s.audit.last) == last

    def restart(self) -> None:
        self.log.append("restart")
        self.party.close()
        self.party.open()

    def resolve(self) -> None:
        """Repeat the call whose answer was lost, until there is one."""
        self.party.calm()
        if self.pending is not None:
            waiting, self.pending = self.pending, None
            # what it had to wait for may be finished meanwhile
            found = waiting.allowed | self._allowed(waiting.name, waiting.arguments)
            self._try(waiting.name, *waiting.arguments, allowed=found, key=waiting.key)
            assert self.pending is None, f"without a fault there is an answer: {self.log}"

    def copy(self) -> None:
        """A backup of the database alone."""
        assert self.place is not None
        s, name = self.party.look(), f"copy{len(self.copies)}"
        last = s.database.read("last", s.audit.last)
        self.copies.append(Copy(name, last, self._begun(), frozenset(self._seen())))
        s.database.dispose()
        self.place.copy(name)

    def restore(self, number: int) -> None:
        """An old copy in the newest one's place: noticed; then the newest comes back."""
        self.party.calm()
        assert self.place is not None
        old = self.copies[number % len(self.copies)]
        s = self.party.look()
        export = read_export(s.database.read("x", lambda c: s.audit.export(c, s.key)), s.key.public)
        begun, seen = self._begun() - old.begun, self._seen().difference(old.seen)
        self.log.append(f"restore {number}")
        self.party.close()
        self.place.copy("newest")
        self.place.put_back(old.name)
        refused = ""
        try:
            self.party.open()
            s = self.party.look()
            chain = s.database.read("e", s.audit.events)
            assert bool(compare_own(chain, export).findings) == (export.events[-1].sequence > old.last)
            self.party.close()
        except Refused as error:
            refused = error.detail
        noticed = "older than the folder" in refused
        assert noticed or not seen, f"{seen} would be drawn again: {self.log}"
        assert begun or not noticed, refused
        self.place.put_back("newest")
        self.party.open()

    # --- what must hold -----------------------------------------------------------------------------------

    def check(self) -> None:
        ledger_checks.check(self)

    def finish(self) -> None:
        """The last restart: everything that was begun is finished."""
        self.resolve()
        self.restart()
        self.work()
        self.check()
        ledger_checks.check_finished(self)
        self.pull()
        self.check()

    # --- parts --------------------------------------------------------------------------------------------

    def _try(self, name: str, *arguments: Any, allowed: frozenset[str] | None = None, key: str = "") -> None:
        assert self.pending is None
        self.number += not key
        key = key or f"{self.name}-{self.number}"
        self.log.append(f"{name} {' '.join(map(str, arguments))[:80]}")
        allowed = allowed or self._allowed(name, arguments)
        try:
            answer = self.party.call(name, *arguments, key=key)
        except Unknown as why:
            self.log.append(f"  no answer {why}")
            self.pending = Pending(name, key, arguments, allowed)
            return
        except Refused as refused:
            if refused.code not in allowed:
                raise AssertionError(f"{name} may be {', '.join(allowed)}: {refused}; {self.log}") from None
            return
        assert OK in allowed, (name, answer, self.log)
        if name == "create":
            self.batches[answer[1]["id"]] = Batch(*arguments)
        else:
            apply(name, self.batches[arguments[0]], arguments, answer[1])
        try:
            again = self.party.call(name, *arguments, key=key)
        except Unknown:
            return
        assert again == answer, f"repeated with its key, a call has another answer: {self.log}"

    def _allowed(self, name: str, arguments: tuple[Any, ...]) -> frozenset[str]:
        if name == "create":
            return frozenset({OK})
        batch = arguments[0]
        return frozenset({allowed(name, self.batches[batch], arguments, self.progress(batch))})

    def progress(self, batch: str) -> Progress:
        """What the worker has done, and left to do, of a batch."""
        s = self.party.look()
        found = s.database.read("progress", lambda c: standing(c, batch))
        published, training = (frozenset(f.id for f in found if f.state == state) for state in (PUBLISHED, TRAINING))
        return Progress(published, training)

    def due(self, batch: str) -> bool:
        """Whether the worker has anything to do for a batch."""
        progress = self.progress(batch)
        return bool(progress.training) or not progress.published.issuperset(self.batches[batch].charges)

    def _ids(self, batch: str) -> set[str]:
        found = self.batches[batch]
        return found.listed or found.labelled

    def _begun(self) -> frozenset[str]:
        """What the folder knows of attempts and of answers of predictors."""
        home = self.party.home
        attempts = [*home.glob("work/rel_*/**/"), *home.glob("work/ans_*/**/")]
        counted = [f"{path.name} {path.stat().st_size}" for path in home.glob("predictors/prd_*")]
        return frozenset([str(path.relative_to(home)) for path in attempts] + counted)

    def _seen(self) -> set[str]:
        """Published documents, of answers of predictors those that were handed out."""
        s = self.party.look()
        found = [f for batch in self.batches for f in s.database.read("seen", lambda c, b=batch: standing(c, b))]
        given = {id_ for b in self.batches.values() for p in b.predictors.values() for id_, _ in p.answers.values()}
        return {f.id for f in found if f.state == PUBLISHED and (f.what != PREDICTION or f.id in given)}


__all__ = ["OPEN", "POPULATION", "PURGED", "SEALED", "Party", "Predictor", "Refused", "Unknown", "World"]
