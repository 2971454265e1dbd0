"""What may be true of a labels party after calls, faults and restarts: a model, and the moves that are tried on it.

A call that was answered has happened, one that was refused has not, and of one whose answer was lost either may be
true until it is repeated with its key: then exactly one effect stands. At any moment, whatever happened:
- every published release was charged before, once, and its message never changes;
- no release is charged twice, and no batch beyond its population's lifetime ε;
- the audit chain verifies, here and at the receiver, who accounts once for what he accepted;
- an old copy of the database is noticed, and refused where a release was drawn since.
After the last fault a restart finishes whatever was begun.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from labels_party.bootstrap import Services
from shared.audit import events
from shared.audit.checks import check_totals
from shared.audit.compare import compare_own
from shared.audit.store import read_export
from shared.privacy import Epsilon
from tests.support.ledger_calls import LIFETIME, POPULATION, Calls
from tests.support.ledger_places import Place
from tests.support.ledger_process import Refused
from tests.support.ledger_receiver import Receiving

OPEN, SEALED, PURGED = "open", "sealed", "purged"


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


@dataclass
class Batch:
    presence: str
    state: str = OPEN
    listed: set[str] = field(default_factory=set)
    labelled: set[str] = field(default_factory=set)
    releases: dict[str, int] = field(default_factory=dict)  # nano-ε, of those whose charge was answered

    @property
    def spent(self) -> int:
        return sum(self.releases.values())

    @property
    def size(self) -> int:
        return len(self.listed if self.presence == "id-list" else self.labelled)


@dataclass(frozen=True)
class Pending:
    """A call whose answer was lost."""

    name: str
    key: str
    arguments: tuple[Any, ...]
    allowed: frozenset[str]


class World:
    def __init__(self, party: Party, receiver: Receiving | None = None, place: Place | None = None) -> None:
        self.party, self.receiver, self.place = party, receiver, place
        self.batches: dict[str, Batch] = {}
        self.pending: Pending | None = None
        self.number, self.name = 0, secrets.token_hex(4)  # several worlds may share a database
        self.digests: dict[str, str] = {}  # of published manifests
        self.copies: list[tuple[str, int, set[str]]] = []
        self.log: list[str] = []

    @property
    def charged(self) -> set[str]:
        """Releases whose charge was answered."""
        return {release for batch in self.batches.values() for release in batch.releases}

    # --- moves --------------------------------------------------------------------------------------------

    def create(self, presence: str) -> None:
        self._try("create", presence)

    def list(self, batch: str, n: int) -> None:
        found = self.batches[batch]
        ids = [f"{batch}-{i}" for i in range(n)]
        refused = found.presence != "id-list" or found.state != OPEN or found.labelled
        again = found.presence == "id-list" and found.listed == set(ids)
        self._try("list", batch, ids, allowed=["ok"] if again else ["conflict"] if refused else ["ok"])

    def ingest(self, batch: str, first: int, n: int, mode: str) -> None:
        found = self.batches[batch]
        ids = [f"{batch}-{i}" for i in range(first, first + n)]
        allowed = "ok"
        if found.state != OPEN or (found.presence == "id-list" and not found.listed):
            allowed = "conflict"
        elif found.presence == "id-list" and not found.listed.issuperset(ids):
            allowed = "invalid-rows"
        elif mode == "insert" and not found.labelled.isdisjoint(ids):
            allowed = "duplicate-id"
        self._try("ingest", batch, ids, 3, mode, allowed=[allowed])

    def seal(self, batch: str) -> None:
        found = self.batches[batch]
        self._try("seal", batch, allowed=["ok" if found.state == OPEN and found.size else "conflict"])

    def release(self, batch: str, epsilon: str, additional: bool) -> None:
        found = self.batches[batch]
        allowed = "ok"
        if found.state != SEALED:
            allowed = "conflict"
        elif found.releases and not additional:
            allowed = "already-released"
        elif found.spent + Epsilon.parse(epsilon).nano > Epsilon.parse(LIFETIME).nano:
            allowed = "budget-exceeded"
        self._try("release", batch, epsilon, additional, allowed=[allowed])

    def purge(self, batch: str) -> None:
        self._try("purge", batch, allowed=["ok" if self._may_purge(batch) else "conflict"])

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
            allowed = list(waiting.allowed)
            if waiting.name == "purge" and self._may_purge(waiting.arguments[0]):
                allowed.append("ok")  # what it waited for was finished meanwhile
            self._try(waiting.name, *waiting.arguments, allowed=allowed, key=waiting.key)
            assert self.pending is None, f"without a fault there is an answer: {self.log}"

    def copy(self) -> None:
        """A backup of the database alone."""
        assert self.place is not None
        s, name = self.party.look(), f"copy{len(self.copies)}"
        self.copies.append((name, s.database.read("last", s.audit.last), self._drawn()))
        s.database.dispose()
        self.place.copy(name)

    def restore(self, number: int) -> None:
        """An old copy in the newest one's place: noticed; then the newest comes back."""
        self.party.calm()
        assert self.place is not None
        name, last, drawn = self.copies[number % len(self.copies)]
        s = self.party.look()
        export = read_export(s.database.read("x", lambda c: s.audit.export(c, s.key)), s.key.public)
        began = self._drawn() - drawn
        self.log.append(f"restore {number}")
        self.party.close()
        self.place.copy("newest")
        self.place.put_back(name)
        refused = ""
        try:
            self.party.open()
            s = self.party.look()
            old = s.database.read("e", s.audit.events)
            assert bool(compare_own(old, export).findings) == (export.events[-1].sequence > last)
            self.party.close()
        except Refused as error:
            refused = error.detail
        assert bool(began) == ("older than the folder" in refused), refused
        self.place.put_back("newest")
        self.party.open()

    # --- what must hold -----------------------------------------------------------------------------------

    def check(self) -> None:
        s = self.party.look()
        s.database.read("v", s.audit.verify)
        chain = s.database.read("e", s.audit.events)
        check_totals(chain)
        charged: set[str] = set()
        published: set[str] = set()
        for event in chain:
            release = event.subject.release
            if event.kind == events.CHARGED:
                assert release not in charged, "charged twice"
                charged.add(str(release))
            elif event.kind == events.PUBLISHED:
                assert release in charged, "published without a charge"
                assert release not in published, "published twice"
                published.add(str(release))
            assert event.kind not in (events.RETURNED, events.FAILED), (event, self.log)
        digests = Calls(s).verify(None)  # type: ignore[arg-type]  # not used
        assert set(digests) == published
        assert self.digests.items() <= digests.items(), "a published message changed"
        self.digests |= digests
        for batch, found in self.batches.items():
            self._check_batch(s, batch, found)
        if self.receiver is not None:
            taken = self.receiver.accepted()
            assert len(set(taken)) == len(taken), "accounted for twice"
            assert set(taken) <= published

    def _check_batch(self, s: Services, batch: str, found: Batch) -> None:
        row, _ = s.database.read("b", lambda c: s.batches.get(c, batch))
        standing = s.database.read("r", lambda c: s.releases.of_batch(c, batch))
        spent = s.database.read("s", lambda c: s.ledger.spent(c, batch)).nano
        maybe = self.pending if self.pending is not None and batch in self.pending.arguments else None
        allowed = {"seal": SEALED, "purge": PURGED}.get(maybe.name if maybe else "", found.state)
        assert row.state in (found.state, allowed)
        if row.state != OPEN and not maybe:
            assert row.n == found.size
        more = Epsilon.parse(maybe.arguments[1]).nano if maybe and maybe.name == "release" else 0
        assert spent in (found.spent, found.spent + more)
        assert spent <= Epsilon.parse(LIFETIME).nano
        assert set(found.releases) <= {r.id for r in standing}
        assert len(standing) - len(found.releases) == int(spent != found.spent)

    def finish(self) -> None:
        """The last restart: everything that was begun is finished."""
        self.resolve()
        self.restart()
        self.work()
        self.check()
        s = self.party.look()
        assert s.database.read("w", s.releases.working) == []
        assert s.database.read("u", s.retention.unfinished) == []
        for batch, found in self.batches.items():
            if found.state == PURGED:
                assert not [k for k in s.vault.keys(f"{batch}/") if k.endswith(".parquet") and "examples" not in k]
        self.pull()
        self.check()

    # --- parts --------------------------------------------------------------------------------------------

    def _try(self, name: str, *arguments: Any, allowed: Any = ("ok",), key: str = "") -> None:
        assert self.pending is None
        self.number += not key
        key = key or f"{self.name}-{self.number}"
        self.log.append(f"{name} {' '.join(map(str, arguments))[:80]}")
        try:
            answer = self.party.call(name, *arguments, key=key)
        except Unknown as why:
            self.log.append(f"  no answer {why}")
            self.pending = Pending(name, key, arguments, frozenset(allowed))
            return
        except Refused as refused:
            if refused.code not in allowed:
                raise AssertionError(f"{name} may be {', '.join(allowed)}: {refused}") from None
            return
        assert "ok" in allowed, (name, answer)
        self._apply(name, arguments, answer[1])
        try:
            again = self.party.call(name, *arguments, key=key)
        except Unknown:
            return
        assert again == answer, "repeated with its key, a call has another answer"

    def _apply(self, name: str, arguments: tuple[Any, ...], answer: dict[str, Any]) -> None:
        if name == "create":
            self.batches[answer["id"]] = Batch(arguments[0])
            return
        batch = self.batches[arguments[0]]
        if name == "list" and batch.state == OPEN:
            batch.listed = set(arguments[1])
        elif name == "ingest":
            batch.labelled |= set(arguments[1])
        elif name == "seal":
            assert answer["examples"] == batch.size
            batch.state = SEALED
        elif name == "release":
            batch.releases[answer["id"]] = Epsilon.parse(arguments[1]).nano
        elif name == "purge":
            batch.state = PURGED

    def _may_purge(self, batch: str) -> bool:
        found = self.batches[batch]
        done = set(found.releases) <= set(self._states(batch, "published"))
        return found.state == PURGED or (found.state == SEALED and done)

    def _states(self, batch: str, state: str) -> list[str]:
        s = self.party.look()
        standing = s.database.read("r", lambda c: s.releases.of_batch(c, batch))
        return [r.id for r in standing if r.state == state]

    def _drawn(self) -> set[str]:
        return {path.name for path in (self.party.home / "releases").iterdir()}


__all__ = ["POPULATION", "Party", "Refused", "Unknown", "World"]
