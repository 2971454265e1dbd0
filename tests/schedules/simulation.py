"""Both parties in one process under virtual time: a seed is a schedule, a schedule is a list of steps.

`python -m tests.schedules` runs seeds; a schedule is written as one line, which `parsed` reads again.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import random
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import obstore.store
import pytest

from label_dp.audit.rules import check_rules
from label_dp.audit.verification import compare_with
from label_dp.store.objects import address
from tests.schedules import parties
from tests.schedules.machine import FREEZE, HELD, OK, PAUSE, REFUSED, Outcome, Process, Synced, virtual
from tests.schedules.oracle import Oracle, hold
from tests.schedules.parties import CLUB, DOWN, LATE, LOST, REFUSE, REPLY, SHOP, TWICE, Asked, Template, Wire
from tests.support.labels import FakeClock
from tests.support.ledger_faults import CRASH, DROP, FULL, LOSE
from tests.support.ledger_places import SqlitePlace

PROCESSES, STARS = 3, "s3://sim/x?region=us-east-1"
EPSILONS = ("0.5", "0.3", "0.9", "0.7")
WAITS = (1, 20, 40, 400, 7_200, 30_000)  # seconds: within a lease, beyond one, a pause, hours
INSIDE = (CRASH, CRASH, CRASH, DROP, LOSE, FULL, PAUSE, PAUSE, FREEZE, FREEZE)
OUTSIDE = (LOST, REPLY, REPLY, TWICE)
STORES = (DOWN, LATE, LATE, REFUSE)
FAR = 14  # fault points that a call has, about
OFTEN = {
    "window": 5, "ingest": 6, "seal": 4, "release": 5, "median": 3, "work": 2, "pull": 1, "resume": 2, "retry": 3,
    "wait": 2, "approve": 5, "cancel": 0.7, "purge": 1, "rotate": 0.2, "kill": 0.7, "copy": 0.6, "old": 0.7,
}  # fmt: skip
CHARGING = ("release", "median")


@dataclass(frozen=True)
class Step:
    """`process` does it; `a` and `b` choose among what there is then; `fault` strikes at the `nth` place that fits."""

    do: str
    process: int = 0
    a: int = 0
    b: int = 0
    fault: str = ""
    nth: int = 0

    def __str__(self) -> str:
        return f"{self.do} {self.process} {self.a} {self.b}" + (f" {self.fault} {self.nth}" if self.fault else "")


def written(steps: Iterable[Step]) -> str:
    return "; ".join(map(str, steps))


def parsed(line: str) -> list[Step]:
    words = (part.split() for part in line.split(";"))
    return [Step(w[0], *map(int, w[1:4]), *w[4:5], *map(int, w[5:])) for w in words]  # type: ignore[arg-type]  # by place


def schedule(seed: int, days: int) -> list[Step]:
    """The steps of a seed; with more days it begins alike."""
    rng, store = random.Random(seed), seed % 2 == 0
    steps = [Step("store" if store else "folder", 0, rng.randrange(2))]
    for day in range(days):
        names = [*rng.choices([*OFTEN], [*OFTEN.values()], k=rng.randint(3, 4)), "work", "pull"]
        rng.shuffle(names)
        for name in ["window", "ingest", "seal", "release"] * (day == 0) + names:
            steps.append(_step(rng, name, store))
            if name in CHARGING and rng.random() < 0.6:
                steps.append(_step(rng, "work", store))
            held = steps[-1]
            if held.do == "work" and held.fault in (PAUSE, FREEZE, LATE):  # another takes over, or tries to
                steps += [Step("kill", held.process)] * (held.fault == LATE)
                steps += [Step("wait", 0, 2), Step("work", (held.process + 1) % PROCESSES)]
        steps.append(Step("day"))
    return steps


def _step(rng: random.Random, name: str, store: bool) -> Step:
    fault, work = "", name == "work"
    if rng.random() < (0.6 if work else 0.3) and name not in ("wait", "kill", "copy", "old", "resume"):
        sent = STORES * (3 if work else 1) if store else ()
        fault = rng.choice(OUTSIDE + INSIDE[:6] if name == "pull" else INSIDE + OUTSIDE * (not work) + sent)
    nth = rng.randint(1, 4 if fault in STORES else rng.choice((2, 5, FAR))) if fault else 0
    return Step(name, rng.randrange(PROCESSES), rng.randrange(6), rng.randrange(12), fault, nth)


@dataclass
class Call:
    """Of a client: repeated with its key until it is answered. `flights`: how many of it are under way."""

    name: str
    arguments: list[Any]
    key: str
    answer: Any = None
    refused: str = ""
    flights: int = 0

    @property
    def open(self) -> bool:
        return self.answer is None and not (self.refused and not self.flights)


@dataclass
class Simulation:
    """`trace` says what came of each step; its digest is the same for the same steps, whatever was drawn."""

    template: Template
    folder: Path
    trace: list[str] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    batches: list[str] = field(default_factory=list)
    filled: set[str] = field(default_factory=set)
    seal_at: dict[str, str] = field(default_factory=dict)
    copies: list[tuple[str, set[str]]] = field(default_factory=list)
    ids: int = 0

    def run(self, steps: Iterable[Step], seed: object = 0) -> str:
        """Play the steps and calm down; return the digest of the trace. Raises Broken."""
        self.template.copy(self.folder)
        first, *rest = steps
        self.store = first.do == "store"
        self.clock, self.synced, memory = FakeClock(), Synced(), obstore.store.MemoryStore()
        self.home = self.folder / "labels"
        self.place = SqlitePlace(self.home)
        start = parties.labels_party(self.home, STARS if self.store else "")
        hosts = ["a", "a", "b"] if first.a else ["a", "b", "c"]
        self.parties = [Process(self.clock, host, start, parties.stop_labels_party) for host in hosts]
        features = parties.receiver(self.folder / "features")
        self.receiver = Process(self.clock, "r", features, lambda services: services.database.dispose())
        seen: dict[str, set[str]] = {}
        for process in self.parties:
            process.seen = seen
        self.oracle = Oracle(self.home, self.folder / "features", self.synced, seen, self.store)
        with ExitStack() as stack:
            patch = stack.enter_context(pytest.MonkeyPatch.context())
            bucket: Any = parties.SeenBucket
            patch.setattr(address, "bucket_of", lambda _address, _setting, faults: bucket(memory, "x", faults))
            stack.enter_context(virtual(self.clock, [*self.parties, self.receiver], seed, self.synced))
            stack.callback(self._end)
            for step in rest:
                self._step(step)
            self.calm()
        return hashlib.sha256("\n".join(self.trace).encode()).hexdigest()

    # --- a step -------------------------------------------------------------------------------------------

    def _step(self, step: Step) -> None:
        self.clock.move(seconds=1)
        outcome = getattr(self, f"_{step.do}")(step)
        kinds = self.oracle.look()
        if self.store:
            self.oracle.one_draw()
        hold(self.answered() <= self.oracle.asked.keys(), "work that was asked for is not in the chain")
        self.trace.append(f"{self.clock.now:%m-%d %H:%M:%S} {step}: {outcome} {' '.join(kinds)}")

    def _window(self, step: Step) -> str:
        at = self.clock.now + dt.timedelta(seconds=5_000 * (step.b + 1), milliseconds=0)
        population = CLUB if step.a % 2 == 0 else SHOP
        when = f"{at:%Y-%m-%dT%H:%M:%SZ}" if step.b % 2 else None
        return self._client(step, "window", population, when, EPSILONS[step.b % 2])

    def _ingest(self, step: Step) -> str:
        if not (batch := self._batch(step)):
            return ""
        count = 1 + step.b % 3
        self.ids += count
        return self._client(step, "ingest", batch, [f"i{self.ids - i}" for i in range(count)], 3, "insert")

    def _seal(self, step: Step) -> str:
        return self._client(step, "seal", batch) if (batch := self._batch(step)) else ""

    def _release(self, step: Step) -> str:
        batch, epsilon = self._batch(step), EPSILONS[step.b % len(EPSILONS)]
        return self._client(step, step.do, batch, epsilon, step.b % 4 > 0) if batch else ""

    _median = _release

    def _purge(self, step: Step) -> str:
        return self._client(step, "purge", batch) if (batch := self._batch(step)) else ""

    def _approve(self, step: Step) -> str:
        done = (
            self.oracle.ended | self.oracle.published.keys() | (self.oracle.approved if step.do == "approve" else set())
        )
        works = [name for name in self.oracle.asked if name not in done]
        return self._client(step, step.do, works[-1 - step.a % len(works)]) if works else ""

    _cancel = _approve

    def _rotate(self, step: Step) -> str:
        return self._client(step, "rotate")

    def _retry(self, step: Step) -> str:
        waiting = [call for call in self.calls if call.open]
        return self._send(step, waiting[step.a % len(waiting)]) if waiting else ""

    def _work(self, step: Step) -> str:
        return self._do(step, lambda s: s.worker.drain(), lambda outcome: outcome[0])

    def _resume(self, step: Step) -> str:
        process = self.parties[step.process]
        return process.go_on() if process.task else ""

    def _kill(self, step: Step) -> str:
        self.parties[step.process].kill()
        return ""

    def _wait(self, step: Step) -> str:
        self.clock.move(seconds=WAITS[step.a % len(WAITS)])
        for process in self.parties:
            if process.task and not process.frozen:
                process.beat()
        return ""

    def _day(self, _: Step) -> str:
        self.clock.now = (self.clock.now + dt.timedelta(days=1)).replace(hour=6, minute=0, second=0)
        return ""

    def _pull(self, step: Step) -> str:
        party = self.parties[step.process]
        wire = Wire(lambda: None if party.task else party.services, self.receiver)
        have = {*self.oracle.received}
        what = partial(parties.pull, wire=wire, have=have, most=1 + step.a, again=step.b % 3 == 0)
        return self.receiver.begin(what, step.fault, step.nth, _said)

    def _copy(self, _: Step) -> str:
        self.copies.append((f"copy{len(self.copies)}", {*self.oracle.published}))
        self.place.copy(self.copies[-1][0])
        return ""

    def _old(self, step: Step) -> str:
        """An older database in the newest one's place opens only if nothing was seen since; then the newest again."""
        if not self.copies:
            return ""
        name, published = self.copies[step.a % len(self.copies)]
        for process in self.parties:
            process.kill()
        self.oracle.close()
        self.place.copy("newest")
        self.place.put_back(name)
        try:
            outcome = self.parties[0].begin(lambda s: s.worker and None, "", 0, _said)
            hold(outcome != OK or self.oracle.published.keys() <= published, "an old database would draw again")
        finally:
            self.parties[0].close()
            self.place.put_back("newest")
        return outcome

    # --- calls --------------------------------------------------------------------------------------------

    def _batch(self, step: Step) -> str:
        """A batch of which the call makes sense, mostly."""
        sealed, purged = self.oracle.rows, self.oracle.purged
        rules: dict[str, Callable[[str], bool]] = {
            "ingest": lambda b: b not in sealed,
            "seal": lambda b: b not in sealed and b in self.filled,
            "": lambda b: b in sealed and b not in purged,
        }
        fit = rules[step.do if step.do in rules else ""]
        batches = [b for b in self.batches if step.b == 11 or fit(b)][-2:]
        return batches[step.a % len(batches)] if batches else ""

    def _client(self, step: Step, name: str, *arguments: Any) -> str:
        self.calls.append(Call(name, [*arguments], f"key-{len(self.calls)}"))
        return self._send(step, self.calls[-1])

    def _send(self, step: Step, call: Call) -> str:
        if step.fault == LOST:
            return LOST
        lost = step.fault == REPLY
        outcome = self._flight(step, call, lost)
        if step.fault == TWICE:
            other = Step(step.do, (step.process + 1) % PROCESSES)
            outcome += " " + self._flight(other, call, False)
        return outcome

    def _flight(self, step: Step, call: Call, lost: bool) -> str:
        def finish(outcome: Outcome) -> str:
            call.flights -= 1
            return _said(outcome) if lost else self._answered(call, outcome)

        call.flights += 1
        found = self._do(step, lambda s: Asked(s).call(call.name, call.key, call.arguments), finish)
        if found == "busy":
            call.flights -= 1
        return found

    def _do(self, step: Step, what: Callable[[Any], Any], finish: Callable[[Outcome], str]) -> str:
        process = self.parties[step.process]
        if process.task and process.go_on() == HELD:
            return "busy"
        fault = "" if step.fault in OUTSIDE else step.fault
        return process.begin(what, fault, step.nth, finish)

    def _answered(self, call: Call, outcome: Outcome) -> str:
        kind, answer = outcome
        if kind == REFUSED:
            call.refused = answer
        elif kind == OK:
            hold(call.answer in (None, answer), f"{call.name} has two answers under one key")
            if call.answer is None and call.name == "window":
                self.batches.append(answer[1]["id"])
                if answer[1]["seal_at"]:
                    self.seal_at[answer[1]["id"]] = answer[1]["seal_at"]
            elif call.answer is None and call.name == "ingest":
                self.filled.add(call.arguments[0])
            call.answer = answer
        return _said(outcome)

    def answered(self) -> set[str]:
        """Works that clients were told of."""
        return {call.answer[1]["id"] for call in self.calls if call.name in CHARGING and call.answer}

    # --- the end ------------------------------------------------------------------------------------------

    def calm(self) -> None:
        """No fault from here on: all that was begun ends, and both parties agree."""
        for round_ in range(3):
            for process in self.parties:
                for _ in range(40):
                    if process.task is None or process.go_on() != HELD:
                        break
            for call in [call for call in self.calls if call.open]:
                self._send(Step("retry", round_ % PROCESSES), call)
            self._step(Step("work", round_ % PROCESSES))
            self.clock.move(hours=3)
        hold(not [p for p in self.parties if p.task], "a process does not come to its end")
        waiting = [call.name for call in self.calls if call.open]
        hold(not waiting, f"without a fault there is no answer: {waiting}")
        for _ in range(2):
            self._step(Step("pull", 0, 10_000))
        rows: dict[str, int] = {}
        for call in self.calls:
            if call.name == "ingest" and call.answer:
                rows[call.arguments[0]] = rows.get(call.arguments[0], 0) + len(call.arguments[1])
        now = f"{self.clock.now:%Y-%m-%dT%H:%M:%SZ}"
        self.oracle.finished(self.answered(), rows, (b for b, at in self.seal_at.items() if at < now))
        hold(self.oracle.received.keys() == self.oracle.published.keys(), "the receiver has not all that is published")
        self._documents()
        self._chains()

    def _documents(self) -> None:
        calls = Asked(self.parties[0].services)
        for name in self.oracle.published:
            if name.startswith("rel_"):
                digest = calls._verified(name)
                hold(digest == self.oracle.published[name], "a published document changed")
        calls._answers()

    def _chains(self) -> None:
        labels, features = self.parties[0].services, self.receiver.services
        labels.database.read("verify", labels.audit.verify)
        ours = labels.database.read("scan", lambda c: [*labels.audit.scan(c)])
        check_rules(ours)
        path, key = self.folder / "export", features.home.own_key()
        path.write_bytes(features.database.read("export", lambda c: features.audit.export(c, key)))
        report = compare_with(path, ours, labels.key.public, "labels", labels.receipts.signer)
        hold(report["agrees"], f"the two chains do not agree: {report['findings']}")

    def _end(self) -> None:
        for process in [*self.parties, self.receiver]:
            process.kill()
        self.oracle.close()


def _said(outcome: Outcome) -> str:
    return f"{outcome[0]} {outcome[1]}" if outcome[0] == REFUSED else outcome[0]
